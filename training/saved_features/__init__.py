"""Reads features that were made before, here or by others, for videos whose files may be gone."""
