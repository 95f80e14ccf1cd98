"""A clock without a fixed leader: whoever hears of none leads, the largest nonce wins, and the leader's interactions count the time.

It may be wrong at any time, and then only costs time: nothing that it says can undo right ranks.
"""

from __future__ import annotations

from armillary.kernels import part
from armillary.runtime.election.population.randomness import below

#: Phases that agents may be apart under a right clock.
NEAR = 2


@part
def tick(agents, u, c):  # type: ignore[no-untyped-def]
    """The leader renews its nonce and counts; returns whether a phase is over."""
    agents[u].ttl = c.ttl
    over = agents[u].count + 1 >= c.ticks
    agents[u].count = 0 if over else agents[u].count + 1
    return over


@part
def hear(agents, u, v, random, c):  # type: ignore[no-untyped-def]
    """Of two leaders known, the larger nonce wins; what is known ages by one; whoever knows of none leads."""
    a, b = agents[u].best, agents[v].best
    if a != b:
        w, x = (u, v) if a > b else (v, u)
        agents[x].best = agents[w].best
        agents[x].leads = 0
        agents[x].ttl = max(agents[w].ttl - 1, 0)
    else:
        if agents[u].leads == 1 and agents[v].leads == 1:
            agents[v].leads = 0
        life = max(max(agents[u].ttl, agents[v].ttl) - 1, 0)
        for w in (u, v):
            if agents[w].leads == 0:
                agents[w].ttl = life
    for w in (u, v):
        if agents[w].ttl == 0 and agents[w].leads == 0:
            agents[w].leads = 1
            agents[w].best = below(random, c.leaders)
            agents[w].ttl = c.ttl
            agents[w].count = 0


@part
def behind(agents, u, v, c):  # type: ignore[no-untyped-def]
    """Which of the two takes the other's phase: 0 none, 1 the first, 2 the second.

    Of phases that a right clock can produce together, the later one counts. Phases that are further apart are a fault, and then the agent
    is believed that leads or that knew the larger nonce, and otherwise the initiator. If the later phase counted there as well, phases
    would chase each other round the cycle.
    """
    ahead = (agents[v].phase - agents[u].phase) % c.cycle
    if ahead == 0:
        return 0
    if min(ahead, c.cycle - ahead) <= NEAR:
        return 1 if ahead <= NEAR else 2
    if agents[u].ttl != agents[v].ttl:
        return 1 if agents[u].ttl < agents[v].ttl else 2
    return 2
