"""What trainings of tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from training.optimization import trainer


@pytest.fixture
def every_step_is_logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On one thread, where sums have one order."""
    monkeypatch.setattr(trainer, "REPORT_EVERY", 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
