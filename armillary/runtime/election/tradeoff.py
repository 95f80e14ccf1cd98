"""The complementary time-space trade-off: polynomial states meet sublinear time.

Noticing that two agents share a rank is the bottleneck, because they meet once in n/2 units of time. So one rank is *suspected* first, fast
and fallibly (FindTarget), and then *proved* to be there twice, without error, by ρ witnesses of each of its agents, whose contradiction
shows ρ times sooner (Detect); only a proof resets the ranking (Rank). A phase clock kept by a loosely stabilising leader runs them in turn.

Complementary Time-Space Tradeoff for Self-Stabilizing Leader Election: Polynomial States Meet Sublinear Time, arXiv 2505.23649. The names
of the sub-protocols, the search for collisions by square-root decomposition that FindTarget modifies, and the bounds are published. What
the sub-protocols do in detail is our reading: see `subprotocols`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from armillary.arena import Claim, Exponent, Gain, Kind, Level, parameter

from .population.ranking import Ranking
from .subprotocols.agents import constants
from .subprotocols.clocked import Clocked, compiled_class


@functools.cache
def _class(find: bool, tokens: bool, soft: bool) -> type[Clocked]:
    return compiled_class("TradeoffProtocol", find=find, tokens=tokens, soft=soft)


@dataclass(frozen=True)
class Tradeoff(Ranking):
    """Suspect a rank fast, prove it with ρ witnesses, and only then reset."""

    rho: int = parameter(0, "witnesses per agent of the suspect rank, at most √n; 0 takes the whole part of √n", range=(0, 1024))
    heal: str = parameter("never", "whether a rank that is suspected in vain again and again loses its tokens", choices=("never", "soft"))
    find: bool = parameter(True, "suspect by FindTarget; otherwise the leader guesses a rank")
    intervals: bool = parameter(True, "give ranks by halving intervals first; otherwise one after another")

    claims = (
        Claim(
            "stabilisation_time", by=Exponent("agents", at_most=0.75), on=Kind("fed"), scale="large", source="abstract",
            says="O((n/ρ) log ρ) time: with ρ = √n it grows as √n log n, whose slope is 0.64 here; from every start but the starved one",
        ),
        Claim(
            "detect_time", by=Exponent("rho", at_most=-0.75), on=Kind("ladder"), scale="large", source="abstract",
            says="a proof takes time in proportion to 1/ρ: eight times less for sixteen times the witnesses",
        ),
        Claim(
            "bits_over_rival", by=Level(at_most=1.0), on=Kind("many"), scale="large", source="abstract",
            says="fewer states than the other trade-off at equal time, 2^(ρ'² lg n) with ρ' = ρ lg n/lg ρ",
        ),
        Claim(
            "bits_over_lg_n", by=Level(at_most=12.0), on=Kind("rho-2"), scale="large", source="abstract",
            says="polynomial states for the least ρ: at most n^12",
        ),
        Claim(
            "stabilisation_time", over=("tree", "direct", "broadcast"), by=Gain(ratio=(1.0, None)), on=Kind("fed"), scale="large",
            source="ours", says="sooner than every other protocol that such populations can wait for, at 256 to 8,192 agents",
        ),
        Claim(
            "stabilisation_time", over="pairwise", by=Gain(ratio=(1.0, None)), on=Kind("fed", "few"), scale="large", source="ours",
            says="sooner than pairwise ranking at 256 and 512 agents, beyond which that one takes minutes to simulate",
        ),
        Claim(
            "success", by=Level(at_least=1.0), on=Kind("stabilising"), scale="large", source="definition",
            says="from every start, every run comes to right ranks and keeps them",
        ),
    )  # fmt: skip

    def protocol(self, n: int) -> Clocked:
        """The protocol for n agents."""
        rho = checked_rho(self.rho or max(2, math.isqrt(n)), n)
        made = constants(n, rho, guess=not self.find, soft=self.heal == "soft", intervals=self.intervals)
        return _class(True, True, self.heal == "soft")(made)


def checked_rho(rho: int, n: int) -> int:
    """ρ, if it lies within 2 and √n."""
    from armillary.errors import InputError

    if not 2 <= rho <= max(2, math.isqrt(n)):
        raise InputError(f"found {rho}; expected 2 to √n, {max(2, math.isqrt(n))} for {n} agents", where="rho")
    return rho
