"""CPLX: start from the best contiguous placement, and re-balance only the worst X % of the ranks.

LPT balances but scatters blocks, and contiguous placement leaves hot ranks. CPLX takes CDP's placement, chooses the heaviest ranks together
with as many of the lightest ones as make their mean the overall mean, and lets LPT spread the blocks of the chosen ranks over these ranks.
The other blocks stay where locality wants them. X is the dial between the two: 0 is CDP, 100 is close to LPT.

Lessons from Profiling and Optimizing Placement in AMR Codes (CPLX), IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.arena import Claim, Gain, Kind, Level
from armillary.kernels import loop
from armillary.parameters import parameter

from .cdp import EVEN, MOST_CHUNK, cdp
from .lpt import spread
from .octree.mesh import Floats, Ints
from .placement.policy import Policy, State, checked, loads


def cplx(
    costs: Floats, ranks: int, x: float = 50.0, *, chunk: int = 512, even: str = "contiguous", threshold: float = 0.02,
    alternatives: int = 0,
) -> Ints:  # fmt: skip
    """The rank of each block."""
    return rebalanced(costs, cdp(costs, ranks, chunk, even), ranks, x, threshold, alternatives)


def rebalanced(costs: Floats, start: Ints, ranks: int, x: float, threshold: float = 0.02, alternatives: int = 0) -> Ints:
    """The placement `start` after LPT on the worst x percent of the ranks.

    With `alternatives`, up to so many times half as many ranks are chosen, as long as the maximum does not exceed the first solution's.
    """
    load = loads(costs, start, ranks)
    most = int(ranks * x / 100)
    chosen = select(load, most, threshold)
    placement = _spread_over(costs, start, chosen, ranks)
    bound = loads(costs, placement, ranks).max()
    for _ in range(alternatives):
        if len(chosen) < 2:
            break
        chosen = select(load, len(chosen) // 2, threshold)
        smaller = _spread_over(costs, start, chosen, ranks)
        if loads(costs, smaller, ranks).max() > bound:
            break
        placement = smaller
    return placement


def select(load: Floats, most: int, threshold: float = 0.02) -> Ints:
    """At most `most` ranks to re-balance: the heavy ones by decreasing load, then the light ones by decreasing load."""
    order = np.argsort(-load, kind="stable")
    heavy, light = _grown(load[order], most, threshold)
    return np.concatenate([order[:heavy], order[len(order) - light :]])


@loop
def _grown(load, most, threshold):  # type: ignore[no-untyped-def]
    """The number of ranks taken from the front and from the back of loads in decreasing order."""
    if most < 1:
        return 0, 0
    mean = load.mean()
    front, back = 1, 0
    total = load[0]
    while front + back < most:
        next_heavy, next_light = load[front], load[len(load) - 1 - back]
        chosen = total / (front + back)
        if chosen > mean:
            total += next_light
            back += 1
        elif chosen < mean:
            total += next_heavy
            front += 1
        else:
            break
        if next_heavy - mean < threshold * mean and mean - next_light < threshold * mean:
            break
    return front, back


def _spread_over(costs: Floats, start: Ints, chosen: Ints, ranks: int) -> Ints:
    placement = start.copy()
    if len(chosen) > 1:
        among = np.zeros(ranks, bool)
        among[chosen] = True
        spread(costs, np.flatnonzero(among[start]), chosen, placement)
    return placement


@dataclass(frozen=True)
class Cplx(Policy):
    """Re-balances the worst X % of the ranks of the best contiguous placement."""

    x: float = parameter(50.0, "percentage of the ranks that may be re-balanced", range=(0, 100))
    chunk: int = parameter(512, "ranks that CDP solves together", range=(1, MOST_CHUNK))
    threshold: float = parameter(0.02, "share of the mean load below which no rank is worth adding", range=(0, 1))
    alternatives: int = parameter(0, "how often half as many ranks are tried", range=(0, 32))
    even: str = parameter("contiguous", "what CDP does if the ranks divide the blocks", choices=EVEN)

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "step_us", over=("baseline", "contiguous"), by=Gain(percent=(21.6, None)), aggregate="max", on=Kind("amr"), honest=(12, 35),
            part=3, why="message costs are assumed; above 35 % communication is missing", says="up to 21.6 % less run time",
            source="abstract",
        ),
        Claim(
            "step_us", over=("cdp", "lpt"), by=Gain(percent=(1, 20)), on=Kind("dial"), part=0, says="the dial beats both its ends",
            why="the paper gives no figure over both ends; any gain over the better end is what the dial is for",
        ),
        Claim("place_ms", by=Level(at_most=50), on=Kind("wide"), says="placed within 50 ms at 4,096 ranks", source="abstract"),
        Claim(
            "step_us", over=("baseline", "cyclic", "contiguous", "contiguous-best", "cdp", "lpt", "metis"), by=Gain(ratio=(1.0, None)),
            on=Kind("dial"), source="ours", says="faster than every other policy",
        ),
        Claim(
            "step_us", over="baseline", by=Gain(ratio=(0.95, None)), on=Kind("misfit"), source="ours",
            says="at most 5 % slower than unit costs where the costs known are wrong",
        ),
    )  # fmt: skip

    def place(self, state: State) -> Ints:
        """The rank of each block."""
        return self.at(state, self.x)

    def at(self, state: State, x: float) -> Ints:
        """The rank of each block with another x."""
        costs = checked(state.costs, state.ranks)
        return cplx(
            costs, state.ranks, x, chunk=self.chunk, even=self.even, threshold=self.threshold, alternatives=self.alternatives,
        )  # fmt: skip
