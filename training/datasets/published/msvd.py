"""Reads MSVD, also YouTube2Text (Chen and Dolan, ACL 2011): 1,970 clips with about 40 English captions each.

Clips are called ``<YouTube id>_<start>_<end>``, seconds of the YouTube video; the files are cut already.
Captions come as ``AllVideoDescriptions.txt`` (comments begin with #, then a clip's name, a space and a
caption a line) or as the corpus' CSV with the columns VideoID, Start, End, Language and Description in any
language and with 2,089 clips.

All papers split 1,200 / 100 / 670 in index order. The index is that of ``youtube_mapping.txt`` ("<clip>
vid1" to "vid1970"), and that is the order of the clips' names by their bytes (checked on the copy in
yaoli/arctic-capgen-vid, all 1,970), so that it need not be there where the captions name 1,970 clips.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from training.datasets.caption_set import CaptionSet, Notice, Split, VideoItem, assemble
from training.datasets.data_set import DataSet, PaperProtocol, VocabularyRule, make_splits
from training.datasets.errors import AnnotationsDamaged
from training.datasets.files import AnnotationFile, MediaFiles
from training.datasets.text_files import read_table, read_text

CAPTIONS = AnnotationFile(
    ("AllVideoDescriptions.txt", "MSR Video Description Corpus.csv", "video_corpus.csv"), "English captions"
)
MAPPING = AnnotationFile(("youtube_mapping.txt",), "the clips' index", needed=False)
OBTAIN = (
    "MSVD is the Microsoft Research Video Description Corpus: the captions are at Microsoft, captions "
    "and clips at the authors' page of the University of Texas at Austin (clamp/videoDescription). Put "
    "AllVideoDescriptions.txt and the folder YouTubeClips into the folder."
)
CLIPS = 1970
COLUMNS = {
    "video": ("videoid",),
    "start": ("start",),
    "end": ("end",),
    "language": ("language",),
    "caption": ("description",),
}


def read(root: Path, protocol: PaperProtocol) -> CaptionSet:
    """Reads the set in a folder. Raises FolderMissing, AnnotationsMissing, AnnotationsDamaged."""
    path = CAPTIONS.require(root, OBTAIN)
    captions, notices = _read_table_captions(path) if path.suffix == ".csv" else (_read_captions(path), [])
    files = MediaFiles.find_below(root)
    order = _order_clips(root, captions, files, notices)
    entries = []
    for number, name in order:
        clip = files.find_clip(name)
        entries.append(
            VideoItem(name, clip.path, _split(number), tuple(captions.get(name, ())), clip.start, clip.end)
        )
    return assemble(MSVD.name, entries, "{}.avi".format, protocol.splits, [path], notices)


def _split(number: int) -> Split:
    return "train" if number <= 1200 else "val" if number <= 1300 else "test"


def _order_clips(
    root: Path, captions: Mapping[str, Sequence[str]], files: MediaFiles, notices: list[Notice]
) -> list[tuple[int, str]]:
    """Returns the clips by their index, which begins at 1."""
    mapping = MAPPING.find(root)
    if mapping is not None:
        return _read_mapping(mapping)
    names = sorted(captions, key=str.encode)
    if len(names) > CLIPS:  # the CSV captions 119 clips that are not in the set
        names = [name for name in names if files.find_clip(name).path is not None]
    if len(names) != CLIPS:
        notices.append(
            Notice(
                "other_index",
                f"{len(names)} clips are known and not {CLIPS}: without {MAPPING.names[0]} the split is not "
                "the papers', and the first 1,200 by name are for training. Lines `<clip> vid<number>` in "
                "it split a part of the set: 1 to 1200 train, to 1300 validate, the others test.",
            )
        )
    return list(enumerate(names, 1))


def _read_mapping(path: Path) -> list[tuple[int, str]]:
    """Reads the clips of ``<clip> vidN`` with N, in its order. Raises AnnotationsDamaged."""
    numbered = {}
    for line in read_text(path).splitlines():
        clip, _, number = line.strip().rpartition(" vid")
        if line.strip() and not (clip and number.isdecimal()):
            raise AnnotationsDamaged(
                f'{path} has the line {line.strip()!r}, not "<clip> vid<number>".', OBTAIN
            )
        if clip:
            numbered[int(number)] = clip
    return sorted(numbered.items())


def _read_captions(path: Path) -> dict[str, list[str]]:
    captions: dict[str, list[str]] = defaultdict(list)
    for line in read_text(path).splitlines():
        name, _, caption = line.partition(" ")
        if name and not name.startswith("#"):
            captions[name].append(caption)
    return captions


def _read_table_captions(path: Path) -> tuple[dict[str, list[str]], list[Notice]]:
    rows, notices = read_table(path, COLUMNS, {}, OBTAIN, strict=False)
    captions: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row["language"] == "English":
            captions[f"{row['video']}_{row['start']}_{row['end']}"].append(row["caption"])
    return captions, notices


MSVD = DataSet(
    name="msvd",
    title="MSVD (YouTube2Text)",
    annotations=(CAPTIONS, MAPPING),
    media="<YouTube id>_<start>_<end>.avi, in the folder or any folder below it (YouTubeClips)",
    obtain=OBTAIN,
    protocols=(
        PaperProtocol("stats", make_splits(1200, 100, 670), VocabularyRule(whole_set=True, printed=13010)),
        PaperProtocol("g2l", make_splits(1200, 100, 670), VocabularyRule(min_count=2, printed=3468)),
        PaperProtocol("refocus", make_splits(1200, 100, 670), VocabularyRule(min_count=3, max_words=15)),
        PaperProtocol("dual_afr", make_splits(1200, 100, 670), VocabularyRule(whole_set=True, printed=12594)),
    ),
    read=read,
    source="yaoli/arctic-capgen-vid (youtube_mapping.txt); public loaders of both caption files",
)
