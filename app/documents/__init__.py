"""Builds the JSON that callers read from job records and captions."""
