"""Pairwise ranking: of two agents with one rank, the responder takes the next. n states, and Θ(n²) parallel time.

The oldest self-stabilising ranking; its expected time from the ranks 1, 1, 2, …, n − 1 is exactly (n − 1)²/2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.arena import Claim, Exponent, Kind
from armillary.kernels import part

from .population.protocol import Population, Protocol
from .population.ranking import Ranking


class Size(NamedTuple):
    """What the interaction is given."""

    n: int


@part
def meet(agents, memory, u, v, random, constants):  # type: ignore[no-untyped-def]
    """One interaction."""
    if agents[u].rank == agents[v].rank:
        agents[v].rank = (agents[u].rank + 1) % constants.n


@part
def rank_of(agents, u, constants):  # type: ignore[no-untyped-def]
    """The rank, from 1."""
    return np.int64(agents[u].rank) + 1


class PairwiseProtocol(Protocol):
    """n states: the rank alone."""

    interact = meet
    output = rank_of

    @property
    def fields(self) -> Mapping[str, int | tuple[int, int]]:
        """The rank less one."""
        return {"rank": self.n}

    @property
    def constants(self) -> Any:
        """The number of agents."""
        return Size(self.n)

    @property
    def patience(self) -> float:
        """Twenty times the expected time."""
        return 10.0 * self.n**2 + 100

    def ranked(self, ranks: npt.NDArray[np.int64], rng: np.random.Generator) -> Population:
        """Agents with these ranks."""
        made = self.empty()
        made.agents["rank"] = ranks - 1
        return made


@dataclass(frozen=True)
class Pairwise(Ranking):
    """Of two agents with one rank, the responder takes the next (Cai, Izumi and Wada, 2012)."""

    claims = (
        Claim(
            "stabilisation_time", by=Exponent("agents", at_least=1.8), on=Kind("fed", "few"), scale="large", source="theory",
            says="quadratic time",
        ),
    )  # fmt: skip

    def protocol(self, n: int) -> PairwiseProtocol:
        """The protocol for n agents."""
        return PairwiseProtocol(n)
