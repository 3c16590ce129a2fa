"""Merges an adapter into the weights of its base, by peft."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from extractors.errors import name_missing_packages


def merge_adapter(model: Any, folder: Path) -> Any:
    """Adds the adapter of a folder to the weights of its base, a model of transformers that grows no larger.

    Raises PackageMissing where peft is not installed.
    """
    with using_peft():
        from peft import PeftModel

        return PeftModel.from_pretrained(model, folder).merge_and_unload()


@contextmanager
def using_peft() -> Iterator[None]:
    """Names peft where it is not there, and keeps quiet of names of transformers that it uses and are old."""
    with name_missing_packages(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
