"""Minimal routing: every packet takes the channel that joins its group with the destination's, however full it is.

Paths have at most three hops, local, global, local. That is the best there is as long as packets are for groups in equal shares. If all
nodes of a group send to one other group, a single channel carries everything, and 1/(a·p) of the load is accepted. Between parallel
channels it chooses at random. If all channels between two groups have failed, packets go by way of a random third group.

Technology-Driven, Highly-Scalable Dragonfly Topology, ISCA 2008.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.kernels import part

from .simulation.paths import follow, go_minimal, settled, undecided
from .simulation.routing import Routing


@part
def decide(s, r, p):  # type: ignore[no-untyped-def]
    """The next hop on the minimal path."""
    if undecided(s, p):
        done, channel = settled(s, r, p)
        if not done:
            go_minimal(s, p, channel)
    return follow(s, r, p)


@dataclass(frozen=True)
class Min(Routing):
    """Minimal paths only."""

    decide = decide
