"""Makes a run's tuned network the repository's.

    python -m lab.checkpoints.pack_tuned RUN

RUN/tuned.safetensors is copied to weights/networks, and its sha256 and size go into the manifest. The run's
captioner is left where it is; captioners that read an earlier tuned network are refused from then on.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from extractors.catalog.tuned_pair import TUNED, TUNED_GRID, from_checkpoint
from extractors.files import sha256_of
from extractors.pretrained.checkpoint_file import read_checkpoint
from extractors.pretrained.errors import WeightsError
from extractors.pretrained.manifest import MANIFEST, find_entry
from extractors.pretrained.manifest import read_manifest as entries
from extractors.pretrained.weights_folder import write_weights
from models.checkpoint import CheckpointError, read_card
from training.sessions.tuning import CHANGES

#: What the manifest has of a file that is packed anew, in this order below its path.
FACTS = ("sha256", "bytes")


def pack(run: Path, manifest: Path = MANIFEST) -> Path:
    """Copies the network of a run, once it can be built, and notes it; returns where it now lies.

    Raises CheckpointError where the run's captioner was not trained with these very weights, WeightsError.
    """
    changes, best = run / CHANGES, run / "best.safetensors"
    digest = sha256_of(changes)
    spec = read_card(best).streams.get(TUNED_GRID)
    if spec is None or spec.weights_sha256 != digest:
        raise CheckpointError(f"{best} was not trained with {changes}; let the run go on, which writes both.")
    from_checkpoint(read_checkpoint(changes))
    place = manifest.parent / find_entry(TUNED, manifest).path
    with write_weights(place) as unfinished:
        shutil.copyfile(changes, unfinished)
    text = note_facts(manifest.read_text(encoding="utf-8"), digest, place.stat().st_size)
    with write_weights(manifest) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
    entries.cache_clear()  # this process has read what it said before
    return place


def note_facts(text: str, sha256: str, size: int) -> str:
    """Notes sha256 and size in the tuned network's table, in place of what it said before.

    Args:
        text: the manifest.
        sha256: of the network's file.
        size: of the file, in bytes.
    """
    before, head, rest = text.partition(f"[{TUNED}]\n")
    table, end, after = rest.partition("\n[")
    lines = [line for line in table.splitlines(keepends=True) if line.partition(" =")[0] not in FACTS]
    facts = f'sha256 = "{sha256}"\nbytes = {size}\n'
    table = re.sub(r"(?m)^path = .*\n", lambda found: found[0] + facts, "".join(lines), count=1)
    return before + head + table + end + after


def main(arguments: list[str]) -> int:
    """Packs the run that is named; returns 0, or 1 where it could not be packed, or 2 for wrong usage."""
    if len(arguments) != 1:
        print("usage: python -m lab.checkpoints.pack_tuned RUN", file=sys.stderr)
        return 2
    try:
        print(pack(Path(arguments[0])))
    except (CheckpointError, WeightsError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
