"""The least that the iterations of a pattern can take under given protocols, by which a play that cannot be the quickest is ended.

    no NIC sends more than its rate, and none sends what its node's ranks have not posted yet
    no core copies more than its rate, and what a rank copies for an iteration it copies after its begin and before its end

Long messages alone are counted, so the least is never too much.
"""

from __future__ import annotations

import math

from armillary.network.halo.patterns.pattern import Pattern

from .machine import EAGER_FAR, EAGER_NEAR, Machine
from .plans import Planner

#: Bounds and plays round differently, so only what is longer by this share is certain to be longer.
CERTAIN = 1e-6
#: The parts of a message that sender and receiver copy; a shared copy names its own.
PARTS = {"shm": (1.0, 1.0), "read": (0.0, 1.0), "write": (1.0, 0.0)}


class CannotWin(Exception):
    """A play is certain to take longer than it may."""


class Least:
    """The least seconds of one play that may take `most_s`. `begin` follows the play, and raises `CannotWin` when it is certain to fail.

    `machine` has the rates of the cluster that is played on, whose nodes have one NIC each.
    """

    def __init__(self, pattern: Pattern, planner: Planner, machine: Machine, most_s: float = math.inf) -> None:
        self._per_node, self._most_s = pattern.per_node, most_s * (1 + CERTAIN)
        self._left, copies = _moved(pattern, planner, machine)
        #: The seconds below which no play ends, whatever happens in it.
        self.seconds = max(max(left[0] for left in self._left), max(copies))
        self._first = math.inf
        #: By node and iteration: the ranks that have begun it, and when the first of them did.
        self._begun = [[(0, math.inf)] * pattern.iterations for _ in range(pattern.nodes)]

    @property
    def hopeless(self) -> bool:
        """Whether no play can end in time."""
        return self.seconds > self._most_s

    def begin(self, rank: int, k: int, now: float) -> None:
        """Note that a rank begins iteration `k`. Once all ranks of its node have, the NIC has all of `k` still before it."""
        self._first = min(self._first, now)
        node = rank // self._per_node
        ranks, earliest = self._begun[node][k]
        ranks, earliest = ranks + 1, min(earliest, now)
        self._begun[node][k] = ranks, earliest
        if ranks == self._per_node and earliest - self._first + self._left[node][k] > self._most_s:
            raise CannotWin


def _moved(pattern: Pattern, planner: Planner, machine: Machine) -> tuple[list[list[float]], list[float]]:
    """The seconds by node and iteration in which a NIC sends this iteration's messages and all later ones; of copies by rank."""
    left = [[0.0] * (pattern.iterations + 1) for _ in range(pattern.nodes)]
    copies = [0.0] * pattern.ranks
    for k in reversed(range(pattern.iterations)):
        sent = [0] * pattern.nodes
        for rank, messages in enumerate(pattern.tables[pattern.epochs[k]]):
            for other, nbytes in messages:
                near = pattern.near(rank, other)
                if nbytes <= (EAGER_NEAR if near else EAGER_FAR):
                    continue
                protocol = planner.choose(rank, other, nbytes, k)
                if not near or protocol.name == "loopback":
                    sent[rank // pattern.per_node] += nbytes
                    continue
                mine, theirs = PARTS.get(protocol.name, (protocol.share, 1.0 - protocol.share))
                copies[rank] += mine * nbytes / machine.core
                copies[other] += theirs * nbytes / machine.core
        for node, nbytes in enumerate(sent):
            left[node][k] = left[node][k + 1] + nbytes / machine.nic
    return left, copies
