"""What a command cannot do for any of its inputs."""

from __future__ import annotations


def sentence(text: str) -> str:
    """A message of a library's as a sentence on its own."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


class UsageError(Exception):
    """The command was asked in a wrong way; the message is a sentence. The exit code is 2."""
