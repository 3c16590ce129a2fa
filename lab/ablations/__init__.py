"""Runs the papers' ablations on the demo's data, one row after another, and prints them as tables."""
