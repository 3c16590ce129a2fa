"""Lists the studies: ``python -m lab``. Each is imported when it is called."""

from __future__ import annotations

from app.cli.commands import make_program

PROGRAM = "python -m lab"
#: Study → its module below lab, in which a function has the study's name; and its help.
STUDIES = {
    "ablate": ("ablations.command", "Train and read the papers' ablations, one row after another."),
    "average": ("checkpoints.average_weights", "Average checkpoints to one; its card names all runs."),
    "compare": (
        "checkpoints.compare_checkpoints",
        "Compare checkpoints on held-out pictures, each with the first one.",
    ),
    "confidence": ("labelled.confidence", "Fit how sure a labelled captioner is of its captions."),
    "evidence": (
        "evidence.command",
        "Measure evidence beside attention: moments, places, what words lose, and cost.",
    ),
    "extend": ("checkpoints.extend_inputs", "Extend a checkpoint by the inputs of one that went on from it."),
    "judge": ("judging.command", "Mark captions of clips on a page, and print each captioner's marks."),
    "sweep": (
        "sweep.command",
        "Train with several values and seeds: one table of means and standard deviations.",
    ),
    "train": (
        "pictures.command",
        "Train a captioner, or the embedding, on pictures: the demo's recipes, and all of reelword train.",
    ),
    "labelled": ("labelled.fit", "Fit the captioner that knows labels, and give it its sentences."),
}

lab = make_program("lab", STUDIES, "Measure captioners and their attention; average checkpoints.")


@lab.callback()
def take_no_options() -> None:
    """Take the options that stand before a study: none."""


if __name__ == "__main__":
    lab(prog_name=PROGRAM)
