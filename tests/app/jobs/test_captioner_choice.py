"""What may be chosen, who may write together, and who writes where nobody is named."""

from __future__ import annotations

from typing import Any

import pytest

from app.errors import CaptionerUnknown, EmbeddingMissing, InvalidMembers, JobFailure, OptionNotTaken
from app.jobs.captioner_choice import (
    CaptionerChoices,
    default_captioner,
)
from app.jobs.captioner_info import CaptionerInfo, SpeedInfo
from app.jobs.options import CaptionerChoice, CaptionOptions

GRID = {"network": "net", "weights_sha256": "1" * 64, "preprocessing": "squash", "engine": "torch"}


def info(name: str, *, vocabulary: str = "v", **given: Any) -> CaptionerInfo:
    return CaptionerInfo(
        name=name, weights_sha256="0" * 64, vocabulary=vocabulary, **{"features": {"grid": GRID}, **given}
    )


def pretrained(name: str) -> CaptionerInfo:
    return info(name, vocabulary="", features={}, kind="git", source="owner/git")


def menu(*others: CaptionerInfo) -> CaptionerChoices:
    alone = [info("stats"), info("g2l"), info("vanilla")]
    joint = [info("fusion", members=("g2l", "stats")), info("ensemble", members=("g2l", "stats"))]
    return CaptionerChoices([*alone, *joint, *others], default="stats")


def choose(
    offered: CaptionerChoices, captioner: str | None = None, members: str | None = None
) -> CaptionerChoice:
    return offered.resolve(CaptionOptions.model_validate({"captioner": captioner, "members": members}))


def test_who_writes_is_what_was_asked_for_or_the_default() -> None:
    assert choose(menu()) == CaptionerChoice("stats")
    assert choose(menu(), "g2l") == CaptionerChoice("g2l")
    assert choose(menu(), "fusion") == CaptionerChoice("fusion", ("g2l", "stats"))
    assert choose(menu(), "ensemble", " vanilla , stats") == CaptionerChoice("ensemble", ("vanilla", "stats"))
    assert choose(menu(), "fusion", "stats").writers == ("stats",)
    assert choose(menu(), "g2l").writers == ("g2l",)


@pytest.mark.parametrize(
    ("captioner", "members", "error", "sentence"),
    [
        ("blip", None, CaptionerUnknown, "no captioner called blip; there are: ensemble, fusion, g2l,"),
        (
            "fusion",
            "g2l,blip",
            CaptionerUnknown,
            "no captioner called blip; there are: g2l, git, git-large, motion, other",
        ),
        ("fusion", "ensemble", CaptionerUnknown, "no captioner called ensemble; there are: g2l"),
        ("ensemble", "stats,other", InvalidMembers, "stats and other were trained on different vocabularies"),
        ("fusion", "stats,motion", InvalidMembers, "stats and motion were trained on different features"),
        (
            "ensemble",
            "stats,git",
            InvalidMembers,
            "git is a pretrained captioner with a vocabulary of its own",
        ),
        ("ensemble", "git,git-large", InvalidMembers, "git is a pretrained captioner"),
    ],
)
def test_what_cannot_write_is_refused_by_name(
    captioner: str, members: str | None, error: type[JobFailure], sentence: str
) -> None:
    other = info("other", vocabulary="w")
    motion = info("motion", features={"grid": {**GRID, "weights_sha256": "2" * 64}})
    with pytest.raises(error, match=sentence):
        choose(menu(other, motion, pretrained("git"), pretrained("git-large")), captioner, members)


def test_pretrained_members_may_compete_where_they_are_named() -> None:
    offered = menu(pretrained("git"))
    assert choose(offered, "fusion").members == ("g2l", "stats")
    assert choose(offered, "fusion", "git,stats").members == ("git", "stats")


def test_members_of_other_words_may_compete() -> None:
    assert choose(menu(info("other", vocabulary="w")), "fusion", "stats,other").members == ("stats", "other")


def test_engine_and_precision_are_no_difference() -> None:
    fast = info("fast", features={"grid": {**GRID, "engine": "openvino", "precision": "bf16"}})
    assert choose(menu(fast), "ensemble", "fast,stats").members == ("fast", "stats")


def test_fusion_without_an_embedding_says_what_is_missing() -> None:
    with pytest.raises(EmbeddingMissing, match="no semantic embedding") as refused:
        choose(CaptionerChoices([info("stats")]), "fusion")
    assert "semantic_embedding.safetensors" in refused.value.operator_hint


