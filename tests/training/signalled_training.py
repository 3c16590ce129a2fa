"""Runs a command of ours which sends itself a signal when a method is called so often.

    python -m tests.training.signalled_training NUMBER MODULE:CLASS.METHOD CALL COMMAND…

In a process of its own: the stack that pytest's faulthandler keeps for signals is too small for the frame of
one once OpenVINO uses a processor's AMX, and the kernel then ends the process.
"""

import os
import sys
from importlib import import_module
from typing import Any

from app.cli.main import cli


def main(number: str, method: str, call: str, *command: str) -> None:
    module, _, place = method.partition(":")
    class_name, _, name = place.partition(".")
    owner = getattr(import_module(module), class_name)
    original, calls = getattr(owner, name), []

    def signalling(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == int(call):
            os.kill(os.getpid(), int(number))
        return original(*arguments)

    setattr(owner, name, signalling)
    cli(command)


if __name__ == "__main__":
    main(*sys.argv[1:])
