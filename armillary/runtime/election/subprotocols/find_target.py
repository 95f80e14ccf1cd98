"""FindTarget: suspects one rank that two agents share, fast and fallibly.

Ranks are cut into groups of √(n ln n), one per phase. Agents of the phase's group send their rank with a nonce; an agent that carries
nothing copies what it meets. Two crowds with one rank and two nonces meet soon, at a rate of 1/ln n, and that rank is suspect.

Agents enter a phase one after another. If they copied at once, the first few senders would be copied by nearly everybody, and most crowds
would be too small to meet. So an agent listens only after 4 ln n interactions of its own, when all senders are there. (The wait is ours.)
"""

from __future__ import annotations

from armillary.kernels import part
from armillary.runtime.election.population.randomness import below

from .agents import RANKED


@part
def begin_group(agents, u, random, c):  # type: ignore[no-untyped-def]
    """On entering the phase of a group."""
    a = agents[u]
    a.carried, a.nonce = 0, 0
    if a.leads == 0:
        a.count = 0
    if a.phase == 0:
        a.suspect = 0
    if a.mode == RANKED and (a.rank - 1) // c.group == a.phase:
        a.carried = a.rank
        a.nonce = below(random, c.nonces)


@part
def pass_on(agents, u, v, c):  # type: ignore[no-untyped-def]
    """Messages are copied, and two of one rank with two nonces make it suspect.

    The leader counts its interactions for the clock anyway; all others count theirs in the same variable.
    """
    a, b = agents[u], agents[v]
    for w in (u, v):
        if agents[w].leads == 0:
            agents[w].count = min(agents[w].count + 1, c.ticks - 1)
    wait = c.ticks // 4
    if a.carried != 0 and b.carried == 0:
        if b.count >= wait:
            b.carried, b.nonce = a.carried, a.nonce
    elif b.carried != 0 and a.carried == 0:
        if a.count >= wait:
            a.carried, a.nonce = b.carried, b.nonce
    elif a.carried != 0 and a.carried == b.carried and a.nonce != b.nonce:
        suspect(agents, u, a.carried)


@part
def suspect(agents, u, rank):  # type: ignore[no-untyped-def]
    """The smallest suspect rank counts."""
    if agents[u].suspect == 0 or rank < agents[u].suspect:
        agents[u].suspect = rank


@part
def spread_suspicion(agents, u, v):  # type: ignore[no-untyped-def]
    """Both hold the smaller suspect rank."""
    a, b = agents[u].suspect, agents[v].suspect
    if a != b:
        found = max(a, b) if min(a, b) == 0 else min(a, b)
        agents[u].suspect, agents[v].suspect = found, found
