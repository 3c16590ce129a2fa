"""Refocus: frames, read from the middle and again from the key frame, into words."""
