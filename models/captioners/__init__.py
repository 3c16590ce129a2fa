"""Turns feature streams into word probabilities and attention, a folder a paper.

A folder has the name that its captioner has on the command line (``stats`` is STaTS, ranked attention; the
three of the VATEX challenge share a folder); registry.py finds them.
"""
