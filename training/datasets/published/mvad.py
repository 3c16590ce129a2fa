"""Reads M-VAD, the Montreal Video Annotation Dataset (Torabi et al., 2015): clips of 92 films.

A clip's caption is what a narrator says for the blind.

Clips lie in a folder for each film and are called ``<film>_DVS<number>.avi``. Captions come as lists
``corpus_M-VAD_train.txt``, ``…_val.txt`` and ``…_test.txt`` (a clip's name, a tab, a caption a line), or as
one subtitle file a film, ``<film>.srt``, in the folders ``train``, ``val`` and ``test``: whole films are in
one split. Of a subtitle file, entry n is clip DVS n; where that clip is not there and the whole film is
(``<film>.avi`` or another suffix), the entry's seconds of the film are meant.

The folders' names of the subtitle form are ours: no description of the original archive's could be found.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from training.datasets.caption_set import SPLITS, CaptionSet, Split, VideoItem, assemble
from training.datasets.data_set import DataSet, PaperProtocol, VocabularyRule, make_splits
from training.datasets.errors import AnnotationsDamaged, AnnotationsMissing
from training.datasets.files import AnnotationFile, MediaFiles, MediaPart
from training.datasets.text_files import read_text

LISTS: dict[Split, AnnotationFile] = {
    split: AnnotationFile(
        (f"corpus_M-VAD_{split}.txt",), f"captions of the {split} split, or {split}/<film>.srt"
    )
    for split in SPLITS
}
OBTAIN = (
    "M-VAD is given by Mila, the Quebec AI institute, to researchers who ask for it: put the lists "
    "corpus_M-VAD_<split>.txt, or the films' .srt files in the folders train, val and test, beside the "
    "films' folders of clips."
)
#: "00:01:02,500 --> 00:01:05,000"
TIMES = re.compile(r"(\d+):(\d+):(\d+)[,.](\d+)\s*-->\s*(\d+):(\d+):(\d+)[,.](\d+)")


def read(root: Path, protocol: PaperProtocol) -> CaptionSet:
    """Reads the set in a folder. Raises FolderMissing, AnnotationsMissing, AnnotationsDamaged."""
    lists = {split: annotation.find(root) for split, annotation in LISTS.items()}
    subtitles = {split: sorted((root / split).glob("*.srt")) for split in SPLITS}
    if not any(lists.values()) and not any(subtitles.values()):
        LISTS["train"].require(root, OBTAIN)
    files = MediaFiles.find_below(root)
    entries: list[VideoItem] = []
    annotations: list[Path] = []
    for split in SPLITS:
        listed = lists[split]
        sources = [listed] if listed is not None else subtitles[split]
        annotations += sources
        for path in sources:
            entries += (
                _read_list(path, split, files) if path is listed else _read_subtitles(path, split, files)
            )
    if not entries:
        raise AnnotationsMissing(f"{root} has no captions in its lists or subtitles.", OBTAIN)
    return assemble(MVAD.name, entries, "{}.avi".format, protocol.splits, annotations)


def _read_list(path: Path, split: Split, files: MediaFiles) -> Iterator[VideoItem]:
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        name, tab, caption = line.partition("\t")
        if not tab:
            raise AnnotationsDamaged(f"{path} has no tab in line {number}: {line[:60]!r}.", OBTAIN)
        stem = Path(name.strip()).stem
        yield VideoItem(stem, files.find(stem), split, (caption,))


def _read_subtitles(path: Path, split: Split, files: MediaFiles) -> Iterator[VideoItem]:
    film = path.stem
    blocks = re.split(r"\n[ \t]*\n+", read_text(path).replace("\r\n", "\n").strip())
    for block in blocks:
        lines = block.strip().split("\n")
        times = TIMES.search(lines[1]) if len(lines) > 1 else None
        if times is None or not lines[0].strip().isdecimal():
            raise AnnotationsDamaged(
                f"{path} has a subtitle without number or times: {block[:60]!r}.", OBTAIN
            )
        name = f"{film}_DVS{int(lines[0])}"
        clip = _find_clip(
            name, film, _parse_seconds(times.groups()[:4]), _parse_seconds(times.groups()[4:]), files
        )
        yield VideoItem(name, clip.path, split, (" ".join(lines[2:]),), clip.start, clip.end)


def _find_clip(name: str, film: str, start: float, end: float, files: MediaFiles) -> MediaPart:
    path, whole = files.find(name), files.find(film)
    if path is not None or whole is None or end <= start:
        return MediaPart(path)
    return MediaPart(whole, start, end)


def _parse_seconds(parts: tuple[str, ...]) -> float:
    hours, minutes, seconds, fraction = parts
    return int(hours) * 3600 + int(minutes) * 60 + float(f"{seconds}.{fraction}")


MVAD = DataSet(
    name="mvad",
    title="M-VAD",
    annotations=tuple(LISTS.values()),
    media="<film>/<film>_DVS<number>.avi, or the whole <film>.avi",
    obtain=OBTAIN,
    protocols=(
        PaperProtocol(
            "dual_afr", make_splits(36920, 4950, 4717), VocabularyRule(whole_set=True, printed=13276)
        ),
    ),
    read=read,
    source="aimagelab/mvad-names-dataset (folders and clips); public loaders of corpus_M-VAD_train.txt",
)
