"""Trains captioners: from captioned data to a checkpoint, and from a checkpoint to a table of scores."""
