"""Turns frames and sound into what networks take."""
