"""Trains the demo's captioners on pictures: stills and sparse frames become pseudo-videos of shots."""
