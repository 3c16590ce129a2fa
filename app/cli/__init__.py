"""Turns command lines into calls, one file a command."""
