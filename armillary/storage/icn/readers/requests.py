"""Requests and catalogues from tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from armillary.errors import unknown
from armillary.files import Column, Table, read_table

from ..pricing.prices import Prices
from ..simulation.topology import Topology
from ..workload import Catalogue, Network, Requests, shared_out

_ROWS = 200_000_000
#: Bytes of a content whose size is not given.
USUAL_BYTES = 2**20


def read_network(
    path: str | os.PathLike[str], at: Topology, prices: Prices, *, catalogue: str | os.PathLike[str] = "", share: float = 0.01,
    warm: float = 0.3,
) -> Network:  # fmt: skip
    """Requests from a table `time_s,receiver,content[,size,class]` on a topology, with caches of `share` of the catalogue's bytes.

    Contents come from a table `content,size,class,source`, or else from the sizes and classes in the requests (1 MiB and the last class
    where those are missing; the first origin holds everything). `warm` is the share of the requests, from the first on, that is not billed.
    """
    size = Column("size", "int", unit="bytes", least=1, most=1 << 50)
    service = Column("class", "str", choices=tuple(of.name for of in prices.classes))
    columns = [Column("time_s", "time", not_decreasing=True), Column("receiver", "str"), Column("content", "str")]
    table = read_table(Path(path), [*columns, *(replace(column, optional=True) for column in (size, service))], row_limit=_ROWS)
    receiver = _looked_up(table, "receiver", at.names)
    if not catalogue:
        content, names = table.numbered("content")
        _, first = np.unique(content, return_index=True)
        sizes = table["size"][first] if "size" in table else np.full(len(names), USUAL_BYTES)
        classes = _classes(table, prices)[first] if "class" in table else np.full(len(names), len(prices.classes) - 1)
        made = Catalogue(sizes.astype(np.int64), classes.astype(np.int8), np.zeros(len(names), np.int32), tuple(names))
    else:
        listed = read_table(Path(catalogue), [Column("content", "str"), size, service, Column("source", "str")], unique=["content"])
        content = _looked_up(table, "content", listed["content"].tolist(), "a content of the catalogue")
        source = _looked_up(listed, "source", [at.names[node] for node in at.origins])
        sizes, classes = listed["size"].astype(np.int64), _classes(listed, prices).astype(np.int8)
        made = Catalogue(sizes, classes, source.astype(np.int32), tuple(listed["content"]))
    requests = Requests(table["time_s"], receiver.astype(np.int32), content.astype(np.int32), int(warm * table.rows))
    return Network(at, made, requests, prices, shared_out(at, made, prices, share))


def _classes(table: Table, prices: Prices) -> np.ndarray:
    return _looked_up(table, "class", [of.name for of in prices.classes])


def _looked_up(table: Table, column: str, known: Sequence[str], expected: str = "") -> np.ndarray:
    """int64[rows]: the place of each row's value among `known`; a value that is not among them is refused with its line."""
    index = {name: i for i, name in enumerate(known)}
    numbers, values = table.numbered(column)
    for number, value in enumerate(values):
        if value not in index:
            row = int((numbers == number).argmax())
            said = f'found "{value}"; expected {expected}' if expected else unknown(column, value, index).message
            raise table.error(row, said, column)
    return np.array([index[value] for value in values], np.int64)[numbers]
