"""Reads Flickr8k (Hodosh, Young and Hockenmaier, JAIR 2013): 8,000 pictures with five captions each.

``Flickr8k.token.txt`` has lines ``<file>#<number>`` tab ``<caption>``; ``Flickr_8k.trainImages.txt``,
``.devImages.txt`` and ``.testImages.txt`` list files. Pictures in no list are left out. Or Karpathy's
``dataset_flickr8k.json``.
"""

from collections import defaultdict
from pathlib import Path

from training.datasets.caption_set import CaptionSet, Split, VideoItem, assemble
from training.datasets.data_set import DataSet, PaperProtocol, VocabularyRule, make_splits
from training.datasets.errors import AnnotationsDamaged
from training.datasets.files import AnnotationFile, find_pictures
from training.datasets.published.coco import read_karpathy
from training.datasets.text_files import read_text

CAPTIONS = AnnotationFile(("Flickr8k.token.txt", "dataset_flickr8k.json"), "captions")
NAMES: dict[Split, str] = {"train": "train", "val": "dev", "test": "test"}
LISTS: dict[Split, AnnotationFile] = {
    split: AnnotationFile(
        (f"Flickr_8k.{name}Images.txt", "dataset_flickr8k.json"), f"pictures of the {split} split"
    )
    for split, name in NAMES.items()
}
OBTAIN = (
    "Flickr8k was given by the University of Illinois at Urbana-Champaign for research: put the files "
    "of Flickr8k_text (or Karpathy's dataset_flickr8k.json) and the folder of pictures into the folder."
)


def read(root: Path, protocol: PaperProtocol) -> CaptionSet:
    """Reads the set in a folder. Raises FolderMissing, AnnotationsMissing, AnnotationsDamaged."""
    path, files = CAPTIONS.require(root, OBTAIN), find_pictures(root)
    paths = [path]
    if path.suffix == ".json":
        entries = list(read_karpathy(path, files, OBTAIN))
    else:
        captions = _read_captions(path)
        lists = {split: annotation.require(root, OBTAIN) for split, annotation in LISTS.items()}
        paths += lists.values()
        entries = [
            VideoItem(Path(name).stem, files.find(Path(name).stem), split, tuple(captions.get(name, ())))
            for split, listed in lists.items()
            for name in read_text(listed).split()
        ]
    return assemble(FLICKR8K.name, entries, "{}.jpg".format, protocol.splits, paths)


def _read_captions(path: Path) -> dict[str, list[str]]:
    captions: dict[str, list[str]] = defaultdict(list)
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        name, tab, caption = line.partition("\t")
        if not tab or "#" not in name:
            raise AnnotationsDamaged(f"{path} is not <file>#<number> tab <caption> in line {number}.", OBTAIN)
        captions[name.rpartition("#")[0]].append(caption)
    return captions


FLICKR8K = DataSet(
    name="flickr8k",
    title="Flickr8k",
    annotations=(CAPTIONS, *LISTS.values()),
    media="the pictures (.jpg), in the folder or any folder below it",
    obtain=OBTAIN,
    protocols=(PaperProtocol("karpathy", make_splits(6000, 1000, 1000), VocabularyRule(min_count=5)),),
    read=read,
    source="the four text files themselves; public loaders of Karpathy's file",
)
