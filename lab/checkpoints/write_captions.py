"""Writes captions for pictures that have none.

    python -m lab.checkpoints.write_captions --pictures TAR --out FILE

The shipped captioners write them together (models/combining/reranking.py), and what they are sure of becomes
a training set: ``written_train.tar`` and ``written_captions.json`` in a data folder are trained on like the
others. What they doubt is left out: held-out pictures whose best caption has a merit of 0 or more score 77
(CIDEr-D), the others 32.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from tqdm import tqdm

from extractors.files import atomic_write, sha256_of
from models.captioners.registry import UnknownCaptioner
from models.checkpoint import CheckpointError, find_embedding, load_captioner, load_embedding
from models.combining.members import FUSION, choose_members, describe_files
from models.combining.reranking import Candidate, Reranker
from models.decoding.decode import DecodingOptions
from models.feature_sources.stream_checks import StreamMismatch
from models.stream_set import DEMO_TUNED_STAGES
from training.batches.archives import CorpusError, read_pictures
from training.batches.picture_features import PictureNetwork, cut_views
from training.batches.picture_inputs import PictureInputs
from training.batches.pseudo_video import Sample, stack_samples
from training.recipes.demo_recipes import DEMO

#: Of a picture's best caption, else it is left out; and how far below it the others may lie.
LEAST_MERIT, BEHIND = 0.0, 0.3
#: Captions a picture, as the sets have that people wrote.
CAPTIONS = 5
GROUP = 40
OPTIONS = DecodingOptions(attention=False, max_length=DEMO.max_length)
PICTURES = (".jpg", ".jpeg", ".png", ".webp")

app = typer.Typer(add_completion=False)


def list_pictures(archive: Path) -> list[str]:
    """Lists the picture files of a tar, or of a folder without those below it, in order.

    Raises CorpusError for none, and where two have one name, since training finds pictures by it.
    """
    if archive.is_dir():
        names = [path.name for path in archive.iterdir() if path.is_file()]
    else:
        with tarfile.open(archive) as tar:
            names = [Path(member.name).name for member in tar if member.isfile()]
    pictures = sorted(name for name in names if name.lower().endswith(PICTURES))
    if not pictures:
        raise CorpusError(f"{archive} holds no picture ({', '.join(PICTURES)})")
    if twice := [name for name, next_name in pairwise(pictures) if name == next_name]:
        raise CorpusError(f"{archive} holds two pictures called {twice[0]}: give each a name of its own")
    return pictures


def choose_sure_captions(candidates: Sequence[Candidate]) -> list[str]:
    """Chooses the captions to learn from, of candidates by merit; none where the best is doubtful.

    What was cut at the greatest length is none: its end would be learned.
    """
    best = candidates[0].merit
    if best < LEAST_MERIT:
        return []
    whole = [each for each in candidates if each.words and each.hypothesis.finished]
    return [" ".join(each.words) for each in whole[:CAPTIONS] if each.merit >= best - BEHIND]


@torch.inference_mode()
def write(
    fusion: Reranker, networks: Sequence[PictureNetwork], archive: Path, names: Sequence[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yields (name, captions to learn from) of every picture.

    Args:
        fusion: writes the captions.
        networks: describe the pictures.
        archive: a tar or a folder of pictures.
        names: the pictures'.
    """
    pictures = read_pictures(archive, names)
    while group := list(islice(pictures, GROUP)):
        pixels = np.concatenate([cut_views(picture, name, 1) for name, picture in group])
        cells: dict[str, NDArray[np.float16]] = {}
        for network in networks:
            cells |= network.of_pictures(pixels)
        fused = fusion.caption_batches(stack_samples(_make_stills(cells, len(group))), OPTIONS)
        for (name, _), found in zip(group, fused, strict=True):
            yield name, choose_sure_captions(found.candidates)


def _make_stills(cells: Mapping[str, NDArray[np.float16]], count: int) -> list[Sample]:
    one = np.ones(1, bool)
    return [Sample({name: values[i : i + 1] for name, values in cells.items()}, one) for i in range(count)]


