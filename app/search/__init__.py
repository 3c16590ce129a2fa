"""Finds the moments of films, or of a service's jobs, that fit some words best."""
