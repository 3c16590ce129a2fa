"""Turns a checkpoint and a data set into a table of scores."""
