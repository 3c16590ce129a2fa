"""Puts data, recipe and training loop together for one run."""
