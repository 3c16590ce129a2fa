"""Decides which requests are allowed: API keys, what each may do, and how much of it."""
