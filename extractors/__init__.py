"""From a video file to named feature streams; nothing else in the project opens media."""
