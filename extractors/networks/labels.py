"""Names the classes of a network's logits: the lists of ``class_names``, in the order of each data set."""

from pathlib import Path


def _read_names(data_set: str) -> tuple[str, ...]:
    file = Path(__file__).parent / "class_names" / f"{data_set}.txt"
    return tuple(file.read_text(encoding="utf-8").splitlines())


UNUSED = "N/A"
#: COCO's classes (Lin et al., 2014, arXiv:1405.0312): column k is the class of number k + 1; ten numbers name
#: nothing.
COCO_90: tuple[str, ...] = _read_names("coco_90")
#: The same without the ten: detectron2's order.
COCO_80: tuple[str, ...] = tuple(name for name in COCO_90 if name != UNUSED)

#: Kinetics-400, in the order of the alphabet, as DeepMind's I3D and all later networks have it.
KINETICS_400: tuple[str, ...] = _read_names("kinetics_400")
#: ImageNet's 1000 of ILSVRC 2012, in the order of its synsets.
IMAGENET: tuple[str, ...] = _read_names("imagenet")


def find_labels(classes: int) -> tuple[str, ...] | None:
    """Finds the names of so many classes; None where they are none of the known sets.

    1001 classes are ImageNet's with the background before them, as TensorFlow's networks have them.
    """
    label_sets = (KINETICS_400, IMAGENET, ("background", *IMAGENET))
    return {len(names): names for names in label_sets}.get(classes)
