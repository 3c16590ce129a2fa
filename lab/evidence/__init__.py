"""Measures evidence beside attention."""
