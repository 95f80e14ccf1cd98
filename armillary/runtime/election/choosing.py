"""Which protocol finds a leader soonest within a memory budget, from times that were measured by simulation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from armillary.errors import InputError

from .broadcast import Broadcast
from .direct import Direct
from .pairwise import Pairwise
from .population.ranking import Ranking
from .tradeoff import Tradeoff
from .tree import Tree


@dataclass(frozen=True)
class Choice:
    """A technique, the parallel time that it is expected to take, and the bits that an agent needs."""

    technique: Ranking
    time: float
    bits: float


def expected_time(technique: Ranking, n: int) -> float:
    """Parallel time from one duplicate rank, by the model of each technique with factors fitted at n = 64 to 8,192."""
    protocol = technique.protocol(n)
    if isinstance(technique, Pairwise):
        return (n - 1) ** 2 / 2
    if isinstance(technique, Tree):
        return FITTED["tree"] * n
    # The duplicates are found in some cycle, and ranks are given near the end of it or of the next one.
    finding = {Tradeoff: 0.0, Direct: n / 2, Broadcast: n / 6}[type(technique)]
    return FITTED["cycles"] * protocol.cycle + finding


#: From `python benchmarks/runtime_election.py`: units per agent of `tree`, and cycles of the clock of the others.
FITTED = {"tree": 6.2, "cycles": 0.85}


def choose(n: int, bits: float = math.inf) -> Choice:
    """The technique, with its ρ, of the least expected time among those with at most `bits` bits per agent."""
    rhos = sorted({2, *(2**k for k in range(1, 11) if 2**k <= math.isqrt(n)), max(2, math.isqrt(n))})
    known: list[Ranking] = [Pairwise(), Tree(), Direct(), Broadcast(), *(Tradeoff(rho=rho) for rho in rhos)]
    fits = [Choice(one, expected_time(one, n), one.protocol(n).bits) for one in known]
    within = [one for one in fits if one.bits <= bits]
    if not within:
        least = min(fits, key=lambda one: one.bits)
        raise InputError(f"found {bits:g} bits; expected at least {least.bits:.4g}, which ranks need for {n} agents", where="bits")
    return min(within, key=lambda one: (one.time, one.bits))
