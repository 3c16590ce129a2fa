"""What an environment takes on the disk, by package."""

from __future__ import annotations

from pathlib import Path

from benchmarks.install_size import OTHERS, UNOWNED, group_small, measure_packages

BLOCK = 4096


def _install(site: Path, name: str, size: int) -> None:
    files = {
        f"{name}/code.py": b"x" * size,
        f"{name}-1.dist-info/METADATA": f"Name: {name}\nVersion: 1\n".encode(),
    }
    for file, content in files.items():
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_bytes(content)
    (site / f"{name}-1.dist-info/RECORD").write_text("".join(f"{file},,\n" for file in files))


def test_each_package_has_what_it_brought_and_what_was_compiled_of_it(tmp_path: Path) -> None:
    site = tmp_path / "lib/python3.11/site-packages"
    _install(site, "large", 20 * BLOCK)
    before = measure_packages(tmp_path)
    (site / "large/__pycache__").mkdir()
    (site / "large/__pycache__/code.cpython-311.pyc").write_bytes(b"x" * 8 * BLOCK)
    (tmp_path / "pip.log").write_bytes(b"x" * 2 * BLOCK)
    after = measure_packages(tmp_path)
    assert before["large 1"] >= 20 * BLOCK
    assert after["large 1"] - before["large 1"] == 8 * BLOCK
    assert after[UNOWNED] - before[UNOWNED] == 2 * BLOCK


def test_small_packages_share_a_line_and_nothing_is_lost() -> None:
    sizes = {"small": 1, "large": 50, "larger": 70, "tiny": 2}
    table = group_small(sizes, 10)
    assert list(table) == ["larger", "large", "(others, 2)"]
    assert sum(table.values()) == sum(sizes.values())
    assert OTHERS.startswith("(others")
