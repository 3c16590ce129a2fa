"""Executables that pass for a Java and misbehave."""

from __future__ import annotations

from pathlib import Path

from training.scores.java import Java


def fake_java(folder: Path, behaviour: str) -> Java:
    """`behaviour` is shell for everything but `--version`."""
    path = folder / "java"
    path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo fake 1; exit; fi\n{behaviour}\n')
    path.chmod(0o755)
    return Java(path, "fake 1")
