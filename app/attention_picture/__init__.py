"""Draws attention documents and frames as one picture, with Pillow alone."""
