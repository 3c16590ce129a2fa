"""What hostile forms cost: CPU a byte and memory, for attacks of one size and of four times as much.

    python -m benchmarks.forms

An attack that is refused costs what comes before the refusal, whatever its size; one that is a legal form
costs the same for each byte. Each is read by our parser as ``POST /caption`` reads it (in pieces as they
arrive, the file written to disk) and by Starlette's form parser, whose limits are on by default, for
comparison. Exit code 1: an attack's cost grows faster than its bytes, or memory with them.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException, MultiPartParser

from app.api.problems import RequestError
from app.api.receiving.bodies import receive

MB = 1_000_000
CHUNK = 64 * 1024
LIMIT = 512 * MB
CONTENT_TYPE = "multipart/form-data; boundary=b"
VIDEO = b'--b\r\nContent-Disposition: form-data; name="video"; filename="a.mp4"\r\n\r\n'
END = b"\r\n--b--\r\n"
GROWTH = 3.0  #: a cost a byte that grows more than this from a size to four times as much is not linear
SMALLEST = 0.2  #: seconds below which a cost is that of starting
MEMORY = 16 * MB

Reader = Callable[[AsyncIterator[bytes]], Awaitable[str]]


@dataclass(frozen=True)
class Attack:
    """``head``, then ``unit`` up to the size, then ``tail``. chunk: bytes that arrive at once."""

    name: str
    head: bytes
    unit: bytes
    tail: bytes = END
    sizes: tuple[int, int] = (MB, 4 * MB)
    chunk: int = CHUNK

    async def arrive(self, size: int) -> AsyncIterator[bytes]:
        yield self.head
        block = self.unit * max(1, self.chunk // len(self.unit)) if self.chunk > 1 else self.unit
        for _ in range(size // len(block)):
            if self.chunk > 1:
                yield block
            else:
                for place in range(len(block)):
                    await asyncio.sleep(0)  # each comes in a turn of the loop of its own, as from a socket
                    yield block[place : place + 1]
        yield self.tail


@dataclass(frozen=True)
class Cost:
    outcome: str
    seconds: float
    memory: int


PARAMETERS = b'--b\r\nContent-Disposition: form-data; name="video"'
ATTACKS = (
    Attack("header parameters", PARAMETERS, b"; a=b"),
    Attack("header quotes", PARAMETERS, b';"\\'),
    Attack("one header name", b"--b\r\n", b"x"),
    Attack("100 MB of headers", b"--b\r\n", b"x: a\r\n", sizes=(25 * MB, 100 * MB)),
    Attack("many parts", b"", b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n'),
    Attack("empty parts", b"", b"--b\r\n\r\n\r\n"),
    Attack("a long option", b'--b\r\nContent-Disposition: form-data; name="captioner"\r\n\r\n', b"a"),
    Attack("preamble", b"", b"- -\r\n"),
    Attack("epilogue", VIDEO + b"data" + END, b"\r\n--b"),
    Attack("blanks behind a boundary", VIDEO + b"data\r\n--b", b" "),
    Attack("boundary prefixes", VIDEO, b"\r\n--"),
    Attack("boundaries that go on", VIDEO, b"\r\n--bX"),
    Attack("boundaries that nearly end", VIDEO, b"\r\n--b-X"),
    Attack("line ends", VIDEO, b"\r"),
    Attack("one-byte chunks", VIDEO, b"x", sizes=(MB // 100, MB // 25), chunk=1),
    Attack("one-byte chunks of prefixes", VIDEO, b"\r\n--b", sizes=(MB // 100, MB // 25), chunk=1),
    Attack("a plain video", VIDEO, b"x", sizes=(25 * MB, 100 * MB)),
)


async def read_ours(body: AsyncIterator[bytes]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        try:
            upload = await receive(body, {"content-type": CONTENT_TYPE}, Path(folder) / "video", LIMIT)
        except RequestError as error:
            return error.code
    return f"{upload.size / MB:.2g} MB taken"


async def read_starlettes(body: AsyncIterator[bytes]) -> str:
    parser = MultiPartParser(Headers({"content-type": CONTENT_TYPE}), body)  # type: ignore[arg-type]
    try:
        form = await parser.parse()
    except MultiPartException:
        return "refused"
    await form.close()
    return "taken"


def measure(read: Reader, attack: Attack, size: int) -> Cost:
    """CPU seconds of one run, and the peak of Python's memory in another, a short one: it is far slower."""
    began = time.process_time()
    outcome = asyncio.run(_run(read, attack, size))
    seconds = time.process_time() - began
    tracemalloc.start()
    asyncio.run(_run(read, attack, min(size, MB + MB // 4)))
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return Cost(outcome, seconds, memory)


async def _run(read: Reader, attack: Attack, size: int) -> str:
    return await read(attack.arrive(size))


def is_bounded(costs: tuple[Cost, Cost], sizes: tuple[int, int]) -> bool:
    """The cost a byte is about the same at both sizes, and the memory is bounded."""
    small, large = costs
    a_byte = max(small.seconds, SMALLEST) / sizes[0]
    is_linear = large.seconds < SMALLEST or large.seconds / sizes[1] < GROWTH * a_byte
    return is_linear and max(small.memory, large.memory) < MEMORY


def main() -> int:
    table = Table("attack", "MB", "outcome", "CPU s", "ns a byte", "MB held", "Starlette", "CPU s")
    failed = []
    for attack in ATTACKS:
        costs = (measure(read_ours, attack, attack.sizes[0]), measure(read_ours, attack, attack.sizes[1]))
        for size, cost in zip(attack.sizes, costs, strict=True):
            peer = measure(read_starlettes, attack, size)
            table.add_row(
                attack.name, f"{size / MB:g}", cost.outcome, f"{cost.seconds:.3f}",
                f"{cost.seconds / size * 1e9:.1f}", f"{cost.memory / MB:.1f}",
                peer.outcome, f"{peer.seconds:.3f}",
            )  # fmt: skip
        failed += [] if is_bounded(costs, attack.sizes) else [attack.name]
    Console(width=120).print(table)
    print(f"not linear or not bounded: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
