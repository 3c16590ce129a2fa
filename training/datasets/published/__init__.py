"""Reads the published data sets in their own formats, one file a set."""
