"""Measures captioners and makes the demo's checkpoints: what serves no request and trains for no user."""
