"""What a caller may ask for: one value for the HTTP form, the command line, the job record and the engine."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

DEFAULT_CAPTIONER = "stats"


class CaptionOptions(BaseModel):
    """Options of one captioning job. Bounds keep the cost of a job within a small factor of the default's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    captioner: str = Field(
        DEFAULT_CAPTIONER,
        min_length=1,
        max_length=64,
        description="Which captioner writes; GET /models lists them.",
    )
    beam_size: int = Field(5, ge=1, le=20, description="Hypotheses kept at each word; 1 is greedy search.")
    num_captions: int = Field(1, ge=1, le=20, description="How many captions, best first; at most beam_size.")
    max_length: int = Field(20, ge=1, le=50, description="Most words in a caption.")
    attention: bool = Field(True, description="Keep, for each word, where the captioner looked.")
    length_penalty: float = Field(
        0.5, ge=0, le=2, description="Captions are ranked by log-probability / length ** length_penalty."
    )

    @model_validator(mode="after")
    def _captions_fit_the_beam(self) -> CaptionOptions:
        if self.num_captions > self.beam_size:
            raise ValueError(
                f"num_captions ({self.num_captions}) cannot exceed beam_size ({self.beam_size}): "
                "a beam of k hypotheses ends as at most k captions"
            )
        return self


FORM_FIELDS = ("captioner", "beam_size", "num_captions", "max_length", "attention")
"""The options that ``POST /caption`` takes, in the order in which they are documented."""
