"""Sends a collector of traces what was done when and for which request; loads nothing where none is named."""
