"""Rank: gives ranks to agents that have none, fast and fallibly.

The leader takes the interval [1, n]; whoever has more than one rank gives the upper half to an agent without any. After 2√n time about
√n/2 agents are left out; they draw tickets, and in each slot of two phases the largest ticket gets the smallest rank that is to spare.
Whoever has none at the end begins another reset.
"""

from __future__ import annotations

from armillary.kernels import part
from armillary.runtime.election.population.randomness import below

from .agents import RANKED, WAITING


@part
def claim(agents, u, c):  # type: ignore[no-untyped-def]
    """On entering Rank: the leader takes all ranks if it waits for one."""
    a = agents[u]
    if a.leads == 1 and a.mode == WAITING:
        a.mode, a.rank, a.last = RANKED, 1, c.n


@part
def halve(agents, u, v):  # type: ignore[no-untyped-def]
    """The one gives the upper half of its ranks to the other, which waits."""
    a, b = agents[u], agents[v]
    if a.mode == RANKED and b.mode == WAITING and a.last > a.rank:
        middle = (a.rank + a.last) // 2
        b.mode, b.rank, b.last = RANKED, middle + 1, a.last
        a.last = middle


@part
def begin_slot(agents, u, random, c):  # type: ignore[no-untyped-def]
    """On entering a slot of the serial part: a spare rank or a ticket is shown."""
    a = agents[u]
    a.carried, a.nonce = 0, 0
    if a.mode == RANKED and a.last > a.rank:
        a.carried = a.last
    elif a.mode == WAITING:
        ticket = 1 + below(random, c.nonces - 1)
        a.rank, a.last = ticket // (c.n + 1), ticket % (c.n + 1)
        a.nonce = ticket


@part
def spread_slot(agents, u, v):  # type: ignore[no-untyped-def]
    """Both know the smaller spare rank and the larger ticket."""
    a, b = agents[u], agents[v]
    if a.carried != b.carried:
        spare = max(a.carried, b.carried) if min(a.carried, b.carried) == 0 else min(a.carried, b.carried)
        a.carried, b.carried = spare, spare
    if a.nonce != b.nonce:
        ticket = max(a.nonce, b.nonce)
        a.nonce, b.nonce = ticket, ticket


@part
def end_slot(agents, u, c):  # type: ignore[no-untyped-def]
    """On leaving a slot: the largest ticket takes the spare rank, whose holder gives it up."""
    a = agents[u]
    if a.carried == 0 or a.nonce == 0:
        return
    if a.mode == WAITING and a.rank * (c.n + 1) + a.last == a.nonce:
        a.mode, a.rank, a.last = RANKED, a.carried, a.carried
    elif a.mode == RANKED and a.last > a.rank and a.last == a.carried:
        a.last -= 1
