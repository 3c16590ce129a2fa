"""Chooses the streams of each captioner, and computes them from frames."""
