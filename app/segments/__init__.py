"""Captions the segments of a film as they are cut, and keeps what is done, so that a film is begun once."""
