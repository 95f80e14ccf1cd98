"""What a routing is: a class with a compiled `decide(state, router, packet)`, and its loop, which is compiled once for each class.

    @part
    def decide(s, r, p):
        if undecided(s, p):
            ...                       # choose: go_minimal(s, p, channel) or go_detour(s, p, first, second)
        return follow(s, r, p)        # (port, virtual channel, tag)

`tick(state)` runs once per cycle before any decision, for counters and for status that routers exchange. A class may set `memory`, the
numbers of whole and real numbers of its own that it keeps in `state.own` and `state.real`, and `window_cycles`: then `adapt` is called
after so many cycles, and may set what `decide` reads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.arena import Technique
from armillary.kernels import loop, part

from ..fabric.network import Network
from .cycle import allocate, arrive, ask, send
from .sources import generate
from .state import BUSY, CYCLE, FREE_COUNT, FRESH, QUEUE_HEAD, ROUTER, State

#: Thresholds beyond this are infinite.
INFINITE = 1 << 40


@part
def no_tick(s):  # type: ignore[no-untyped-def]
    """For routings without counters and status."""


@dataclass(frozen=True)
class Routing(Technique):
    """A routing algorithm: how a packet is led from its router."""

    #: The compiled functions.
    decide: ClassVar[Any] = None
    tick: ClassVar[Any] = no_tick

    def settings(self, net: Network, flits: int) -> list[int]:
        """The parameters as whole numbers for `state.settings`; thresholds of queues are in flits, so they are scaled by a packet's."""
        return []

    def memory(self, net: Network) -> tuple[int, int]:
        """How many whole and real numbers the routing keeps."""
        return 0, 0

    def status_cycles(self, net: Network) -> int:
        """Cycles between two exchanges of status; 0 if none is exchanged."""
        return 0

    def extra_cycles(self) -> int:
        """Cycles that a decision takes beyond what every router takes."""
        return 0

    def window_cycles(self) -> int:
        """Cycles after which `adapt` is called; 0 for never."""
        return 0

    def adapt(self, state: State) -> None:
        """Called after each window."""


def scaled(threshold: float, flits: int) -> int:
    """A threshold in packets, as a whole number of flits."""
    return INFINITE if threshold * flits >= INFINITE else int(np.floor(threshold * flits))


def loop_of(routing: Routing | type[Routing]) -> Callable[[State, int], int]:
    """The compiled loop of a routing: `run(state, until)`; 0 when done, 1 when it needs more rows for packets."""
    found = routing if isinstance(routing, type) else type(routing)
    return _loop_of(found.__dict__.get("decide", found.decide), found.tick)


@functools.cache
def _loop_of(decide: Any, tick: Any) -> Callable[[State, int], int]:
    @loop
    def run(s, until):  # type: ignore[no-untyped-def]
        n = s.n
        nodes = len(s.node_port)
        while n[CYCLE] < until:
            if n[FREE_COUNT] < 3 * nodes:
                return 1
            send(s)
            arrive(s)
            generate(s)
            tick(s)
            for half in range(2 * n[CYCLE], 2 * n[CYCLE] + 2):
                for i in range(n[FRESH]):
                    q = s.fresh[i]
                    p = s.queue[q, QUEUE_HEAD]
                    port, channel, tag = decide(s, np.int64(s.port[q // 5, ROUTER]), np.int64(p))
                    ask(s, np.int64(q), p, np.int64(port), np.int64(channel), tag)
                n[FRESH] = 0
                allocate(s, half)
            n[CYCLE] += 1
        return 0

    found: Callable[[State, int], int] = run
    return found


__all__ = ["BUSY", "INFINITE", "Routing", "loop_of", "no_tick", "scaled"]
