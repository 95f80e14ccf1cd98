"""Graphs and oscillators as CSV or Parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.errors import InputError
from armillary.files import Column, column_names, read_table
from armillary.network.clocks.graph.network import MOST_LINKS, ClockNetwork
from armillary.network.clocks.simulation.oscillators import PRESETS, Oscillators

GRAPH = ("node_a", "node_b", "delay_s")


def read_graph(path: str | Path) -> ClockNetwork:
    """Reads links: `node_a,node_b,delay_s`, and if they are known `asymmetry_s` and `jitter_s`."""
    columns = [
        Column("node_a", "str"), Column("node_b", "str"), Column("delay_s", least=0.0, most=3600.0, unit="seconds"),
        Column("asymmetry_s", least=0.0, most=3600.0, unit="seconds", default=0.0),
        Column("jitter_s", least=0.0, most=3600.0, unit="seconds", default=0.0),
    ]  # fmt: skip
    table = read_table(path, columns, row_limit=MOST_LINKS)
    names: dict[str, int] = {}
    pairs = [[names.setdefault(str(name), len(names)) for name in row] for row in zip(table["node_a"], table["node_b"])]
    where = tuple(str(table.error(row, "").where) for row in range(table.rows)) if table.rows <= 100_000 else ()
    return ClockNetwork.of(
        pairs, len(names), delay=table["delay_s"].copy(), asymmetry=table["asymmetry_s"].copy(), jitter=table["jitter_s"].copy(),
        names=tuple(names), where=where,
    )  # fmt: skip


def read_oscillators(path: str | Path, network: ClockNetwork) -> Oscillators:
    """Reads `node,offset_ppm` and, if known, `stability` (xo, tcxo, ocxo or synce), with one row per clock.

    The band is as wide as the frequencies and the worst stability need; noise is that of the worst stability.
    """
    table = read_table(
        path, [Column("node", "str"), Column("offset_ppm", least=-1e4, most=1e4, unit="ppm"),
               Column("stability", "str", choices=tuple(PRESETS), default="tcxo")], row_limit=network.nodes + 1, unique=("node",),
    )  # fmt: skip
    number = {network.name(i): i for i in range(network.nodes)}
    offsets = np.full(network.nodes, np.nan)
    for row, (name, ppm) in enumerate(zip(table["node"], table["offset_ppm"])):
        if str(name) not in number:
            raise table.error(row, f'found "{name}"; expected a node of the graph', "node")
        offsets[number[str(name)]] = ppm * 1e-6
    if np.isnan(offsets).any():
        lacking = network.name(int(np.flatnonzero(np.isnan(offsets))[0]))
        raise InputError(f"found no frequency of {lacking}; expected one row per clock", where=str(path))
    worst = max((PRESETS[str(name)] for name in set(table["stability"])), key=lambda o: o.rho)
    above = offsets - offsets.min()
    band = max(worst.rho, float(above.max()))
    return Oscillators(band, worst.white, worst.walk, worst.temperature, worst.wave_s, worst.nu, tuple(above.tolist()))


def is_graph(path: str | Path) -> bool:
    """Whether a table has the columns of a graph."""
    return set(GRAPH[:2]) <= set(column_names(path))
