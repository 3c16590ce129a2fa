"""Declares the options of ``reelword train`` that not every run reads."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from extractors.errors import ReelwordError
from training.recipes.changes import parse_changes

#: What networks compute in; "tf32" is float32 whose products a GPU computes with ten bits of mantissa.
PrecisionName = Literal["auto", "fp32", "tf32", "bf16", "fp16"]
#: Option → why it is not read.
Unread = dict[str, str]


class UnreadOption(ReelwordError, ValueError, code="unread_option"):
    """An option that was given and would not be read; the message names it and says why."""

    hint = "Leave the option out, or choose a recipe that reads it."


class StartMissing(ReelwordError, ValueError, code="start_missing"):
    """A recipe that goes on from a captioner, and none was given."""

    hint = "Name a checkpoint with --start."


class NeedsVideo(ReelwordError, ValueError, code="needs_video"):
    """The stream set looks at what pictures do not show; the message says at what."""

    hint = "Train on videos (--data-set), or choose a captioner that reads single pictures."


class TrainOptions(BaseModel, frozen=True, extra="forbid", populate_by_name=True):
    """Holds the options that not every run reads; None where one was not given.

    The command line makes its options of the fields.
    """

    start: Path | None = Field(None, description="A checkpoint whose weights to begin with.")
    streams: str | None = Field(
        None,
        description="What it is fed with: a stream set; default: --start's own, the paper recipe's, the "
        "feature map's, or the demo's.",
    )
    teachers: list[str] | None = Field(
        None,
        alias="teacher",
        description="A captioner whose probabilities are learned too; may be repeated.",
    )
    data_set: str | None = Field(
        None, description="The captioned set that the folder holds: msvd, msrvtt: see docs/data.md."
    )
    paper: str | None = Field(None, description="Whose splits and words the set has; see data check.")
    changes: list[str] | None = Field(
        None, alias="set", description="FIELD=VALUE of the recipe or the captioner's widths; may be repeated."
    )
    epochs: float | None = Field(
        None, gt=0, description="How often the first phase goes through all captions."
    )
    lr: float | None = Field(None, gt=0, description="Another learning rate.")
    batch_size: int | None = Field(None, ge=1, description="Another number of videos a batch.")
    steps: int | None = Field(
        None,
        ge=1,
        description="Steps of the first phase, at most as many of later ones; of recipes in epochs: at most.",
    )
    self_critical: bool | None = Field(
        None, description="Refine by rewards after the cross-entropy steps; default: what the recipe has."
    )
    features: Path | None = Field(None, description="Features that were saved before.")

    @property
    def options(self) -> tuple[str, ...]:
        """The names of those that were given, as they were typed."""
        values = {
            f"--{(field.alias or name).replace('_', '-')}": getattr(self, name)
            for name, field in TrainOptions.model_fields.items()
        }
        if self.self_critical is False:
            values = {**values, "--self-critical": None, "--no-self-critical": True}
        return tuple(option for option, value in values.items() if value not in (None, []))

    @property
    def values(self) -> dict[str, Any]:
        """The fields of a recipe or a configuration that are changed. Raises FieldRefused."""
        short = {"learning_rate": self.lr, "videos": self.batch_size}
        typed = {name: value for name, value in short.items() if value is not None}
        return {**typed, **parse_changes(self.changes or ())}

    def refuse(self, unread: Unread) -> None:
        """Refuses options that are not read. Raises UnreadOption for the first of the given ones."""
        for option in self.options:
            if option in unread:
                raise UnreadOption(f"{option}: {unread[option]}")
