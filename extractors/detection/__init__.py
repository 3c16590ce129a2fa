"""Turns pictures into boxes, labels and region features."""
