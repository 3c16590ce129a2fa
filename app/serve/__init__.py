"""Starts Redis, a worker and the API on one machine, and keeps them running."""
