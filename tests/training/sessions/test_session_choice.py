"""Every option of ``reelword train`` is read by the run, or refused in a sentence."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.model_options import expand_fields
from app.cli.training.train import train
from lab.__main__ import lab as app
from lab.pictures.picture_options import list_unread_by_embedding, list_unread_on_pictures
from training.recipes.demo_recipes import read_recipes
from training.recipes.paper_recipes import find_paper_run
from training.recipes.train_options import TrainOptions, UnreadOption
from training.sessions.session_choice import list_unread_as_paper, list_unread_on_videos

#: Of the command's options, those that every run reads.
ALWAYS_READ = {"captioner", "data", "recipe", "out", "seed", "feature_map"}
#: Those that change nothing of what is learned.
OF_THE_RUN = {"cache", "threads", "device", "save_every", "log_every", "keep", "track", "precision"}
ALL = TrainOptions(
    start=Path("a.safetensors"),
    streams="demo",
    teachers=["stats"],
    data_set="msvd",
    paper="stats",
    changes=["videos=4"],
    epochs=3,
    lr=1e-3,
    batch_size=4,
    steps=5,
    self_critical=True,
    features=Path("features"),
)
NO_TEACHER = "has no teacher; with one: --recipe demo-taught"
NO_REWARD = "has no self-critical steps; leave it out"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("g2l --recipe paper-msvd --start a.safetensors", "--start: paper-msvd trains from nothing"),
        ("g2l --recipe paper-msvd --teacher stats", f"--teacher: paper-msvd {NO_TEACHER}"),
        (
            "g2l --recipe paper-msvd --data-set msvd",
            "--data-set: paper-msvd is for msvd, which --data has to",
        ),
        (
            "g2l --recipe paper-msvd --paper g2l",
            "--paper: paper-msvd has the splits and words of g2l's paper",
        ),
        ("g2l --recipe paper-msvd --self-critical", f"--self-critical: paper-msvd {NO_REWARD}"),
        ("g2l --recipe paper-msvd --no-self-critical", f"--no-self-critical: paper-msvd {NO_REWARD}"),
        ("semantic_embedding --teacher stats", f"--teacher: demo-embedding {NO_TEACHER}"),
        (
            "semantic_embedding --data-set msvd --start a.safetensors",
            "--start: semantic_embedding of a set of videos begins from nothing",
        ),
        ("semantic_embedding --paper stats", "--paper: semantic_embedding learns from pictures alone"),
        ("semantic_embedding --no-self-critical", f"--no-self-critical: semantic_embedding {NO_REWARD}"),
        ("stats --recipe demo-longer", "demo-longer goes on from a captioner: give it as --start"),
        ("g2l --recipe demo-moved", "demo-moved goes on from a captioner: give it as --start"),
        ("g2l --recipe demo-shots", "--recipe: demo-shots trains what stats alone has, and not g2l"),
        ("stats --recipe demo-refocus", "--recipe: demo-refocus trains what refocus alone has, and not"),
        ("stats --data-set msvd --teacher g2l", "--teacher: teachers read pictures, not a set of videos"),
        (
            "stats --data-set msvd --start a.safetensors --streams demo",
            "--streams: a.safetensors is fed with",
        ),
        ("stats --data-set msvd --recipe demo-shots", "--data-set: demo-shots learns from shots of pictures"),
        (
            "stats --data-set msvd --recipe demo-again-flickr8k",
            "--data-set: demo-again-flickr8k learns from the pictures of flickr8k alone",
        ),
        ("stats", "holds none of flickr8k_train.tar"),
        ("stats --no-self-critical", "holds none of flickr8k_train.tar"),
        ("stats --data-set msvd --no-self-critical", "AllVideoDescriptions.txt"),
        ("stats --recipe finetune --start a.safetensors --streams demo", "--streams: a.safetensors is fed"),
        ("stats --recipe finetune --start a.safetensors --self-critical", f"finetune {NO_REWARD}"),
        ("stats --recipe finetune --start a.safetensors --no-self-critical", f"finetune {NO_REWARD}"),
        ("stats --recipe finetune --start a.safetensors --teacher g2l", "--teacher: teachers read pictures"),
        ("stats --paper stats", "--paper: whose splits and words a set of videos has; name the set too"),
        ("stats --teacher g2l", f"--teacher: demo {NO_TEACHER}"),
        ("stats --recipe demo-longer --start a.safetensors --teacher g2l", f"demo-longer {NO_TEACHER}"),
        ("refocus --recipe demo-refocus --self-critical", f"--self-critical: demo-refocus {NO_REWARD}"),
        ("refocus --recipe demo-refocus --no-self-critical", f"--no-self-critical: demo-refocus {NO_REWARD}"),
    ],
)
def test_what_would_be_left_unread_is_refused(arguments: str, sentence: str, tmp_path: Path) -> None:
    command = ["train", *arguments.split(), "--data", str(tmp_path), "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "300"})
    assert done.exit_code == 2, done.output
    assert sentence in done.output
    assert not (tmp_path / "run").exists()


def test_what_a_run_reads_is_not_refused() -> None:
    recipes = read_recipes().recipes
    taught, refocus, demo = (recipes[name] for name in ("demo-taught", "demo-refocus", "demo"))
    videos = {"--data-set", "--paper"}
    fixed, own = {"--start", "--teacher", *videos}, {"--features", "--self-critical"}
    for unread, refused in (
        (list_unread_as_paper(find_paper_run("paper-msvd", "stats")), fixed),
        (list_unread_as_paper(find_paper_run("paper-msvd", "g2l")), {*fixed, "--self-critical"}),
        (list_unread_by_embedding(recipes["demo-embedding"]), {*fixed - {"--start", "--data-set"}, *own}),
        (list_unread_on_videos(demo, None), {"--teacher"}),
        (list_unread_on_videos(demo, ALL.start), {"--teacher", "--streams"}),
        (list_unread_on_pictures(taught), {"--paper", "--features"}),
        (list_unread_on_pictures(refocus), {"--paper", "--teacher", *own}),
    ):
        assert unread.keys() & set(ALL.options) == refused


def test_nothing_is_refused_that_was_not_given() -> None:
    every = dict.fromkeys([*ALL.options, "--no-self-critical"], "why")
    TrainOptions().refuse(every)
    for option in ALL.options:
        with pytest.raises(UnreadOption, match=f"{option}: why"):
            ALL.refuse({option: "why"})
    assert TrainOptions(self_critical=False).options == ("--no-self-critical",)


def test_every_option_of_the_command_is_thought_of() -> None:
    asked = {field.alias or name for name, field in TrainOptions.model_fields.items()}
    assert set(inspect.signature(expand_fields(train)).parameters) == ALWAYS_READ | OF_THE_RUN | asked
