"""Turns many videos into streams, and streams into feature files."""
