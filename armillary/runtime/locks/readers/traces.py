"""Recorded uses of locks: who came when, for which lock, and how long they held it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.errors import InputError
from armillary.files import Column, read_table
from armillary.runtime.locks.simulation.machine import MOST_CORES
from armillary.runtime.locks.workload import MOST_LOCKS, Episodes

MOST_ROWS = 2_000_000
#: Nanoseconds whose picoseconds fit 64 bits, with room for all sections one after another.
MOST_NS = 1_000_000_000_000_000
MOST_PS = 1 << 62


def read_trace(path: str | Path, *, threads: int = 0, locks: int = 0) -> Episodes:
    """Reads `thread,lock,arrive_ns,hold_ns`, with threads and locks numbered from 0.

    `threads` and `locks` are how many there are; 0 stands for one more than the largest number. The rows of one thread are in the order of
    their arrivals; those of different threads may be mixed.
    """
    for name, given, most in (("threads", threads, MOST_CORES), ("locks", locks, MOST_LOCKS)):
        if not 0 <= given <= most:
            raise InputError(f"{name}: found {given}; expected 0 to {most:,}")
    columns = [
        Column("thread", "int", least=0, most=(threads or MOST_CORES) - 1),
        Column("lock", "int", least=0, most=(locks or MOST_LOCKS) - 1),
        Column("arrive_ns", least=0, most=MOST_NS, unit="nanoseconds"),
        Column("hold_ns", least=0, most=MOST_NS, unit="nanoseconds"),
    ]
    table = read_table(path, columns, row_limit=MOST_ROWS)
    if not table.rows:
        raise InputError("found no rows; expected at least one use of a lock", where=str(path))
    thread = np.asarray(table["thread"], np.int64)
    arrive, hold = (np.round(np.asarray(table[name], float) * 1000).astype(np.int64) for name in ("arrive_ns", "hold_ns"))
    order = np.argsort(thread, kind="stable")
    same = thread[order][1:] == thread[order][:-1]
    late = np.flatnonzero(same & (np.diff(arrive[order]) < 0))
    if late.size:
        row = int(order[late[0] + 1])
        raise table.error(row, f"found an arrival before the last one of thread {thread[row]}; expected them in order", "arrive_ns")
    if float(arrive.max()) + float(hold.astype(float).sum()) > MOST_PS:
        raise InputError(
            f"found sections of {hold.astype(float).sum() * 1e-12:.3g} s in all; expected fewer than {MOST_PS * 1e-12:.3g}", where=str(path)
        )
    count = threads or int(thread.max()) + 1
    first = np.searchsorted(thread[order], np.arange(count + 1)).astype(np.int64)
    lock = np.asarray(table["lock"], np.int64)
    return Episodes(
        locks or int(lock.max()) + 1, first, lock[order], arrive[order], np.zeros(table.rows, np.int64), hold[order], touches=False
    )  # fmt: skip
