"""Turns an address that a client sent into bytes, and refuses what lies inside the operator's network."""
