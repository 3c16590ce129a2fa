"""Every option is mapped or refused by its name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from models.decoding.options import DecodingOptions
from models.pretrained.errors import OptionRefused
from models.pretrained.options import SpecialTokens, check_options, generation_config

TOKENS = SpecialTokens(start=7, ends=(2, 9), pad=0, unknown=1)
#: Values of options that are mapped, and what is said to transformers for each.
MAPPED: dict[str, tuple[DecodingOptions, dict[str, Any]]] = {
    "method": (DecodingOptions(method="greedy"), {"do_sample": False, "num_beams": None}),
    "beam_size": (DecodingOptions(beam_size=3), {"num_beams": 3, "early_stopping": "never"}),
    "num_captions": (DecodingOptions(num_captions=2), {"num_return_sequences": 2}),
    "max_length": (DecodingOptions(max_length=11), {"max_new_tokens": 11}),
    "length_penalty": (DecodingOptions(length_penalty=0.3), {"length_penalty": 0.3}),
    "temperature": (DecodingOptions(method="sample", temperature=0.5), {"temperature": 0.5}),
    "top_k": (DecodingOptions(method="sample", top_k=4), {"top_k": 4, "top_p": 1.0}),
    "top_p": (DecodingOptions(method="sample", top_p=0.8), {"top_p": 0.8, "top_k": 0}),
    "suppress_unk": (DecodingOptions(suppress_unk=False), {"suppress_tokens": None}),
}
REFUSED = {
    "block_trigrams": DecodingOptions(block_trigrams=True),
    "decoding_constraint": DecodingOptions(decoding_constraint=True),
    "remove_bad_endings": DecodingOptions(remove_bad_endings=True),
    "group_size": DecodingOptions(beam_size=4, group_size=2),
    "temperature": DecodingOptions(temperature=0.5),
    "length_penalty": DecodingOptions(length_penalty="wu_0.9"),
}
#: seed, attention and explanation are the captioner's own; diversity_lambda is read with groups alone;
#: name_once is a rule for vocabularies of words; fusion_rule is fusion's.
ELSEWHERE = {"seed", "attention", "explanation", "diversity_lambda", "name_once", "fusion_rule"}


@pytest.mark.parametrize("option", MAPPED)
def test_options_are_said_in_transformers_words(option: str) -> None:
    options, said = MAPPED[option]
    check_options(options)
    found = generation_config(options, TOKENS)
    assert {name: getattr(found, name) for name in said} == said


@pytest.mark.parametrize("option", REFUSED)
def test_what_cannot_be_done_is_refused_by_name(option: str) -> None:
    with pytest.raises(OptionRefused, match=f"^{option}: ") as caught:
        check_options(REFUSED[option])
    assert caught.value.option == option
    assert caught.value.document()["code"] == "option_refused"
    assert isinstance(caught.value, ValueError)


def test_no_option_is_forgotten() -> None:
    assert set(DecodingOptions.model_fields) == {*MAPPED, *REFUSED, *ELSEWHERE}


def test_the_average_is_a_penalty_of_one() -> None:
    assert generation_config(DecodingOptions(length_penalty="avg_0.2"), TOKENS).length_penalty == 1.0


def test_special_tokens_are_the_model_s_and_unknown_words_are_not_written() -> None:
    found = generation_config(DecodingOptions(), TOKENS)
    assert (found.bos_token_id, found.eos_token_id, found.pad_token_id) == (7, [2, 9], 0)
    assert found.suppress_tokens == [1]
    assert generation_config(DecodingOptions(), replace(TOKENS, unknown=None)).suppress_tokens is None
