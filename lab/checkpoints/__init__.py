"""Averages, compares and packs finished checkpoints, and writes captions with them."""
