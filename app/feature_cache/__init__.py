"""Keeps features of videos on this machine's disk: what a worker found out → its next answer at once."""
