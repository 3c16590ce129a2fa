"""Refuses connections and requests before a route sees them."""
