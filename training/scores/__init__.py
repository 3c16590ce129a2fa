"""Turns captions and their references into scores with intervals."""
