"""Keeps jobs, their files and the workers' reports in Redis and the blob store."""
