"""Fetches and reads the videos of attempts, so that the engine has what it captions."""
