"""A protocol made of the sub-protocols, with the ones that its technique has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.runtime.election.population.protocol import Population, Protocol, always

from .agents import Constants, fields
from .detect import tokens_agree
from .meeting import meeting, rank_of


class Clocked(Protocol):
    """A protocol over the variables of `agents.fields`; subclasses fix what is compiled."""

    output = rank_of
    wide = frozenset({"best", "nonce"})

    def __init__(self, c: Constants) -> None:
        super().__init__(c.n)
        self._constants = c

    @property
    def fields(self) -> Mapping[str, int | tuple[int, int]]:
        """The number of values of each variable."""
        return fields(self._constants)

    @property
    def constants(self) -> Any:
        """The numbers that all agents know."""
        return self._constants

    @property
    def cycle(self) -> float:
        """The parallel time of one cycle of the clock."""
        return self._constants.cycle * self._constants.ticks / 2

    @property
    def patience(self) -> float:
        """Forty cycles, and ten times as long as two agents of one rank need to meet."""
        return 40 * self.cycle + 10 * self.n

    def ranked(self, ranks: npt.NDArray[np.int64], rng: np.random.Generator) -> Population:
        """Agents with these ranks, under a right clock that is somewhere in its cycle."""
        made, c = self.empty(), self._constants
        a = made.agents
        a["rank"], a["last"] = ranks, ranks
        a["best"], a["ttl"] = rng.integers(0, c.leaders), max(1, c.ttl - 4)
        a["phase"] = rng.integers(0, c.cycle)
        leader = rng.integers(0, c.n)
        a["leads"][leader], a["ttl"][leader] = 1, c.ttl
        return made

    def begin(self, start: str, rng: np.random.Generator) -> Population:
        """The population as it starts, which may poison or starve Detect."""
        made = super().begin(start, rng)
        if start == "two-leaders":
            a, c = made.agents, self._constants
            second = rng.choice(np.flatnonzero(a["leads"] == 0))
            a["leads"][second], a["ttl"][second], a["best"][second] = 1, c.ttl, rng.integers(0, c.leaders)
        if start in ("poisoned", "starved") and "memory" in self.fields:
            _spoil(made, self._constants, rng, tokens=start == "poisoned")
        return made


def _spoil(made: Population, c: Constants, rng: np.random.Generator, *, tokens: bool) -> None:
    """Both agents of the rank that is there twice remember the same tokens, which are all out, or are gone."""
    a = made.agents
    ranks, many = np.unique(a["rank"], return_counts=True)
    twice = ranks[many == 2][0]
    signs = rng.integers(0, c.rho**2, c.rho)
    made.memory[a["rank"] == twice] = signs + 1
    if tokens:
        others = rng.permutation(np.flatnonzero(a["rank"] != twice))[: c.rho]
        for i, u in enumerate(others):
            a["token_rank"][u], a["token_index"][u], a["token_sign"][u] = twice, i, signs[i]


def compiled_class(name: str, *, find: bool, tokens: bool, soft: bool) -> type[Clocked]:
    """A class of protocols with these sub-protocols."""
    return type(name, (Clocked,), {"interact": meeting(find, tokens, soft), "consistent": tokens_agree if tokens else always})
