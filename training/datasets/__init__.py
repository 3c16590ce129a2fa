"""Reads captioned sets in the forms in which their authors publish them, into one typed result."""
