"""Answers the HTTP routes."""
