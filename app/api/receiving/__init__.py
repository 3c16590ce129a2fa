"""Reads what clients send, within limits."""