# ---- the default ----


def rated(name: str, cider: float, seconds: float) -> CaptionerInfo:
    speed = SpeedInfo(
        feature_seconds=seconds - 0.1, caption_seconds=0.1, captions_per_second=10, machine="here"
    )
    return info(name, scores={"70 real clips": {"cider": cider}, "val": {"cider": 99}}, speed=speed)


def test_the_default_is_the_best_on_real_clips_that_does_not_take_long() -> None:
    better, quicker, slowest = rated("better", 40, 4.0), rated("quicker", 30, 1.0), rated("slow", 90, 60.1)
    assert default_captioner([better, quicker, slowest, info("stats")]) == "better"
    assert default_captioner([rated("a", 40, 59.9), better]) == "better"
    assert default_captioner([slowest, info("stats")]) == "stats"


def test_judged_clips_go_before_ciders_that_are_a_matter_of_chance() -> None:
    scores = {"70 real clips": {"cider": 20, "right": 9, "partly": 26, "n": 70}}
    judged = rated("judged", 20, 1.0).model_copy(update={"scores": scores})
    worse = {"70 real clips": {"cider": 60, "right": 6, "partly": 22, "n": 70}}
    other = rated("other", 60, 1.0).model_copy(update={"scores": worse})
    assert default_captioner([judged, other, rated("unjudged", 90, 1.0)]) == "judged"


def test_what_is_not_measured_does_not_compete() -> None:
    unmeasured = rated("a", 90, 1.0).model_copy(update={"speed": None})
    unscored = rated("b", 90, 1.0).model_copy(update={"scores": {"val": {"cider": 90}}})
    together = rated("fusion", 99, 1.0)
    assert default_captioner([unmeasured, unscored, together]) == "a"
    assert default_captioner([unmeasured, info("stats")]) == "stats"
    assert default_captioner([]) is None


def test_a_choice_that_was_made_is_not_made_again() -> None:
    """The record has the choice; whoever reads it has only to check that everybody is there."""
    options = CaptionOptions(captioner="fusion")
    assert (CaptionOptions().choice, options.choice) == (None, None)
    chosen = options.with_choice(menu().resolve(options))
    assert chosen.choice == CaptionerChoice("fusion", ("g2l", "stats"))
    assert CaptionOptions.model_validate_json(chosen.model_dump_json()) == chosen
    menu().check(chosen.choice)
    with pytest.raises(CaptionerUnknown, match="no captioner called g2l"):
        CaptionerChoices([info("stats"), info("fusion", members=("stats",))]).check(chosen.choice)


def test_without_a_default_of_its_own_the_rule_says_who_writes() -> None:
    assert CaptionerChoices([info("g2l"), info("stats")]).default == "stats"
    assert CaptionerChoices([]).default is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"category": 3}, "stats knows no classes of videos .category.; those that do: classed."),
        ({"captioner": "classed", "category": 20}, "category is 20, and classed knows the classes 0 to 19"),
        ({"captioner": "git", "block_trigrams": True}, "git is a pretrained captioner, which does not have"),
        ({"captioner": "git", "temperature": 0.5}, "does not have temperature"),
        (
            {"captioner": "fusion", "members": "stats,git", "beam_size": 4, "group_size": 2},
            "git is a pretrained captioner, which does not have group_size",
        ),
    ],
)
def test_what_who_writes_does_not_have_is_refused_by_name(given: dict[str, Any], sentence: str) -> None:
    offered = menu(info("classed", classes=20), pretrained("git"))
    with pytest.raises(OptionNotTaken, match=sentence):
        offered.resolve(CaptionOptions.model_validate(given))


def test_what_who_writes_has_is_taken() -> None:
    offered = menu(info("classed", classes=20), pretrained("git"))
    for options in (
        {"captioner": "classed", "category": 0},
        {"captioner": "fusion", "members": "stats,classed", "category": 19, "fusion_rule": "relevance"},
        {"captioner": "git", "method": "sample", "temperature": 0.5},
        {"block_trigrams": True, "method": "greedy", "name_once": False},
    ):
        offered.resolve(CaptionOptions.model_validate(options))
    with pytest.raises(OptionNotTaken, match="none here does"):
        menu().resolve(CaptionOptions(category=1))
