"""Reads the page's files once: scripts become one, styles go into the HTML, texts are compressed.

Sources are ES modules. A browser on a slow line would ask for them in turn, so that it is sent all in one
file, each module as a function of what it imports; styles come with the HTML, so that it paints at once. All
files lie below one folder, named by the hash of them all: a browser keeps them for good, and an upgrade never
mixes old and new ones.
"""

import base64
import gzip
import hashlib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

STATIC = Path(__file__).parent / "static"
TEXTS = (".css", ".html", ".js", ".json", ".svg")  #: what is worth compressing
STYLES = ("page.css", "film.css")
SCRIPT = "page.js"  #: the module that imports the others
VERSION_DIGITS = 16

_IMPORT = re.compile(r'^import \{ (.+) \} from "(.+)";$', re.MULTILINE)
_IMPORT_LATER = re.compile(r'\bimport\("(.+?)"\)')
_EXPORT = re.compile(r"^export ((?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_COMMENT = re.compile(r"^ *//.*\n", re.MULTILINE)


@dataclass(frozen=True)
class PageFiles:
    """Holds the static files."""

    version: str  #: of all of them, the folder that they are served below
    page: str  #: the HTML, with addresses of that version; its two marks are filled in per request
    style_hash: str  #: of the styles in it, as a content policy names them
    #: path below the folder → gzip of the file, of texts; at ``SCRIPT`` all scripts in one
    compressed: dict[str, bytes]

    @classmethod
    def read(cls, folder: Path = STATIC) -> Self:
        """Reads and compresses the files of a folder."""
        contents = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        names = "".join(f"{name} {hashlib.sha256(data).hexdigest()}\n" for name, data in contents.items())
        version = hashlib.sha256(names.encode()).hexdigest()[:VERSION_DIGITS]
        texts = {name: data.decode() for name, data in contents.items() if name.endswith(TEXTS)}
        style = "".join(texts[name] for name in STYLES)
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        page = texts["index.html"].replace("<!-- styles -->", f"<style>{style}</style>")
        texts[SCRIPT] = bundle(texts, SCRIPT)
        compressed = {name: gzip.compress(text.encode(), mtime=0) for name, text in texts.items()}
        return cls(version, page.replace('"/static/', f'"/static/{version}/'), f"sha256-{digest}", compressed)


def bundle(sources: Mapping[str, str], first: str) -> str:
    """Puts a module and all that it imports into one script, imported ones before those that import them.

    Modules that are imported while the page runs stay files of their own.

    sources: path → text; imports and exports stand on lines of their own. Returns the script, without
    comments; to be served in the folder of ``first``.
    """
    written: dict[str, str] = {}

    def write(name: str) -> None:
        folder, exported = posixpath.dirname(name), [each[1] for each in _EXPORT.findall(sources[name])]

        def link(imported: re.Match[str]) -> str:
            other = _join(folder, imported[2])
            if other not in written:
                write(other)
            return f"const {{ {imported[1]} }} = {_name_module(other)};"

        text = _IMPORT.sub(link, _COMMENT.sub("", sources[name]))
        text = _IMPORT_LATER.sub(lambda later: f'import("./{_join(folder, later[1])}")', text)
        text = _EXPORT.sub(r"\1", text) + f"return {{ {', '.join(exported)} }};\n"
        written[name] = f"const {_name_module(name)} = (() => {{\n{text}}})();\n"

    write(first)
    return "".join(written.values())


def _join(folder: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(folder, path))


def _name_module(path: str) -> str:
    return "$" + re.sub(r"\W", "_", path.removesuffix(".js"))


FILES = PageFiles.read()
