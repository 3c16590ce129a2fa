"""From feature streams to a caption with its attention: captioners and one decoding loop."""
