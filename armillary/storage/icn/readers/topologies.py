"""Topologies from GraphML, GML and tables of links."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line
from armillary.extras import need
from armillary.files import Column, open_file, read_table

from ..simulation.topology import BUILT_IN, Topology, built_in, from_networkx, topology

_LARGEST = 1 << 28
LINKS = (
    Column("a", "str"), Column("b", "str"), Column("latency_ms", least=0), Column("bandwidth_gbps", least=0, optional=True),
    Column("price_per_GB", least=0, optional=True),
)  # fmt: skip


def read_topology(path: str | os.PathLike[str]) -> Topology:
    """A built-in topology (`abilene`), or one from GraphML or GML (by NetworkX) or CSV `a,b,latency_ms[,bandwidth_gbps[,price_per_GB]]`."""
    if str(path) in BUILT_IN:
        return built_in(str(path))
    file = Path(path)
    ending = file.suffix.lower()
    if ending not in (".graphml", ".gml", ".csv"):
        raise InputError(f"found {file.name}; expected .graphml, .gml, .csv, or one of {', '.join(BUILT_IN)}", where="--topology")
    try:
        return _links(file) if ending == ".csv" else from_networkx(_graph(file, ending))
    except InputError as error:
        raise InputError(error.message, where=str(file)) if error.where is None else error from None


def _graph(file: Path, ending: str) -> Any:
    networkx = need("networkx")
    with open_file(file, limit=_LARGEST) as opened:
        try:
            return networkx.read_graphml(opened) if ending == ".graphml" else networkx.read_gml(opened, label="id")
        except Exception as error:
            raise InputError(f"found what NetworkX cannot read: {one_line(str(error))}", where=str(file)) from None


def _links(file: Path) -> Topology:
    table = read_table(file, LINKS)
    missing = [None] * table.rows
    bandwidth = table["bandwidth_gbps"] * 1.25e8 if "bandwidth_gbps" in table else missing
    price = table["price_per_GB"] / 1e9 if "price_per_GB" in table else missing
    return topology(zip(table["a"], table["b"], table["latency_ms"] * 1e-3, bandwidth, price), name=file.stem)
