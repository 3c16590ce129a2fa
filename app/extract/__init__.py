"""Turns video files into feature files, many at a time (``python -m app extract``)."""
