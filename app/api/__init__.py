"""Turns HTTP requests into jobs, and jobs into HTTP answers; imports no torch."""
