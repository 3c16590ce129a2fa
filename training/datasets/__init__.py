"""Captioned sets in the forms in which their authors publish them, read into one typed result."""
