"""Counts what a reader of the code walks through: files, lines, folders, and circles of imports.

    python -m benchmarks.house [--list]

Prints a table with a line for each package: files, lines, the fullest folder, files below 60 lines, imports
between files, circles among files and among sub-packages, public functions of more than two parameters whose
docstring has no ``Args:``, docstrings that begin with a question word, and locals that are called by a
participle (BANNED_LOCALS). Imports inside functions and below ``if TYPE_CHECKING`` count like all others.
Below it stand the lines of source, tests, and benchmarks with lab. Exits with 1 where there is a circle.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("app", "training", "models", "extractors")
MEASURING = ("benchmarks", "lab")
SUMS = {"source": PACKAGES, "tests": ("tests",), "benchmarks and lab": MEASURING}
SMALL = 60  #: lines; a shorter file could often live where it is used
FEW = 2  #: parameters that a docstring's sentences can explain
#: Participles that say nothing of what a local holds.
BANNED_LOCALS = frozenset(
    ("found", "known", "own", "wanted", "given", "told", "said", "held", "asked", "made", "done")
)
QUESTIONS = ("How", "What", "Where", "Which", "Who", "Whose", "Why")

Graph = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Counts:
    """What is counted of one package."""

    package: str
    files: int
    lines: int
    fullest_folder: str
    small_files: int
    imports: int
    file_circles: tuple[tuple[str, ...], ...]
    room_circles: tuple[tuple[str, ...], ...]
    without_args: tuple[str, ...]
    questions: tuple[str, ...]
    banned_locals: tuple[str, ...]


def module_of(file: Path, root: Path = ROOT) -> str:
    """Returns the dotted name of a file's module."""
    return ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imports_of(tree: ast.AST) -> Iterator[str]:
    """Yields the dotted names that a module imports, each with and without its last part."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            yield from imports_of(node)


def without_args(module: str, tree: ast.Module) -> Iterator[str]:
    """Yields the public functions of more than two parameters whose docstring has no ``Args:`` section.

    Routes are left out: /docs shows what they take, each with its own words.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            if any(ast.unparse(each).startswith("router.") for each in node.decorator_list):
                continue
            parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            names = [each.arg for each in parameters if each.arg not in ("self", "cls")]
            documented = ast.get_docstring(node)
            if len(names) > FEW and documented is not None and "Args:" not in documented:
                yield f"{module}.{node.name}"


def questions(module: str, tree: ast.Module) -> Iterator[str]:
    """Yields what has a docstring that begins with a question word in place of a verb or a noun."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node) or ""
            if documented.split(maxsplit=1)[:1] and documented.split(maxsplit=1)[0] in QUESTIONS:
                yield f"{module}.{getattr(node, 'name', '')}".rstrip(".")


def list_banned_locals(module: str, tree: ast.Module) -> Iterator[str]:
    """Yields where a name of BANNED_LOCALS is assigned inside a function: module, line and name."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    assigned = {
        (node.lineno, node.col_offset, node.id)
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in BANNED_LOCALS
    }
    yield from (f"{module}:{line} {name}" for line, _, name in sorted(assigned))


def import_graph(files: Iterable[Path], root: Path = ROOT) -> Graph:
    """Returns for each module the modules among ``files`` that it imports."""
    trees = {module_of(file, root): ast.parse(file.read_text(encoding="utf-8")) for file in files}
    return {
        module: frozenset(
            imported
            for name in imports_of(tree)
            for imported in (name, name.rpartition(".")[0])
            if imported in trees and imported != module and (imported == name or name not in trees)
        )
        for module, tree in trees.items()
    }


def rooms(graph: Graph, package: str) -> Graph:
    """Returns the graph of the things directly in a package: its modules and its sub-packages."""
    depth = package.count(".") + 2
    joined: dict[str, set[str]] = defaultdict(set)
    for module, imported in graph.items():
        if module.startswith(f"{package}."):
            room = ".".join(module.split(".")[:depth])
            others = {
                ".".join(name.split(".")[:depth]) for name in imported if name.startswith(f"{package}.")
            }
            joined[room] |= others - {room}
    return {room: frozenset(others) for room, others in joined.items()}


def circles(graph: Graph) -> tuple[tuple[str, ...], ...]:
    """Returns the groups of modules that reach each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[tuple[str, ...]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(graph.get(module, ())):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            at = stack.index(module)
            group, stack[at:] = tuple(sorted(stack[at:])), []
            if len(group) > 1:
                groups.append(group)

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return tuple(sorted(groups))


def count(package: str, root: Path = ROOT) -> Counts:
    """Returns the counts of one package."""
    files = sorted((root / package).rglob("*.py"))
    lines = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    graph = import_graph(files, root)
    trees = {module_of(file, root): ast.parse(file.read_text(encoding="utf-8")) for file in files}
    names = tuple(place for module, tree in trees.items() for place in list_banned_locals(module, tree))
    folder, most = Counter(file.parent for file in files).most_common(1)[0]
    packages = {module_of(file, root) for file in files if file.name == "__init__.py"}
    return Counts(
        package,
        len(files),
        sum(lines.values()),
        f"{folder.relative_to(root)} ({most})",
        sum(length < SMALL for file, length in lines.items() if file.name != "__init__.py"),
        sum(len(imported) for imported in graph.values()),
        circles(graph),
        tuple(circle for name in sorted(packages) for circle in circles(rooms(graph, name))),
        tuple(name for module, tree in trees.items() for name in without_args(module, tree)),
        tuple(name for module, tree in trees.items() for name in questions(module, tree)),
        names,
    )


def count_lines(*folders: str) -> int:
    """Returns how many lines the Python files of some folders have together."""
    files = (file for folder in folders for file in (ROOT / folder).rglob("*.py"))
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def main() -> int:
    """Prints the table, circles, and with ``--list`` the names behind the counts. Returns the exit code."""
    print(
        f"{'package':<12}{'files':>6}{'lines':>8}{'below 60':>10}{'imports':>9}{'circles':>9}"
        f"{'no Args':>9}{'questions':>11}{'banned':>8}  fullest folder"
    )
    all_counts = [count(package) for package in (*PACKAGES, *MEASURING)]
    for each in all_counts:
        number = len(each.file_circles) + len(each.room_circles)
        numbers = f"{each.files:>6}{each.lines:>8}{each.small_files:>10}{each.imports:>9}{number:>9}"
        numbers += f"{len(each.without_args):>9}{len(each.questions):>11}{len(each.banned_locals):>8}"
        print(f"{each.package:<12}{numbers}  {each.fullest_folder}")
    sums = {name: count_lines(*folders) for name, folders in SUMS.items()}
    print("lines:", ", ".join(f"{lines} of {name}" for name, lines in sums.items()))
    joined = [circle for each in all_counts for circle in (*each.file_circles, *each.room_circles)]
    for circle in joined:
        print("circle:", ", ".join(circle))
    if "--list" in sys.argv[1:]:
        for each in all_counts:
            print(*(f"no Args: {name}" for name in each.without_args), sep="\n")
            print(*(f"question: {name}" for name in each.questions), sep="\n")
            print(*(f"banned: {place}" for place in each.banned_locals), sep="\n")
    return 1 if joined else 0


if __name__ == "__main__":
    sys.exit(main())
