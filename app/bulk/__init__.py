"""Captions whole collections of videos with Ray Data, on one machine or many."""
