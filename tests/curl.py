"""As much of curl as the README uses, for machines that have none: -F fields, -s, -o, a URL."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import httpx


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="curl")
    parser.add_argument("-F", dest="fields", action="append", default=[])
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-o", dest="output", type=Path)
    parser.add_argument("url")
    given = parser.parse_args(arguments)
    pairs = [field.partition("=")[::2] for field in given.fields]
    paths = {name: Path(value[1:]) for name, value in pairs if value.startswith("@")}
    files = {name: (path.name, path.read_bytes()) for name, path in paths.items()}
    data = {name: value for name, value in pairs if not value.startswith("@")}
    method = "POST" if pairs else "GET"
    answer = httpx.request(method, given.url, files=files or None, data=data or None, timeout=60)
    if given.output:
        given.output.write_bytes(answer.content)
    else:
        sys.stdout.write(answer.text)


if __name__ == "__main__":
    main(sys.argv[1:])
