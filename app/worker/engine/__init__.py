"""Runs the child that holds the models: what it is asked, and how frames reach it."""
