"""A transformer decoder over any streams, as today's captioners are built."""
