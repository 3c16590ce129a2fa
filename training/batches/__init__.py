"""Turns captioned pictures and videos into training batches."""