def make_document(written: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Makes COCO's form of those that have captions. A picture's id is its place among all names in order."""
    ids = {name: str(i) for i, name in enumerate(sorted(written)) if written[name]}
    captions = [(of, caption) for name, of in ids.items() for caption in written[name]]
    return {
        "images": [{"id": of, "file_name": name, "split": "train"} for name, of in ids.items()],
        "annotations": [{"id": i, "image_id": of, "caption": text} for i, (of, text) in enumerate(captions)],
    }


def load_writers(named: Sequence[str]) -> tuple[Reranker, PictureInputs, str]:
    """Loads the members that write, what feeds them, and a digest of their weights.

    Raises UnknownCaptioner, CheckpointError (for a missing embedding too), and StreamMismatch for a member
    that is fed otherwise.
    """
    path = find_embedding()
    if path is None:
        raise CheckpointError("there is no semantic embedding, which choosing among captions needs")
    names = named or [each.name for each in choose_members(FUSION, describe_files())]
    loaded = {name: load_captioner(name) for name in names}
    embedding, card = load_embedding(path)
    cards = [*(each.card for each in loaded.values()), card]
    inputs = PictureInputs.build(DEMO_TUNED_STAGES, DEMO_TUNED_STAGES.streams, cards)
    digests = "".join(each.sha256 for each in loaded.values()) + sha256_of(path)
    return Reranker({name: each.captioner for name, each in loaded.items()}, embedding), inputs, digests


@app.command()
def main(
    pictures: Annotated[Path, typer.Option(help="A tar or a folder of pictures.")],
    out: Annotated[Path, typer.Option(help="The captions' JSON; a run that was stopped goes on.")],
    member: Annotated[
        list[str] | None, typer.Option(help="A captioner that writes, repeated; default: all of fusion's.")
    ] = None,
) -> None:
    """Writes captions of all pictures that the captioners together are sure of."""
    try:
        names = list_pictures(pictures)
        fusion, inputs, digests = load_writers(member or ())
    except (CorpusError, CheckpointError, UnknownCaptioner, StreamMismatch) as error:
        raise typer.BadParameter(str(error)) from error
    unfinished = _name_unfinished(out, names, digests)
    written = _read_done(unfinished)
    missing = [name for name in names if name not in written]
    networks = [each.network for each in inputs.describers]
    with unfinished.open("a", encoding="utf-8") as lines, tqdm(total=len(missing), unit="picture") as bar:
        for name, captions in write(fusion, networks, pictures, missing):
            lines.write(json.dumps([name, captions]) + "\n")
            written[name] = captions
            bar.update()
    _finish(make_document(written), out, len(names))
    unfinished.unlink()


def _finish(built: dict[str, Any], out: Path, count: int) -> None:
    """Writes what was made, unless nothing was: an empty set would stop every training run on its folder."""
    if not built["images"]:
        typer.echo(f"the captioners are sure of none of {count} pictures; nothing was written", err=True)
        raise typer.Exit(1)
    with atomic_write(out) as whole:
        whole.write_text(json.dumps(built), encoding="utf-8")
    typer.echo(f"{len(built['annotations'])} captions of {len(built['images'])} of {count} pictures: {out}")


def _name_unfinished(out: Path, names: Sequence[str], digests: str) -> Path:
    """Returns where lines are kept: another file for other pictures or other captioners."""
    key = hashlib.sha256(json.dumps([names, digests]).encode()).hexdigest()[:16]
    return out.with_suffix(f".{key}.jsonl")


def _read_done(unfinished: Path) -> dict[str, list[str]]:
    """Reads what a stopped run has written; a line that it was killed in is written again."""
    if not unfinished.exists():
        return {}
    text = unfinished.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    unfinished.write_text(whole, encoding="utf-8")
    return dict(json.loads(line) for line in whole.splitlines())


if __name__ == "__main__":
    app()
