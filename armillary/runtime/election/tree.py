"""The silent ranking in linear time and states: a settled agent of rank i hands ranks 2i and 2i + 1 to agents that have none.

Two settled agents of one rank, or an agent that waits in vain, start a reset: a counter spreads, then everyone lies dormant while
candidates for rank 1 meet and give way; who wakes as the candidate settles at rank 1, all others wait for a rank.

Burman, Chen, Chen, Doty, Nowak, Severson and Xu, Time-Optimal Self-Stabilizing Leader Election in Population Protocols, PODC 2021. The
lengths of dormancy and of waiting are ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.arena import Claim, Exponent, Kind
from armillary.kernels import part

from .population.protocol import Population, Protocol
from .population.ranking import Ranking

#: Roles. `main` is the rank of a settled agent, the patience of an unsettled one, and the sleep of one that is being reset; `extra` is the
#: number of children of a settled agent and the counter of one that is being reset.
SETTLED, UNSETTLED, RESETTING = 0, 1, 2


class Lengths(NamedTuple):
    """The number of agents, the patience of who has no rank, the counter of a reset, and the own interactions of dormancy."""

    n: int
    patience: int
    reset: int
    sleep: int


@part
def begin(agents, u, c):  # type: ignore[no-untyped-def]
    """Agent u starts a reset."""
    a = agents[u]
    a.role, a.main, a.extra, a.candidate = RESETTING, c.sleep, c.reset, 1


@part
def wake(agents, u, c):  # type: ignore[no-untyped-def]
    """A dormant agent settles at rank 1 if it is the candidate, and waits for a rank otherwise."""
    a = agents[u]
    if a.candidate == 1:
        a.role, a.main, a.extra = SETTLED, 1, 0
    else:
        a.role, a.main, a.extra = UNSETTLED, c.patience, 0
    a.candidate = 0


@part
def spread(agents, u, v, c):  # type: ignore[no-untyped-def]
    """One or both are being reset."""
    a, b = agents[u], agents[v]
    # Who spreads the reset draws others in; both then count one below the larger counter.
    for w, x in ((u, v), (v, u)):
        if agents[w].role == RESETTING and agents[w].extra > 0 and agents[x].role != RESETTING:
            begin(agents, x, c)
            agents[x].extra = 0
    if a.role == RESETTING and b.role == RESETTING:
        left = max(max(a.extra, b.extra) - 1, 0)
        for w in (u, v):
            if agents[w].extra > 0 and left == 0:
                agents[w].main = c.sleep  # It falls asleep now.
            agents[w].extra = left
        if a.candidate == 1 and b.candidate == 1:
            b.candidate = 0
    # The dormant wake by themselves, or by meeting one that is awake.
    awake = a.role != RESETTING or b.role != RESETTING
    for w in (u, v):
        if agents[w].role == RESETTING and agents[w].extra == 0:
            agents[w].main = max(agents[w].main - 1, 0)
            if agents[w].main == 0 or awake:
                wake(agents, w, c)


@part
def adopt(agents, u, v, c):  # type: ignore[no-untyped-def]
    """Settled u gives unsettled v the next rank of its two children."""
    a, b = agents[u], agents[v]
    if a.role == SETTLED and b.role == UNSETTLED and a.extra < 2:
        rank = 2 * a.main + a.extra
        if rank <= c.n:
            a.extra += 1
            b.role, b.main, b.extra = SETTLED, rank, 0


@part
def meet(agents, memory, u, v, random, constants):  # type: ignore[no-untyped-def]
    """One interaction."""
    c = constants
    a, b = agents[u], agents[v]
    if a.role == RESETTING or b.role == RESETTING:
        spread(agents, u, v, c)
        return
    # A settled agent's variables can hold no rank, or more children than two, only in a corrupted state.
    wrong = False
    for w in (u, v):
        if agents[w].role == SETTLED:
            wrong = wrong or agents[w].main < 1 or agents[w].main > c.n or agents[w].extra > 2
    if wrong or (a.role == SETTLED and b.role == SETTLED and a.main == b.main):
        begin(agents, u, c)
        begin(agents, v, c)
        return
    adopt(agents, u, v, c)
    adopt(agents, v, u, c)
    for w in (u, v):
        if agents[w].role == UNSETTLED:
            agents[w].main = max(agents[w].main - 1, 0)
            if agents[w].main == 0:
                begin(agents, w, c)


@part
def rank_of(agents, u, constants):  # type: ignore[no-untyped-def]
    """The rank of a settled agent."""
    main = np.int64(agents[u].main)
    return main if agents[u].role == SETTLED and main <= len(agents) else np.int64(0)


@part
def settled(agents, memory, constants):  # type: ignore[no-untyped-def]
    """Whether nobody counts more children than there can be."""
    worst = 0
    for u in range(len(agents)):
        worst = max(worst, agents[u].extra)
    return worst <= 2


class TreeProtocol(Protocol):
    """Ranks as places in a binary tree."""

    interact = meet
    output = rank_of
    consistent = settled

    @property
    def constants(self) -> Any:
        """The lengths of waiting, resetting and sleeping."""
        return Lengths(self.n, 20 * self.n, math.ceil(60 * math.log(self.n)), 8 * self.n)

    @property
    def fields(self) -> Mapping[str, int | tuple[int, int]]:
        """The number of values of each variable; roles share `main` and `extra`."""
        return {"role": 3, "main": 20 * self.n + 1, "extra": max(3, self.constants.reset + 1), "candidate": 2}

    @property
    def patience(self) -> float:
        """A reset and a new tree take less than ten units per agent; there may be several."""
        return 400.0 * self.n + 1000

    def ranked(self, ranks: npt.NDArray[np.int64], rng: np.random.Generator) -> Population:
        """Settled agents with these ranks, none of which has a child to place."""
        made = self.empty()
        made.agents["role"], made.agents["main"], made.agents["extra"] = SETTLED, ranks, 2
        return made


@dataclass(frozen=True)
class Tree(Ranking):
    """Ranks as places in a binary tree, in linear time and with O(n) states (PODC 2021)."""

    claims = (
        Claim(
            "stabilisation_time", by=Exponent("agents", at_least=0.9), on=Kind("fed"), scale="large", source="theory", says="linear time",
        ),
    )  # fmt: skip

    def protocol(self, n: int) -> TreeProtocol:
        """The protocol for n agents."""
        return TreeProtocol(n)
