"""Turns an address that somebody gave into bytes, and refuses what lies inside the operator's network."""
