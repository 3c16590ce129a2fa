"""What a user touches: HTTP service, jobs, worker, command line, page."""
