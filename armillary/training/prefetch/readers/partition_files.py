"""A partition from a file: one whole number per line, the part of each vertex, as METIS writes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import read_lines
from armillary.training.prefetch.graphs.graph import MOST_VERTICES
from armillary.training.prefetch.graphs.partitioning import MOST_PARTS, Owners


def read_partition(path: str | Path, vertices: int) -> Owners:
    """The part of each vertex, (vertices,); parts are numbered from 0, and none is empty."""
    found: list[int] = []
    for number, text in read_lines(path, longest=1000, most=MOST_VERTICES + 1):
        word = text.strip()
        if not word:
            continue
        if not (word.isascii() and word.isdigit() and len(word) <= 9 and int(word) < MOST_PARTS):
            raise InputError(f'found "{one_line(word, 40)}"; expected a part from 0 to {MOST_PARTS - 1}', where=f"{path}:{number}")
        found.append(int(word))
    if len(found) != vertices:
        raise InputError(f"found {len(found)} parts; expected {vertices}, one per vertex", where=str(path))
    owner = np.asarray(found, np.int16)
    empty = np.flatnonzero(np.bincount(owner) == 0)
    if len(empty):
        raise InputError(f"part {int(empty[0])} has no vertex; expected parts from 0 to {int(owner.max())}", where=str(path))
    return owner
