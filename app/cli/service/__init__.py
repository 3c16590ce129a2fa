"""Commands of who runs the service: its processes, jobs, dead letters, API keys and health."""
