"""``python -m training.write_captions --pictures TAR --out FILE``: captions for pictures that have none.

The shipped captioners write them together (models/rivals.py), and what they are sure of becomes a training
set: ``written_train.tar`` and ``written_captions.json`` in a data folder are trained on like the others. Of
held-out pictures those whose best caption has a merit below 0 score 32 (CIDEr-D), the others 77, so those
are left out.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from tqdm import tqdm

from extractors.whole_file import whole_file
from models.checkpoint import load_embedding
from models.decoding import DecodingOptions
from models.members import FUSION, default_members, files
from models.rivals import Candidate, Fusion
from models.service import embedding_path, load_captioner
from models.stream_sets import DEMO_TUNED_STAGES
from training.corpus import read_pictures
from training.feature_cache import PictureNetwork, views_of
from training.meal import Meal
from training.pseudo_video import Sample, batch_of
from training.recipes import DEMO

#: Of a picture's best caption, else it is left out; and how far below it the others may lie.
LEAST_MERIT, BEHIND = 0.0, 0.3
#: Captions a picture, as the sets have that people wrote.
CAPTIONS = 5
GROUP = 40
OPTIONS = DecodingOptions(attention=False, max_length=DEMO.max_length)
PICTURES = (".jpg", ".jpeg", ".png", ".webp")

app = typer.Typer(add_completion=False)


def names_in(archive: Path) -> list[str]:
    """The picture files of a tar or folder, in order."""
    if archive.is_dir():
        names = [path.name for path in archive.iterdir() if path.is_file()]
    else:
        with tarfile.open(archive) as tar:
            names = [Path(member.name).name for member in tar if member.isfile()]
    return sorted(name for name in names if name.lower().endswith(PICTURES))


def sure_of(candidates: Sequence[Candidate]) -> list[str]:
    """The captions to learn from, of candidates in the order of merit; none where the best is doubtful."""
    best = candidates[0].merit
    if best < LEAST_MERIT:
        return []
    return [" ".join(each.words) for each in candidates[:CAPTIONS] if each.merit >= best - BEHIND]


@torch.inference_mode()
def write(
    fusion: Fusion, networks: Sequence[PictureNetwork], archive: Path, names: Sequence[str]
) -> Iterator[tuple[str, list[str]]]:
    """(name, captions to learn from) of every picture."""
    pictures = read_pictures(archive, names)
    while group := list(islice(pictures, GROUP)):
        pixels = np.concatenate([views_of(picture, name, 1) for name, picture in group])
        cells: dict[str, NDArray[np.float16]] = {}
        for network in networks:
            cells |= network.of_pictures(pixels)
        fused = fusion.from_batches(batch_of(_stills(cells, len(group))), OPTIONS)
        for (name, _), found in zip(group, fused, strict=True):
            yield name, sure_of(found.candidates)


def _stills(cells: Mapping[str, NDArray[np.float16]], count: int) -> list[Sample]:
    one = np.ones(1, bool)
    return [Sample({name: values[i : i + 1] for name, values in cells.items()}, one) for i in range(count)]


def document(written: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """COCO's form. A picture's id is its file's stem, without the beginning that all share."""
    names = sorted(name for name, captions in written.items() if captions)
    stems = [Path(name).stem for name in names]
    shared = len(os.path.commonprefix(stems)) if len(names) > 1 else 0  # noqa: RUF071 - of letters
    ids = {name: Path(name).stem[shared:] for name in names}
    captions = [(ids[name], caption) for name in names for caption in written[name]]
    return {
        "images": [{"id": ids[name], "file_name": name, "split": "train"} for name in names],
        "annotations": [{"id": i, "image_id": of, "caption": text} for i, (of, text) in enumerate(captions)],
    }


def _fusion(members: Sequence[str]) -> Fusion:
    path = embedding_path()
    if path is None:
        raise typer.BadParameter("there is no semantic embedding, which choosing among captions needs")
    names = members or [each.name for each in default_members(FUSION, files())]
    return Fusion({name: load_captioner(name).captioner for name in names}, load_embedding(path)[0])


@app.command()
def main(
    pictures: Annotated[Path, typer.Option(help="A tar or a folder of pictures.")],
    out: Annotated[Path, typer.Option(help="The captions' JSON; a run that was stopped goes on.")],
    member: Annotated[
        list[str] | None, typer.Option(help="A captioner that writes, repeated; default: all of fusion's.")
    ] = None,
) -> None:
    """Writes captions of all pictures that the captioners together are sure of."""
    names = names_in(pictures)
    if not names:
        raise typer.BadParameter(f"{pictures} holds no picture ({', '.join(PICTURES)})")
    unfinished = out.with_suffix(".partial.jsonl")
    written = _done(unfinished)
    missing = [name for name in names if name not in written]
    meal = Meal.of(DEMO_TUNED_STAGES, DEMO_TUNED_STAGES.streams)
    networks = [each.network for each in meal.describers]
    with unfinished.open("a", encoding="utf-8") as lines, tqdm(total=len(missing), unit="picture") as bar:
        for name, captions in write(_fusion(member or ()), networks, pictures, missing):
            lines.write(json.dumps([name, captions]) + "\n")
            written[name] = captions
            bar.update()
    made = document(written)
    with whole_file(out) as whole:
        whole.write_text(json.dumps(made), encoding="utf-8")
    unfinished.unlink()
    counts = f"{len(made['annotations'])} captions of {len(made['images'])} of {len(names)} pictures"
    typer.echo(f"{counts}: {out}")


def _done(unfinished: Path) -> dict[str, list[str]]:
    """What a stopped run has written; a line that it was killed in is written again."""
    if not unfinished.exists():
        return {}
    text = unfinished.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    unfinished.write_text(whole, encoding="utf-8")
    return dict(json.loads(line) for line in whole.splitlines())


if __name__ == "__main__":
    app()
