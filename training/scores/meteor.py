"""Runs METEOR 1.5 for English from its jar, and keeps it running: its tables take ten seconds to load.

Denkowski & Lavie, "Meteor Universal" (2014). The jar aligns a caption with each reference and answers one
line of 23 counts for the best of them. What follows from the counts, the score of one caption or of a
corpus, is ten lines of arithmetic and done here, so that a bootstrap can pool them in numpy.

The pipe is read by a thread of its own with a limit on every wait; captions never hold what the protocol
takes for a separator; the process ends with this object, is waited for, and also ends if we are killed.
"""

import queue
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO, Final, Self

import numpy as np
import numpy.typing as npt

from training.scores.java import Java, JavaError, find_cause, find_scorer_file, make_silence_error

#: One answer: pairs for caption and reference, but for the chunks. Matches are content and function words
#: (pairs of pairs) of four matchers.
COUNTS: Final = 23
LENGTHS, FUNCTION_WORDS, MATCHES = slice(0, 2), slice(2, 4), slice(4, 20)
CHUNKS, MATCHED = 20, slice(21, 23)

#: Weights of METEOR's English task: precision against recall, fragmentation's power and share, content words.
ALPHA, BETA, GAMMA, DELTA = 0.85, 0.20, 0.60, 0.75
#: Worth of a match: exact, stem, synonym, paraphrase.
MATCHERS: Final = np.array([1.0, 0.6, 0.8, 0.6])

#: Seconds until the first answer (ten on an idle core: it loads the tables) and for each one after it.
START_SECONDS: Final = 180.0
ANSWER_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 2.0


class Meteor:
    """A running METEOR; a context manager. One thread at a time."""

    def __init__(
        self, java: Java, start_seconds: float = START_SECONDS, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        """Starts the process and returns at once. Raises JavaError if there is none to start."""
        self.java = java
        self._seconds = start_seconds
        self._answer_seconds = answer_seconds
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        folder = find_scorer_file("meteor")
        # The table is named, and by a relative path: below a path with a space the jar does not find it.
        arguments = ["-jar", "meteor-1.5.jar", "-", "-", "-stdio", "-l", "en", "-norm"]
        command = java.command(*arguments, "-a", "data/paraphrase-en.gz")
        try:
            # In a session of its own: a signal for all of a run's processes (Ctrl+C, SLURM) would end Java in
            # the middle of the step that the run still finishes.
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                start_new_session=True,
            )
        except OSError as error:
            self._complaints.close()
            raise JavaError(f"{java.path} did not start: {error.strerror}.") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin: IO[bytes] = self._process.stdin
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=_read, args=(self._process.stdout, self._answers), daemon=True).start()

    def count_matches(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> npt.NDArray[np.float64]:
        """Returns (captions, 23) counts of each tokenised caption against the best of its references.

        Raises JavaError, after ending the process, if METEOR stops or falls silent.
        """
        if self._complaints.closed:
            raise JavaError("METEOR was ended.")
        lines = [
            " ||| ".join(["SCORE", *map(_remove_separators, captions), _remove_separators(hypothesis)]) + "\n"
            for hypothesis, captions in zip(hypotheses, references, strict=True)
        ]
        try:
            answers = list(self._ask("".join(lines).encode(errors="replace"), len(lines)))
        except JavaError:
            self.close()
            raise
        counts = np.array(answers).reshape(-1, COUNTS)
        # A caption that is its reference, word for word, has no fragments: so the jar pools counts.
        whole = (counts[:, CHUNKS] == 1) & (counts[:, MATCHED] == counts[:, LENGTHS]).all(axis=1)
        counts[whole, CHUNKS] = 0
        return counts

    def close(self) -> None:
        """Ends the process and waits for it. Nothing happens the second time."""
        # Killed first: a thread may wait in a write that is never read, with the lock that closing needs.
        self._process.kill()
        self._process.wait()
        with suppress(OSError):
            self._stdin.close()
        self._complaints.close()

    def _ask(self, text: bytes, answers: int) -> Iterator[list[float]]:
        # Written by a thread: the pipes are small, and a process that reads nothing must not hold us up.
        threading.Thread(target=self._write, args=(text,), daemon=True).start()
        for _ in range(answers):
            yield self._read_answer()

    def _write(self, text: bytes) -> None:
        with suppress(OSError, ValueError):  # a process that ended is noticed by who reads
            self._stdin.write(text)
            self._stdin.flush()

    def _read_answer(self) -> list[float]:
        try:
            line = self._answers.get(timeout=self._seconds)
        except queue.Empty:
            raise make_silence_error("METEOR", self._seconds) from None
        self._seconds = self._answer_seconds
        if not line:
            raise JavaError(f"METEOR stopped: {self._read_complaint()}")
        try:
            counts = [float(count) for count in line.split()]
        except ValueError:
            counts = []
        if len(counts) != COUNTS:
            raise JavaError(f"METEOR answered {line.decode(errors='replace').strip()!r}.")
        return counts

    def _read_complaint(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        self._complaints.seek(0)
        return find_cause(self._complaints.read())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def compute_meteor(counts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Computes (…) scores in [0, 1] from (…, 23) counts, or sums of counts.

    Precision and recall weigh content words by δ, function words by 1 - δ; F leans to recall by α; the
    penalty for fragments is γ·(chunks / matched words)^β.
    """
    lengths, functions = counts[..., LENGTHS], counts[..., FUNCTION_WORDS]
    content, function = np.moveaxis(counts[..., MATCHES].reshape(*counts.shape[:-1], 4, 2, 2), -2, 0)
    matches = MATCHERS @ (DELTA * content + (1 - DELTA) * function)
    words = DELTA * (lengths - functions) + (1 - DELTA) * functions
    precision, recall = np.moveaxis(_divide(matches, words), -1, 0)
    f_mean = _divide(precision * recall, (1 - ALPHA) * recall + ALPHA * precision)
    fragments = _divide(counts[..., CHUNKS], counts[..., MATCHED].mean(axis=-1))
    return np.asarray(f_mean * (1 - GAMMA * fragments**BETA))


def _divide(above: npt.NDArray[np.float64], below: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.divide(above, below, out=np.zeros(np.shape(above)), where=below != 0)


def _remove_separators(tokens: str) -> str:
    return " ".join(tokens.replace("|||", " ").split())


def _read(stdout: IO[bytes], answers: queue.SimpleQueue[bytes]) -> None:
    with stdout:
        for line in stdout:
            answers.put(line)
    answers.put(b"")
