"""Works on finished checkpoints: averages, compares, packs, writes captions with them."""
