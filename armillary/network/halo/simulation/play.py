"""Play the iterations of a pattern on virtual ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from armillary.network.halo.patterns.pattern import Pattern

from .least import CannotWin, Least
from .machine import CLUSTER
from .plans import Planner


@dataclass(frozen=True)
class Played:
    """What the iterations took: seconds per iteration, copies of the busiest rank, NIC of the busiest node, and the promise."""

    seconds: float
    copying_s: float
    nic_s: float
    promise_s: float

    @property
    def overlap(self) -> float:
        """The share of the shorter of copies and NIC that ran beside the longer, from 0 to 1."""
        shorter = min(self.copying_s, self.nic_s)
        if shorter <= 0:
            return 0.0
        return min(1.0, max(0.0, (self.copying_s + self.nic_s - self.seconds) / shorter))

    @property
    def promise_error(self) -> float:
        """By how many per cent the exchange took longer than promised."""
        return 100 * (self.seconds / self.promise_s - 1) if self.promise_s > 0 else 0.0


def play(pattern: Pattern, planner: Planner, *, cluster: Any = CLUSTER, nic: float = 12.5e9, least: Least | None = None) -> Played:
    """Play a pattern under a planner. The first iteration is played once more before, untimed, so that buffers are known.

    With `least`, a play that is certain to take longer than that allows ends early, in `CannotWin`.
    """
    from armillary import comm

    placement = [rank // pattern.per_node for rank in range(pattern.ranks)]
    policy = comm.Policy("never", protocol=planner.choose)
    try:
        result = comm.run(
            exchange, pattern, planner, least, ranks=pattern.ranks, backend="virtual", model="flow", cluster=cluster,
            placement=placement, payload="ghost", progress=policy,
        )  # fmt: skip
    except comm.RankFailed as failed:
        if isinstance(failed.exception, CannotWin):
            raise failed.exception from None
        raise
    rows = result.values
    seconds = max(row[1] for row in rows) - min(row[0] for row in rows)
    count = pattern.iterations
    promise = sum(planner.promise(k) for k in range(count)) / count
    return Played(seconds / count, max(row[2] for row in rows) / count, _wire(pattern, nic), promise)


def exchange(comm: Any, pattern: Pattern, planner: Planner, least: Least | None = None) -> tuple[float, float, float]:
    """One rank: post everything in the planner's order, and wait for all of it, in every iteration."""
    from armillary.comm import Ghost, waitall

    rank = comm.rank
    begin = copied = 0.0
    for turn in range(-1, pattern.iterations):
        k = max(turn, 0)
        if turn == 0:
            comm.barrier()
            begin, copied = comm.now(), comm.busy.copying
        if least is not None and turn >= 0:
            least.begin(rank, k, comm.now())
        comm.iteration = k
        planner.begin(comm, k)
        epoch = pattern.epochs[k]
        receives, sends = pattern.received[epoch][rank], pattern.tables[epoch][rank]
        requests = []
        for wanted in (False, True) if planner.inter_first(rank, k) else (None,):
            requests += [comm.irecv(Ghost(n), other, 0) for other, n in receives if wanted in (None, pattern.near(rank, other))]
            requests += [comm.isend(Ghost(n), other, 0) for other, n in sends if wanted in (None, pattern.near(rank, other))]
        waitall(requests)
    return begin, comm.now(), comm.busy.copying - copied


def _wire(pattern: Pattern, nic: float) -> float:
    """Seconds per iteration in which the busiest NIC moves what the program sends between nodes."""
    per = pattern.per_node
    total = 0.0
    for epoch in pattern.epochs:
        out, into = [0] * pattern.nodes, [0] * pattern.nodes
        for rank, sent in enumerate(pattern.tables[epoch]):
            for other, nbytes in sent:
                if rank // per != other // per:
                    out[rank // per] += nbytes
                    into[other // per] += nbytes
        total += max(max(out), max(into)) / nic
    return total / len(pattern.epochs)
