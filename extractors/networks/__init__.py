"""Turns pictures, clips and sound into features: torch modules, one file a paper."""
