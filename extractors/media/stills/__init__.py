"""Reads picture files, still or animated."""
