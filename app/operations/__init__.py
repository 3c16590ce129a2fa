"""Tells operators how the service is: its figures, and what is wrong with Redis or the workers."""
