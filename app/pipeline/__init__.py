"""Turns decoded frames into captions with their attention: what the engine process runs."""
