"""Serves captions: HTTP service, jobs, worker, command line, page."""

__version__ = "0.1.0"
