"""Averages several checkpoints' weights to one captioner's.

    python -m lab average A B … --out FILE

Captioners that went on from one checkpoint, each on its own data or with its own seed, lie close enough for
the mean of their weights to be a captioner too. It costs what one of them costs, and what each has learned by
chance cancels (Wortsman et al. 2022, "Model soups"). Runs from different beginnings cannot be averaged so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from models.captioners.registry import UnknownCaptioner
from models.checkpoint import (
    Card,
    Checkpoint,
    CheckpointError,
    find_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from models.stream_set import DEMO


def average_checkpoints(checkpoints: Sequence[Checkpoint]) -> tuple[Any, Card]:
    """Returns the mean of their weights as a captioner of its own, and its card, without scores.

    Raises CheckpointError where they are not of one captioner, config, vocabulary and streams.
    """
    first = checkpoints[0]
    for other in checkpoints[1:]:
        _check_alike(first, other)
    states = [each.captioner.state_dict() for each in checkpoints]
    first.captioner.load_state_dict({name: _average([state[name] for state in states]) for name in states[0]})
    return first.captioner, _make_card([each.card for each in checkpoints])


def _average(values: Sequence[Tensor]) -> Tensor:
    return torch.stack([value.float() for value in values]).mean(0).to(values[0].dtype)


def _check_alike(one: Checkpoint, other: Checkpoint) -> None:
    differing = {
        "captioners": (one.card.captioner, other.card.captioner),
        "configs": (one.captioner.config, other.captioner.config),
        "vocabularies": (one.captioner.vocabulary.words, other.captioner.vocabulary.words),
        "streams": tuple({n: s.identity for n, s in each.card.streams.items()} for each in (one, other)),
    }
    for what, (ours, theirs) in differing.items():
        if ours != theirs:
            raise CheckpointError(f"these are of different {what}: average what went on from one checkpoint")


def _make_card(cards: Sequence[Card]) -> Card:
    """Makes a card, trained on whatever any of them was; scores and speed are to be measured anew."""
    ids = sorted({name for card in cards for name in card.training.get("ids", ())})
    parts = [{key: value for key, value in card.training.items() if key != "ids"} for card in cards]
    streams = cards[0].training.get("streams", DEMO.name)
    return replace(
        cards[0], scores={}, speed=None, training={"averaged": parts, "streams": streams, "ids": ids}
    )


def average(
    checkpoints: Annotated[
        list[str], typer.Argument(help="Captioners by name, or checkpoint files; twice named counts twice.")
    ],
    out: Annotated[Path, typer.Option(help="Where the averaged checkpoint is written.")],
) -> None:
    """Average checkpoints to one; its card names all runs, and has no scores until it is evaluated."""
    if len(checkpoints) < 2:
        raise typer.BadParameter("name two checkpoints or more")
    try:
        captioner, card = average_checkpoints(
            [load_checkpoint(find_checkpoint(each)) for each in checkpoints]
        )
    except (CheckpointError, UnknownCaptioner) as error:
        raise typer.BadParameter(str(error)) from error
    save_checkpoint(out, captioner, card)
    typer.echo(f"averaged checkpoint: {out}")
