"""Copies a few golden cases into the repository, with fewer values of each output.

python tests/golden/carry_networks.py GOLDEN_FOLDER CASE…
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent / "networks"
#: Values kept of an output at the most.
KEPT = 1500


def carry(golden: Path, names: list[str]) -> None:
    manifest = json.loads((golden / "manifest.json").read_text("utf-8"))
    mistakes = json.loads((golden / "sensitivity.json").read_text("utf-8"))
    for folder in ("npz", "params"):
        shutil.rmtree(HERE / folder, ignore_errors=True)
        (HERE / folder).mkdir(parents=True)
    manifest["cases"] = [_carried(golden, case) for case in manifest["cases"] if case["case"] in names]
    _write("manifest.json", manifest)
    _write("sensitivity.json", {name: mistakes[name] for name in names if name in mistakes})


def _carried(golden: Path, case: dict[str, Any]) -> dict[str, Any]:
    """The case with every so many of its stored values; shapes and largest values stay those of the whole."""
    arrays = {}
    with np.load(golden / case["file"]) as file:
        for output in case["outputs"].values():
            stored = file[output["key"]]
            thinner = -(-stored.size // KEPT)
            if thinner > 1:
                stored = stored.reshape(-1)[::thinner]
                output["step"] *= thinner
            arrays[output["key"]] = stored
    np.savez_compressed(HERE / case["file"], **arrays)
    if "parameters" in case:
        shutil.copyfile(golden / case["parameters"], HERE / case["parameters"])
    return case


def _write(name: str, document: object) -> None:
    (HERE / name).write_text(json.dumps(document, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    carry(Path(sys.argv[1]), sys.argv[2:])
