"""Reads annotation files as text, as JSON of a known form, or as tables; reports what is wrong in them."""

import csv
import gzip
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from training.datasets.caption_set import Notice
from training.datasets.errors import AnnotationsDamaged

Form = TypeVar("Form")

#: What tables of captions are separated by.
SEPARATORS = ",;\t"


def read_text(path: Path) -> str:
    """Reads the text of a file, plain or gzip, in UTF-8 with or without a mark at its begin.

    Raises AnnotationsDamaged.
    """
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AnnotationsDamaged(
            f"{path} is not in UTF-8 (byte {error.start}).", "Save it again as UTF-8."
        ) from error
    except (OSError, EOFError) as error:
        raise AnnotationsDamaged(f"{path} cannot be read ({error}).", "Get the file again.") from error


def read_json(path: Path, form: TypeAdapter[Form], hint: str) -> Form:
    """Reads a JSON file of a known form.

    Args:
        path: the file, plain or gzip.
        form: what it should be.
        hint: what to do where it is not.

    Raises:
        AnnotationsDamaged: the file is no JSON or not of that form, with the place in it.
    """
    return parse_json(str(path), read_text(path), form, hint)


def parse_json(name: str, text: str, form: TypeAdapter[Form], hint: str) -> Form:
    """Parses JSON of a known form.

    Args:
        name: of the file, or of the place in it.
        text: that is parsed.
        form: what it should be.
        hint: what to do where it is not.

    Raises:
        AnnotationsDamaged: it is not of that form.
    """
    try:
        return form.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"] if "[" not in str(part))  # no name of a type
        at = f" at {place}" if place else ""
        raise AnnotationsDamaged(
            f"{name} has another form than expected{at}: {first['msg']}.", hint
        ) from error


def read_table(
    path: Path,
    columns: Mapping[str, Sequence[str]],
    optional: Mapping[str, Sequence[str]],
    hint: str,
    *,
    strict: bool = True,
) -> tuple[list[dict[str, str]], list[Notice]]:
    """Reads a table with a head, by our names of its columns, whatever their order.

    Fields with separators, quotes or line breaks are quoted, as spreadsheets write them.

    Args:
        path: the file.
        columns: our name → what the column may be called, in lower case.
        optional: the same of columns that may be absent.
        hint: what to do where the table is damaged.
        strict: whether quotes that are not doubled or closed are refused.

    Returns:
        The rows, and a notice where rows were short and left out.

    Raises:
        AnnotationsDamaged: a column is missing, or the table cannot be read.
    """
    text = read_text(path)
    separator = max(SEPARATORS, key=text.partition("\n")[0].count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=strict)
    try:
        heads = {head.strip().lower(): head for head in reversed(reader.fieldnames or ())}
        places = {
            name: next(heads[alias] for alias in aliases if alias in heads)
            for name, aliases in {**columns, **optional}.items()
            if heads.keys() & set(aliases)
        }
        if absent := [name for name in columns if name not in places]:
            has = ", ".join(reversed(heads)) or "nothing"
            raise AnnotationsDamaged(f"{path} has no column called {absent[0]!r}; it has: {has}.", hint)
        rows = [row for row in reader if any((row[head] or "").strip() for head in heads.values())]
    except csv.Error as error:
        raise AnnotationsDamaged(f"{path} is broken in line {reader.line_num}: {error}.", hint) from error
    whole = [row for row in rows if all(row[places[name]] is not None for name in columns)]
    short = len(rows) - len(whole)
    reported = f"{short} rows of {path.name} lack fields and were left out."
    named = [{name: (row[head] or "").strip() for name, head in places.items()} for row in whole]
    return named, [Notice("short_row", reported)] if short else []
