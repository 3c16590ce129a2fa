"""Finds for each word of a caption the moment and the place that it needs."""
