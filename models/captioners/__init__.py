"""Turns feature streams into word probabilities and attention, one file a paper."""
