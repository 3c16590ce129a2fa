"""What the picture network's precision costs in captions: bf16 on OpenVINO against fp32 on torch.

    python -m benchmarks.precision --images DATA/flickr8k_val.tar --captions DATA/flickr8k_captions.json

Prints CIDEr-D of both, their difference with a paired bootstrap interval, and the share of identical
captions. Without pictures it says so and ends well, so that ``make bench`` can run everywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from extractors.catalog.efficientnet_lite2 import EfficientNetLite2
from extractors.extractor import create
from models.checkpoint import load_captioner
from models.combining.caption_writers import SingleWriter
from models.decoding.decode import DecodingOptions
from models.feature_sources.stream_checks import select_stream_set
from training.evaluation.captioning import CaptioningRun
from training.scores.bootstrap import compare
from training.scores.metrics import evaluate


def main(
    images: Annotated[Path | None, typer.Option(help="Tar or folder of pictures.")] = None,
    captions: Annotated[Path | None, typer.Option(help="Their captions.")] = None,
    split: str = "val",
    captioner: str = "stats",
    limit: int | None = None,
) -> None:
    """Caption the same pictures with both engines and compare."""
    if images is None or captions is None:
        typer.echo("not run: give --images and --captions (docs/training.md)")
        return
    checkpoint, options = load_captioner(captioner), DecodingOptions(attention=False)
    [network] = select_stream_set(checkpoint.card).extractors
    networks = {"fast": create(network), "exact": create(network, engine="torch", precision="fp32")}
    reports, texts = {}, {}
    for name, extractor in networks.items():
        if not isinstance(extractor, EfficientNetLite2):
            raise typer.BadParameter(f"{captioner} looks at video ({network}), and these are pictures")
        evaluator = CaptioningRun(SingleWriter(checkpoint), extractor, options)
        captioned = evaluator.caption_pictures(images, captions, split, limit)
        texts[name] = captioned.hypotheses
        reports[name] = evaluate(captioned.hypotheses, captioned.references, ("cider",))
        score = reports[name].metrics["cider"].corpus
        typer.echo(
            f"{extractor.spec.engine} {extractor.spec.precision}: CIDEr-D {score:.2f}, n = {reports[name].n}"
        )
    gap = compare(reports["fast"].metrics["cider"], reports["exact"].metrics["cider"])
    low, high = gap.interval
    same = sum(texts["fast"][key] == texts["exact"][key] for key in texts["fast"]) / len(texts["fast"])
    typer.echo(f"difference {gap.difference:+.2f} ({low:+.2f} to {high:+.2f}); identical captions {same:.1%}")


if __name__ == "__main__":
    typer.run(main)
