"""SPICE (Anderson et al. 2016), by its jar: F-measure over objects, attributes and relations of captions.

The jar comes with pycocoevalcap; the parser it calls, Stanford CoreNLP 3.6.0 with its models (400 MB), does
not and is fetched by whoever wants the score. It reads captions from a file and writes scores into another,
both in a folder that is removed afterwards. Nothing is cached: its cache is native code of 2016.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from training.java import Java, JavaError, scorer_file

JAR: Final = "spice-1.0.jar"
PARSER: Final = ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar")
#: Seconds to load the parser, and for one caption or reference; a parse takes some hundredths.
LOADING: Final = 300.0
PARSING: Final = 1.0


def missing_jars(folder: Path | None = None) -> tuple[str, ...]:
    """Names of the parser's jars that are not there."""
    folder = folder or scorer_file("spice")
    return tuple(name for name in PARSER if not (folder / "lib" / name).is_file())


def spice(
    java: Java,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    folder: Path | None = None,
    seconds: float | None = None,
) -> NDArray[np.float64]:
    """(captions,) F of each caption against its references, from 0 to 1.

    Raises JavaError where a jar is missing, Java fails, or no answer comes within ``seconds``.
    """
    folder = folder or scorer_file("spice")
    if missing := missing_jars(folder):
        raise JavaError(
            f"{' and '.join(missing)} of stanford-corenlp-full-2015-12-09 must lie in {folder / 'lib'}."
        )
    texts = len(hypotheses) + sum(map(len, references))
    with tempfile.TemporaryDirectory() as work:
        asked, answered = Path(work, "captions.json"), Path(work, "scores.json")
        asked.write_text(json.dumps(_document(hypotheses, references)), encoding="utf-8")
        arguments = ["-jar", str(folder / JAR), str(asked), "-out", str(answered), "-silent"]
        java.run(arguments, "", seconds or LOADING + PARSING * texts)
        return _scores(answered, len(hypotheses))


def _document(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    pairs = zip(hypotheses, references, strict=True)
    return [
        {"image_id": i, "test": hypothesis, "refs": list(captions)}
        for i, (hypothesis, captions) in enumerate(pairs)
    ]


def _scores(path: Path, count: int) -> NDArray[np.float64]:
    """The answer's scores in the order of the question; a caption without any proposition has 0."""
    try:
        answers = {entry["image_id"]: entry["scores"]["All"]["f"] for entry in json.loads(path.read_text())}
        scores = np.array([answers[i] for i in range(count)], np.float64)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise JavaError(f"SPICE's answer could not be read: {error!r}.") from error
    return np.nan_to_num(scores)
