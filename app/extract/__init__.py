"""Turns video files into feature files, many at a time (``reelword extract``)."""
