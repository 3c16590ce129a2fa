"""From clips and their captions to marks by eye, and from marks to the scores of captioners."""
