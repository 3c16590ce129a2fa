"""Turns frames and sound into streams: the extractors that can be asked for by name."""
