"""What every technique can do with its schedule: plan it without any MPI, and put it on live ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError

from ..graphs.neighbours import Neighbours, from_lists
from ..planning.prices import Prices, prices_of
from ..planning.problem import Problem, problem
from ..planning.schedule import Schedule

if TYPE_CHECKING:
    from .ranks import Allgather


class Planned:
    """A technique that makes a schedule out of a problem."""

    def schedule(self, problem: Problem, prices: Any = None) -> Schedule:
        """The schedule of one call; `prices` are those of the machine."""
        raise NotImplementedError

    def promise(self, schedule: Schedule, prices: Prices) -> float:
        """The seconds that the planner expects of its schedule."""
        return schedule.cost(prices=prices)

    def plan(self, graph: Neighbours, placement: Any, block_bytes: Any, cluster: Any = None, *, prices: Prices | None = None) -> Schedule:
        """The schedule for a graph, without any MPI.

        `placement` is the node of each rank, or the number of ranks per node; `block_bytes` the bytes of every block, or of each rank's.
        `cluster` is a `Cluster`, or the name of a preset or file.
        """
        what = problem(graph, placement, block_bytes)
        return self.schedule(what, prices if prices is not None else prices_of(cluster, what))

    def on(self, comm: Any, sources: Any, destinations: Any, block_bytes: int, *, nodes: Any = None, cluster: Any = None) -> Allgather:
        """Neighbourhood allgather on live ranks: call what this returns with (send, recv) as often as you like. All ranks make this call.

        `comm` is a communicator of mpi4py or of `armillary.comm`. `sources` and `destinations` are this rank's neighbours in its order, and
        `block_bytes` the bytes of this rank's own block; those of others may be different (allgatherv), and arrive one after the other.
        `nodes` gives the node of each rank where the communicator should not be asked. Without `cluster`, three short probes measure
        the prices of messages.
        """
        from .ranks import Allgather, communicator

        ranks = communicator(comm)
        graph, sizes = gathered(ranks, sources, destinations, block_bytes)
        what = problem(graph, np.asarray(ranks.nodes if nodes is None else nodes), sizes)
        if cluster is not None:
            prices = prices_of(cluster, what)
        else:
            from .probes import measured

            prices = measured(ranks, what)
        return Allgather(ranks, self.schedule(what, prices))


def gathered(ranks: Any, sources: Any, destinations: Any, block_bytes: int) -> tuple[Neighbours, Any]:
    """The whole graph and all block sizes, which every rank is told; ranks that disagree are an error on all of them."""
    if isinstance(block_bytes, bool) or not isinstance(block_bytes, int | np.integer) or block_bytes < 0:
        # Every rank must take part in what follows, or the others would wait for it.
        block_bytes = -1
    ins, outs = (_listed(row) for row in (sources, destinations))
    mine = np.array([len(ins), len(outs), int(block_bytes)], np.int64)
    table = np.asarray(ranks.allgather(mine)).reshape(ranks.size, 3)
    lists = []
    for row, column in ((ins, 0), (outs, 1)):
        counts = table[:, column]
        every = np.zeros(int(counts.sum()), np.int64)
        ranks.allgatherv(row, every, counts.tolist())
        lists.append(np.split(every, np.cumsum(counts)[:-1]))
    if (table[:, 2] < 0).any():
        raise InputError(f"block_bytes: rank {int(np.argmax(table[:, 2] < 0))} gave no whole number of 0 or more; expected bytes")
    return from_lists(lists[0], lists[1]), table[:, 2]


def _listed(row: Any) -> Any:
    found = np.asarray(row)
    if found.size == 0:
        return np.empty(0, np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        # A rank that does not exist, so that all ranks report it.
        return np.array([-1])
    return np.ascontiguousarray(found, np.int64)
