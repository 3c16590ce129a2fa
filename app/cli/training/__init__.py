"""Commands of who trains captioners: sets of captions, training runs, scores and curves."""
