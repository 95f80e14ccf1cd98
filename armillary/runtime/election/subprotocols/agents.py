"""The variables of an agent, and the constants that follow from the number of agents and from ρ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

#: Modes of an agent: it has a rank, it is being reset, or it waits for a rank.
RANKED, RESET, WAITING = 0, 1, 2
#: Cycles in a row after which a target that was not proved is freed of its tokens, where healing is soft.
PATIENCE = 3


class Constants(NamedTuple):
    """Numbers that all agents know; times are in phases of the clock."""

    n: int
    rho: int
    #: The life of what is heard of a leader, and the interactions of the leader in one phase.
    ttl: int
    ticks: int
    #: Ranks per group of FindTarget, and the first phases of: agreement, Detect, recall, calm, Rank, its serial part, and the next cycle.
    group: int
    agree: int
    detect: int
    recall: int
    calm: int
    claim: int
    serial: int
    cycle: int
    #: From where a reset counts down.
    reset: int
    #: Whether every rank is watched at all times, without a suspicion; whether targets are guessed; whether unproved targets are healed.
    broadcast: bool
    guess: bool
    soft: bool
    intervals: bool
    #: Values of the nonces of leaders and of messages.
    leaders: int
    nonces: int


def constants(
    n: int, rho: int, *, find: bool = True, guess: bool = False, detect: bool = True, broadcast: bool = False, soft: bool = False,
    intervals: bool = True,
) -> Constants:  # fmt: skip
    """The constants of one protocol; without `find` and `detect` a cycle is calm and Rank alone."""
    ln = math.log(n)
    ticks = math.ceil(16 * ln)
    phase = ticks / 2  # parallel time: the leader takes part in two interactions per unit
    group = max(1, math.ceil(math.sqrt(n * ln)))
    groups = math.ceil(n / group) if find and not guess else 0
    agreement = 2 if find else 0
    lasting = math.ceil(4 * n / rho * max(1.0, math.log2(rho)) / phase) if detect else 0
    recalling = 2 if detect else 0
    reset = math.ceil(60 * ln)
    # Meetings keep all counters near the largest, which falls by about 0.9 per unit of time; Rank begins only after a reset is over.
    calming = math.ceil(1.2 * reset / phase) + 1
    spreading = 1 + math.ceil(2 * math.sqrt(n) / phase) if intervals else 1
    slots = math.ceil(0.5 * math.sqrt(n)) + 4 if intervals else n
    starts = [groups]
    for length in (agreement, lasting, recalling, calming, spreading, 2 * slots):
        starts.append(starts[-1] + length)
    agree, at_detect, recall, calm, claim, serial, cycle = starts
    return Constants(
        n, rho, ticks, ticks, group, agree, at_detect, recall, calm, claim, serial, cycle, reset, broadcast, guess, soft, intervals,
        n**3, (n + 1) ** 2,
    )  # fmt: skip


def fields(c: Constants) -> Mapping[str, int | tuple[int, int]]:
    """The number of values of each variable.

    An agent that waits keeps its ticket in `rank` and `last`; messages of FindTarget and the spare ranks and tickets of Rank are never
    under way together and share `carried` and `nonce`.
    """
    found: dict[str, int | tuple[int, int]] = {
        "best": c.leaders, "ttl": c.ttl + 1, "leads": 2, "count": c.ticks, "phase": c.cycle, "mode": 3, "rank": c.n + 1, "last": c.n + 1,
        "reset": c.reset + 1, "carried": c.n + 1, "nonce": c.nonces,
    }  # fmt: skip
    if c.agree > 0 or c.guess:
        found["suspect"] = c.n + 1
    if c.recall > c.detect or c.broadcast:
        found |= {"token_rank": c.n + 1, "token_index": c.rho, "token_sign": c.rho**2, "memory": (c.rho**2 + 1, c.rho)}
    if c.soft:
        found |= {"former": c.n + 1, "streak": PATIENCE + 1}
    return found
