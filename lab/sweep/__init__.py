"""Trains a recipe with several values and seeds, and makes one table of them."""
