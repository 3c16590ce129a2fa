"""What do bars cost a captioner, and does leaving them out give its captions back?

    python -m benchmarks.bars FOLDER [--captioner NAME] [--limit 70]

Of each clip in FOLDER (with its captions.json: file, captions) the middle of 9:16 is cut out as a phone would
have filmed it, and written again within black bars of 16:9. Three times it is captioned: alone, with its bars
kept, and with its bars left out. What people wrote is of the whole clip, so that the first row is what can be
hoped for.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import av
import numpy as np
import typer

from app.jobs.options import CaptionOptions
from app.pipeline.caption_files import caption_videos
from app.pipeline.engine import Engine
from app.settings import Settings
from training.scores.metrics import evaluate
from training.scores.sentence_vectors import SentenceEncoder, compare_sentences

HEIGHT = 288  #: of what is written; even, and so are widths
UPRIGHT, WIDE = 162, 512


def write_upright(clip: Path, alone: Path, barred: Path) -> bool:
    """Writes the middle of a clip as an upright film, and the same within bars; False without a frame."""
    with av.open(str(clip)) as source, av.open(str(alone), "w") as one, av.open(str(barred), "w") as other:
        track = source.streams.video[0]
        rate = min(track.average_rate or 25, 30)
        outs: list[tuple[Any, Any]] = []
        for out, width in ((one, UPRIGHT), (other, WIDE)):
            stream: Any = out.add_stream("libx264", rate=rate, options={"crf": "23", "preset": "veryfast"})
            stream.width, stream.height, stream.pix_fmt = width, HEIGHT, "yuv420p"
            outs.append((out, stream))
        count = 0
        for frame in source.decode(track):
            whole = frame.to_ndarray(format="rgb24")
            for (out, stream), pixels in zip(outs, _cut(whole), strict=True):
                out.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
            count += 1
        for out, stream in outs:
            out.mux(stream.encode())
    return count > 0


def _cut(whole: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    height, width = whole.shape[:2]
    part = min(width, round(height * UPRIGHT / HEIGHT))
    left = (width - part) // 2
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(whole[:, left : left + part]), format="rgb24")
    upright = frame.to_ndarray(width=UPRIGHT, height=HEIGHT, format="rgb24")
    barred = np.zeros((HEIGHT, WIDE, 3), np.uint8)
    barred[:, (WIDE - UPRIGHT) // 2 : (WIDE + UPRIGHT) // 2] = upright
    return upright, barred


def main(
    folder: Annotated[Path, typer.Argument(help="Clips, with captions.json.")],
    captioner: Annotated[str | None, typer.Option(help="By default the service's.")] = None,
    limit: Annotated[int, typer.Option(help="The first so many clips.")] = 70,
) -> None:
    """Print a row for each way, and how often its caption is that of the film alone."""
    references = {
        each["file"]: each["captions"] for each in json.loads((folder / "captions.json").read_text())
    }
    files = [folder / name for name in list(references)[:limit] if (folder / name).is_file()]
    engine = Engine(settings := Settings())
    ways: dict[str, dict[str, str]] = {"alone": {}, "bars kept": {}, "bars left out": {}}
    cropped = 0
    with tempfile.TemporaryDirectory() as scratch:
        for file in files:
            alone, barred = Path(scratch, "alone.mp4"), Path(scratch, "barred.mp4")
            if not write_upright(file, alone, barred):
                continue
            for way, path, bars in (
                ("alone", alone, "keep"),
                ("bars kept", barred, "keep"),
                ("bars left out", barred, "leave_out"),
            ):
                options = CaptionOptions.model_validate(
                    {"captioner": captioner, "attention": False, "bars": bars}
                )
                (outcome,) = caption_videos([path], options, settings, engine)
                if outcome.error is not None:
                    raise outcome.error
                ways[way][file.name] = outcome.answer.caption or ""
                media = outcome.answer.media
                cropped += way == "bars left out" and media is not None and media.picture is not None
            print(f"{file.name}: {' | '.join(of_way[file.name] for of_way in ways.values())}", flush=True)
    _print_table(ways, {name: references[name] for name in ways["alone"]}, cropped)


def _print_table(
    ways: Mapping[str, Mapping[str, str]], references: Mapping[str, list[str]], cropped: int
) -> None:
    encoder, names = SentenceEncoder.load(), list(references)
    print(f"\nbars found in {cropped} of {len(names)}\n")
    print("| | similarity to people's | CIDEr-D | similarity to the film alone | the same caption |")
    print("| --- | --- | --- | --- | --- |")
    for way, captions in ways.items():
        scores = evaluate(captions, references, ["cider", "similarity"], resamples=1).metrics
        like = compare_sentences(
            encoder, [captions[name] for name in names], [[ways["alone"][name]] for name in names]
        )
        same = sum(captions[name] == ways["alone"][name] for name in names)
        row = (scores["similarity"].corpus, scores["cider"].corpus, 100 * float(np.mean(like)))
        print(f"| {way} | {' | '.join(f'{value:.1f}' for value in row)} | {same} |")


if __name__ == "__main__":
    typer.run(main)
