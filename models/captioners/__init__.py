"""Turns feature streams into word probabilities and attention, one file a paper.

A file has the name that its captioner has on the command line (``stats`` is STaTS, ranked attention; the
three of the VATEX challenge share a file); registry.py lists them.
"""
