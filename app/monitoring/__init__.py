"""Reads from Redis how the service is doing: its queue, the jobs that ended, the state of Redis itself."""
