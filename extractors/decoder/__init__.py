"""Runs media reading in a child process and brings its frames back."""
