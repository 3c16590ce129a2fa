"""Places the cells of a network's map in the part of the picture that the network saw.

Nearly all networks pad so that their cells tile it evenly. Those that do not are listed here, by the name
of their stream, so that feature files written by anyone are read rightly too.
"""

from __future__ import annotations

from typing import TypeAlias

#: n + 1 rising numbers in [0, 1] where the n rows, or columns, of a map begin and end.
Edges: TypeAlias = tuple[float, ...]

#: C3D's last pooling pads its seven cells by one on either side: the first of four covers one, the rest two.
C3D_POOL5: Edges = (0.0, 1 / 7, 3 / 7, 5 / 7, 1.0)
#: Inception-V4 pads no convolution of a stride: its 8 cells are centred at 37, 69, … 261 of 299 pixels. An
#: edge lies half way between two centres, and the outermost cells see up to the rim.
INCEPTION_V4: Edges = (0.0, *((37.5 + 16 + 32 * cell) / 299 for cell in range(7)), 1.0)

UNEVEN: dict[str, Edges] = {"c3d_pool5": C3D_POOL5, "inception_v4_grid": INCEPTION_V4}


def make_even_edges(cells: int) -> Edges:
    """Makes the edges of ``cells`` of one size."""
    return tuple(place / cells for place in range(cells + 1))


def find_cell_edges(stream: str, cells: int) -> Edges:
    """Finds the edges of the rows, and columns, of ``stream``, a square map of ``cells`` each way."""
    found = UNEVEN.get(stream)
    return found if found is not None and len(found) == cells + 1 else make_even_edges(cells)


def pool_edges(edges: Edges, pool: int, padding: int) -> Edges:
    """Merges cells as a pooling layer does.

    Args:
        edges: before.
        pool: cells that become one.
        padding: cells of nothing that are put before and behind. Windows that reach into it cover only the
            cells that there are.

    Returns:
        The edges after. Cells behind the last whole window are not seen and lie outside them.
    """
    side = len(edges) - 1
    windows = (side + 2 * padding - pool) // pool + 1
    return tuple(edges[min(max(place * pool - padding, 0), side)] for place in range(windows + 1))


def map_to_picture(edges: Edges, begin: float, end: float) -> Edges:
    """Maps edges from a view to the picture that it was cut out of.

    Args:
        edges: in [0, 1] of the view.
        begin: of the view, in [0, 1] of the whole picture.
        end: the same.

    Returns:
        Edges in [0, 1] of the whole picture.
    """
    return tuple(begin + (end - begin) * edge for edge in edges)
