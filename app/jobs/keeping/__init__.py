"""Keeps what outlives an attempt, uploads and segments of films, and sweeps what nothing needs."""
