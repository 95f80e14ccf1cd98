"""Traces of messages: what each rank of a program called, and how long it computed before each call.

    rank,time_ns,op,peer,bytes,compute_ns
    0,0,irecv,1,1048576,0
    0,100,isend,1,1048576,0
    0,150000,wait,,,149900

`op` is isend, irecv, send, recv or wait (for everything that was started). A rank's rows stand in the order of their times. The k-th
receive from a rank gets the k-th send of that rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.files import Column, read_table
from armillary.network.notification.workload import MOST_BYTES, MOST_RANKS, TRACE, Scenario

OPS = ("isend", "irecv", "send", "recv", "wait")
ISEND, IRECV, SEND, RECV, WAIT = range(5)
_MOST_ROWS = 2_000_000
_MOST_NS = 10**15


@dataclass(frozen=True)
class Trace:
    """The calls of all ranks, sorted by rank; `starts[r]` is the first of rank r."""

    op: Any
    peer: Any
    nbytes: Any
    compute_s_before: Any
    starts: Any

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.starts) - 1

    @property
    def operations(self) -> int:
        """The number of calls of all ranks."""
        return len(self.op)

    @property
    def compute_s(self) -> float:
        """The seconds that the rank with most computing computes."""
        sums = [float(self.compute_s_before[self.starts[r] : self.starts[r + 1]].sum()) for r in range(self.ranks)]
        return max(sums, default=0.0)

    def of(self, rank: int) -> Iterator[tuple[float, str, int, int]]:
        """Yield what a rank does: the seconds that it computes before a call, the call, the other rank and the bytes."""
        for i in range(self.starts[rank], self.starts[rank + 1]):
            yield float(self.compute_s_before[i]), OPS[self.op[i]], int(self.peer[i]), int(self.nbytes[i])


def read_trace(path: str | Path) -> Trace:
    """Return the trace in a CSV file. Every receive must have a send of at most as many bytes, and every send a receive."""
    import polars as pl

    columns = [
        Column("rank", "int", least=0, most=MOST_RANKS - 1),
        Column("time_ns", "int", unit="nanoseconds", least=0, most=_MOST_NS),
        Column("op", "str", choices=OPS),
        Column("peer", "int", least=-1, most=MOST_RANKS - 1, default=-1),
        Column("bytes", "int", least=-1, most=MOST_BYTES, default=-1),
        Column("compute_ns", "int", unit="nanoseconds", least=0, most=_MOST_NS, default=0),
    ]
    table = read_table(path, columns, row_limit=_MOST_ROWS)
    if not table.rows:
        raise InputError("found no rows; expected the calls of at least two ranks", where=str(path))
    rank, time = table["rank"], table["time_ns"]
    op = table.frame["op"].replace_strict(OPS, range(len(OPS)), return_dtype=pl.Int64).to_numpy()
    peer, nbytes = table["peer"], table["bytes"]
    ranks = int(max(rank.max(), peer.max())) + 1
    moves = op != WAIT
    for wrong, found, column in (
        (moves & (peer < 0), "no peer; expected the other rank", "peer"),
        (moves & (peer == rank), "the rank itself; expected another rank", "peer"),
        (moves & (nbytes < 0), "no bytes; expected their number", "bytes"),
    ):
        if wrong.any():
            raise table.error(int(wrong.argmax()), f"found {found}", column)
    order = np.argsort(rank, kind="stable")
    back = (np.diff(time[order]) < 0) & (np.diff(rank[order]) == 0)
    if back.any():
        row = int(order[int(back.argmax()) + 1])
        raise table.error(row, f"found {time[row]} after a later call of rank {rank[row]}; expected times that do not decrease", "time_ns")
    _match(table, rank, op, peer, nbytes)
    starts = np.searchsorted(rank[order], np.arange(ranks + 1))
    return Trace(op[order], peer[order], nbytes[order], table["compute_ns"][order] * 1e-9, starts)


def _match(table: Any, rank: Any, op: Any, peer: Any, nbytes: Any) -> None:
    """Check that the k-th receive of each pair of ranks has a k-th send, and the other way round."""
    sends, receives = (op == ISEND) | (op == SEND), (op == IRECV) | (op == RECV)
    rows = np.arange(len(op))
    sent, received = rows[sends], rows[receives]
    # Sorted by sender, receiver and order of calling, the two lists must agree.
    sent = sent[np.lexsort((sent, peer[sent], rank[sent]))]
    received = received[np.lexsort((received, rank[received], peer[received]))]
    most = min(len(sent), len(received))
    first, second = sent[:most], received[:most]
    apart = (rank[first] != peer[second]) | (peer[first] != rank[second])
    k = int(apart.argmax()) if apart.any() else most
    if apart.any() or len(sent) != len(received):
        key_sent = (int(rank[sent[k]]), int(peer[sent[k]])) if k < len(sent) else (1 << 30, 0)
        key_received = (int(peer[received[k]]), int(rank[received[k]])) if k < len(received) else (1 << 30, 0)
        if key_received < key_sent:
            a, b = key_received
            raise table.error(int(received[k]), f"found a receive of rank {b} from rank {a} that is never sent; expected its send")
        a, b = key_sent
        raise table.error(int(sent[k]), f"found a send of rank {a} to rank {b} that is never received; expected its receive")
    longer = nbytes[first] > nbytes[second]
    if longer.any():
        k = int(longer.argmax())
        raise table.error(
            int(second[k]), f"found room for {nbytes[second[k]]} bytes; expected at least the {nbytes[first[k]]} that are sent", "bytes"
        )


def scenario_of(trace: Trace, cores: int, where: str) -> Scenario:
    """Return the trace as a scenario."""
    try:
        return Scenario(TRACE, ranks=trace.ranks, cores=cores, trace=trace, iterations=1)
    except InputError as error:
        raise InputError(error.message, where=where) from None
