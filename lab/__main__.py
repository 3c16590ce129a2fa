"""Lists the studies: ``python -m lab``. Each is imported when it is called."""

from __future__ import annotations

from app.cli.commands import make_program

PROGRAM = "python -m lab"
STUDIES = {
    "ablate": ("ablations.command", "Train and read the papers' ablations, one row after another."),
    "judge": ("judging.command", "Mark captions of clips on a page, and print each captioner's marks."),
}

lab = make_program("lab", STUDIES, "Measure captioners: ablations, marks by eye.")


@lab.callback()
def take_no_options() -> None:
    """Take the options that stand before a study: none."""


if __name__ == "__main__":
    lab(prog_name=PROGRAM)
