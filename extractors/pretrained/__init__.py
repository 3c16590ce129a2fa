"""Finds, downloads, checks and reads the published weights of networks."""
