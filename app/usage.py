"""What a command cannot do for any of its inputs."""

from __future__ import annotations


class UsageError(Exception):
    """The command was asked in a wrong way; the message is a sentence. The exit code is 2."""
