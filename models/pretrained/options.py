"""Maps our decoding options to transformers' generation, and refuses by name what it has not.

A model's own generation_config.json is read for its special tokens alone: repetition penalties, temperatures
and lengths that it recommends would change scores and lengths behind the user's back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers import GenerationConfig

from models.decoding.length_penalty import LengthPenalty
from models.decoding.options import DecodingOptions
from models.pretrained.errors import OptionRefused

_WORDS = "is a rule on words, and pretrained captioners write parts of words"
#: Options that are refused where they are asked for, and why.
REFUSED: Mapping[str, str] = {
    "block_trigrams": _WORDS,
    "decoding_constraint": _WORDS,
    "remove_bad_endings": _WORDS,
    "group_size": "transformers has no diverse beam search of its own",
}


@dataclass(frozen=True)
class SpecialTokens:
    """Token ids."""

    start: int | None  #: a decoder's first token, None where a prompt begins it
    ends: tuple[int, ...]  #: any of them ends a caption
    pad: int  #: fills up shorter ones
    #: Never written where ``suppress_unk`` asks, None where the tokenizer has none of its own.
    unknown: int | None = None


def check_options(options: DecodingOptions) -> None:
    """Raises OptionRefused for the first option that pretrained captioners do not have.

    ``name_once`` is a rule for vocabularies of words: left as it is, it has no effect here.
    """
    for name, why in REFUSED.items():
        if getattr(options, name) != DecodingOptions.model_fields[name].default:
            raise OptionRefused(name, why)
    if options.temperature != 1 and options.method != "sample":
        raise OptionRefused("temperature", "is for method 'sample' here; greedy and beam search take 1")
    if LengthPenalty.parse(options.length_penalty).kind == "wu":
        raise OptionRefused("length_penalty", 'is a number or "avg_A" here; transformers has no "wu_A"')


def generation_config(options: DecodingOptions, tokens: SpecialTokens) -> GenerationConfig:
    """Returns the same search as transformers' own configuration.

    Beams end as ours do (``early_stopping="never"``): when none that is open could still win.

    options: ours, checked by ``check_options``. Returns a configuration in which nothing is left to the
    model's own.
    """
    settings: dict[str, Any] = {
        "max_new_tokens": options.max_length,
        "num_return_sequences": options.num_captions,
        "do_sample": options.method == "sample",
        "bos_token_id": tokens.start,
        "decoder_start_token_id": tokens.start,
        "eos_token_id": list(tokens.ends),
        "pad_token_id": tokens.pad,
    }
    if options.suppress_unk and tokens.unknown is not None:
        settings["suppress_tokens"] = [tokens.unknown]
    if options.method == "beam":
        settings |= {
            "num_beams": options.beam_size,
            "length_penalty": LengthPenalty.parse(options.length_penalty).exponent,
            "early_stopping": "never",
        }
    if options.method == "sample":
        settings |= {
            "temperature": options.temperature,
            "top_k": options.top_k or 0,
            "top_p": 1.0 if options.top_p is None else options.top_p,
            "remove_invalid_values": True,  # else the draw fails before NotANumber can name them
        }
    return GenerationConfig(**settings)
