"""States of agents, and who meets whom, as CSV or Parquet.

A population has one row per agent: `rank` alone, or all variables of one protocol, of which one with several values takes as many columns
(`memory_0`, `memory_1`, …).
A schedule has `initiator` and `responder`, agents counted from 0, in the order in which they meet.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.files import Column, column_names, read_table
from armillary.runtime.election.population.play import checked_schedule
from armillary.runtime.election.population.protocol import MOST_AGENTS, Population, Protocol
from armillary.runtime.election.population.randomness import Ints

MOST_MEETINGS = 50_000_000


def read_ranks(path: str | Path) -> npt.NDArray[np.int64]:
    """The ranks of a population of which only `rank` is known, from 1 to the number of rows."""
    table = read_table(path, [Column("rank", "int", least=1, most=MOST_AGENTS)], row_limit=MOST_AGENTS)
    ranks = table["rank"].astype(np.int64)
    if table.rows < 2:
        raise InputError("found one agent; expected at least two", where=str(path))
    wrong = np.flatnonzero(ranks > table.rows)
    if len(wrong):
        raise table.error(int(wrong[0]), f"found {ranks[wrong[0]]}; expected a rank from 1 to {table.rows}, the number of agents", "rank")
    return ranks


def read_agents(path: str | Path, protocol: Protocol) -> Population:
    """The states of all agents of a protocol; each variable lies in its domain."""
    columns = []
    for name, size in protocol.fields.items():
        values, many = size if isinstance(size, tuple) else (size, 0)
        names = [f"{name}_{i}" for i in range(many)] if many else [name]
        columns += [Column(one, "int", least=0, most=values - 1) for one in names]
    table = read_table(path, columns, row_limit=protocol.n + 1)
    if table.rows != protocol.n:
        raise InputError(f"found {table.rows} agents; expected {protocol.n}", where=str(path))
    made = protocol.empty()
    for name, size in protocol.fields.items():
        if isinstance(size, tuple):
            for i in range(size[1]):
                made.memory[:, i] = table[f"{name}_{i}"]
        else:
            made.agents[name] = table[name]
    return made


def write_agents(population: Population, protocol: Protocol, path: str | Path) -> None:
    """Writes a population as Parquet, so that `read_agents` gives it back."""
    import polars as pl

    columns = {name: population.agents[name] for name in protocol.scalars}
    for name, size in protocol.fields.items():
        if isinstance(size, tuple):
            columns |= {f"{name}_{i}": population.memory[:, i] for i in range(size[1])}
    pl.DataFrame({name: np.ascontiguousarray(values) for name, values in columns.items()}).write_parquet(path)


def read_schedule(path: str | Path, n: int) -> tuple[Ints, Ints]:
    """(initiators, responders) in the order in which they meet; all are agents from 0 to n − 1, and nobody meets itself."""
    columns = [Column("initiator", "int", least=0, most=n - 1), Column("responder", "int", least=0, most=n - 1)]
    table = read_table(path, columns, row_limit=MOST_MEETINGS)
    same = np.flatnonzero(table["initiator"] == table["responder"])
    if len(same):
        raise table.error(int(same[0]), f"found agent {table['initiator'][same[0]]} meeting itself; expected two agents", "responder")
    return checked_schedule(table["initiator"], table["responder"], n)


def columns_of(path: str | Path) -> list[str]:
    """The names of a table's columns."""
    return list(column_names(path))
