"""Turns a media file into frames, sound and a report of what was wrong with it."""
