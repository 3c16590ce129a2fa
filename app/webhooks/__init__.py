"""Turns ends of jobs into signed requests to the addresses that were given with them."""
