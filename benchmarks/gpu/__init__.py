"""Measures everything that a GPU computes: image networks, captioners, training steps, clips a second."""
