"""Graphs from files: edge lists, Matrix Market, SciPy's `.npz`, and METIS's `.graph`.

An edge list is CSV or TSV with the columns src and dst, or with two columns and no header, as OGB's raw `edge.csv.gz`. All numbers are
proved before a compiled loop follows one of them; nothing is unpickled.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import Column, read_head, read_lines, read_table
from armillary.training.prefetch.graphs.graph import MOST_EDGES, MOST_VERTICES, Graph

TABLES = (".csv", ".tsv")
MATRICES = (".mtx", ".npz")
METIS = (".graph", ".metis")
_ENDINGS = ", ".join((*TABLES, *MATRICES, *METIS))


def read_graph(path: str | Path) -> Graph:
    """The undirected graph in a file, by its ending (.gz and .zst aside)."""
    path = Path(path)
    name = path.name.lower().removesuffix(".gz").removesuffix(".zst")
    ending = Path(name).suffix
    if ending in TABLES:
        return _edge_list(path, "\t" if ending == ".tsv" else ",")
    if ending in MATRICES:
        return _matrix(path)
    if ending in METIS:
        return read_metis(path)
    raise InputError(f'found the ending "{one_line(ending, 20)}"; expected {_ENDINGS}', where=str(path))


def _edge_list(path: Path, delimiter: str) -> Graph:
    first = read_head(path, 256).removeprefix(b"\xef\xbb\xbf").split(b"\n")[0].strip()
    cells = [cell.strip(b' "\r') for cell in first.split(delimiter.encode())]
    bare = len(cells) == 2 and all(cell.isdigit() for cell in cells)
    if not bare and not {b"src", b"dst"} <= set(cells) and not {b"source", b"target"} <= set(cells):
        found = one_line(first.decode("utf-8", "replace"), 60)
        raise InputError(
            f'found "{found}"; expected an edge list, which has the columns src and dst, or two columns of numbers without a header',
            where=f"{path}:1",
        )
    ends = (("src", "source"), ("dst", "target"))
    columns = [Column(name, "int", (other,), least=0, most=MOST_VERTICES - 1) for name, other in ends]
    table = read_table(path, columns, row_limit=MOST_EDGES, header=not bare, format="tsv" if delimiter == "\t" else "csv")
    return Graph.of(table["src"], table["dst"], where=str(path))


def _matrix(path: Path) -> Graph:
    from armillary.files.matrices import read_sparse

    found = read_sparse(path)
    rows, columns = found.shape
    if rows != columns:
        raise InputError(f"found a matrix of {rows} × {columns}; expected a square one, whose entries are edges", where=str(path))
    if rows > MOST_VERTICES:
        raise InputError(f"found {rows:,} vertices; expected at most {MOST_VERTICES:,}", where=str(path))
    return Graph.of(found.coords[0], found.coords[1], rows, where=str(path))


def read_metis(path: str | Path) -> Graph:
    """A graph as METIS writes it: `n m [fmt [ncon]]`, then one line of neighbours per vertex, counted from 1; % begins a comment.

    Sizes and weights of vertices and edges are read over.
    """
    lines = ((number, text) for number, text in read_lines(path, longest=1 << 26) if not text.lstrip().startswith("%"))
    number, head = next(lines, (1, ""))
    words = _whole(head, path, number)
    if not 2 <= len(words) <= 4 or not 0 < words[0] <= MOST_VERTICES or not 0 <= words[1] <= MOST_EDGES:
        raise InputError(
            f'found "{one_line(head, 60)}"; expected up to {MOST_VERTICES:,} vertices, the number of edges, and what is weighed',
            where=f"{path}:{number}",
        )
    vertices, edges = words[:2]
    before, weighed = _weights(words, path, number)
    sources, targets, v = [], [], 0
    for number, text in lines:
        if v == vertices:
            if text.strip():
                raise InputError(f"found more than {vertices} lines of neighbours; expected one per vertex", where=f"{path}:{number}")
            continue
        near = np.asarray(_whole(text, path, number), np.int64)[before:]
        if weighed:
            if len(near) % 2:
                raise InputError("found a neighbour without a weight; expected pairs", where=f"{path}:{number}")
            near = near[::2]
        if len(near) and not (near.min() >= 1 and near.max() <= vertices):
            raise InputError(f"found a neighbour outside 1 to {vertices}", where=f"{path}:{number}")
        sources.append(np.full(len(near), v, np.int64))
        targets.append(near - 1)
        v += 1
    if v < vertices:
        raise InputError(f"found {v} lines of neighbours; expected {vertices}, one per vertex", where=str(path))
    source, target = np.concatenate(sources), np.concatenate(targets)
    if len(source) != 2 * edges:
        raise InputError(f"found {len(source)} neighbours; expected {2 * edges}, each of {edges} edges at both its ends", where=str(path))
    return Graph.of(source, target, vertices, where=str(path))


def _weights(words: list[int], path: str | Path, number: int) -> tuple[int, bool]:
    """How many numbers stand before a vertex's neighbours, and whether a weight follows each neighbour."""
    kind = f"{words[2]:03d}" if len(words) > 2 else "000"
    if len(kind) != 3 or set(kind) - {"0", "1"}:
        raise InputError(f"found the format {words[2]}; expected three digits of 0 and 1", where=f"{path}:{number}")
    weights = (words[3] if len(words) > 3 else 1) if kind[1] == "1" else 0
    if weights > 1000:
        raise InputError(f"found {weights} weights per vertex; expected at most 1,000", where=f"{path}:{number}")
    return int(kind[0] == "1") + weights, kind[2] == "1"


def _whole(text: str, path: str | Path, number: int) -> list[int]:
    words = text.split()
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) <= 18):
            raise InputError(f'found "{one_line(word, 40)}"; expected whole numbers', where=f"{path}:{number}")
    return [int(word) for word in words]
