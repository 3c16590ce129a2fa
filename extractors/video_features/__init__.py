"""Extracts the features of video files, and keeps them in files."""
