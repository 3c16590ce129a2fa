"""A live API with a scripted worker, for the client."""

from tests.app.conftest import api, jobs, keys, redis_server, server, settings, worker

__all__ = ["api", "jobs", "keys", "redis_server", "server", "settings", "worker"]
