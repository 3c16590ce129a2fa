"""Records whose a run is, shows its numbers elsewhere, and ends it where a signal asks for that."""
