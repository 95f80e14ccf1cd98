"""Protocols as tables of rules, as ppsim and other simulators take them: `{(a, b): (c, d)}`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.kernels import part

from .protocol import Population, Protocol

#: States of a protocol that can be written as rules; their pairs are a million.
MOST_STATES = 1000


class Table(NamedTuple):
    """The next states of both, by the states that they had, and the rank that each state shows."""

    first: npt.NDArray[np.int32]
    second: npt.NDArray[np.int32]
    ranks: npt.NDArray[np.int64]


@part
def meet(agents, memory, u, v, random, constants):  # type: ignore[no-untyped-def]
    """One interaction."""
    a, b = agents[u].state, agents[v].state
    agents[u].state = constants.first[a, b]
    agents[v].state = constants.second[a, b]


@part
def rank_of(agents, u, constants):  # type: ignore[no-untyped-def]
    """The rank that the state stands for."""
    return constants.ranks[agents[u].state]


class RulesProtocol(Protocol):
    """A protocol of few states: `rules` says what two states become, all others stay; `ranks` the rank that a state shows, or 0."""

    interact = meet
    output = rank_of

    def __init__(self, n: int, rules: Mapping[tuple[Any, Any], tuple[Any, Any]], ranks: Mapping[Any, int]) -> None:
        super().__init__(n)
        names = list(dict.fromkeys(itertools.chain(ranks, *rules.keys(), *rules.values())))
        if not 1 <= len(names) <= MOST_STATES:
            raise InputError(f"found {len(names)} states; expected 1 to {MOST_STATES}", where="rules")
        self.names = names
        number = {name: i for i, name in enumerate(names)}
        first = np.repeat(np.arange(len(names), dtype=np.int32)[:, None], len(names), axis=1)
        second = np.ascontiguousarray(first.T)
        for (a, b), (c, d) in rules.items():
            first[number[a], number[b]], second[number[a], number[b]] = number[c], number[d]
        self._ranks = np.array([int(ranks.get(name, 0)) for name in names], np.int64)
        if self._ranks.min() < 0 or self._ranks.max() > n:
            raise InputError(f"found ranks from {self._ranks.min()} to {self._ranks.max()}; expected 0 to {n}", where="ranks")
        self._table = Table(first, second, self._ranks)

    @property
    def fields(self) -> Mapping[str, int | tuple[int, int]]:
        """One variable."""
        return {"state": len(self.names)}

    @property
    def constants(self) -> Any:
        """The table of rules."""
        return self._table

    @property
    def patience(self) -> float:
        """Twenty times what pairwise ranking needs."""
        return 10.0 * self.n**2 + 100

    def ranked(self, ranks: npt.NDArray[np.int64], rng: np.random.Generator) -> Population:
        """Agents in the first state that shows each rank."""
        made = self.empty()
        for u, rank in enumerate(ranks):
            found = np.flatnonzero(self._ranks == rank)
            if not len(found):
                raise InputError(f"found no state that shows rank {rank}; expected one for each rank of the start", where="ranks")
            made.agents["state"][u] = found[0]
        return made


def rules_of(protocol: Protocol) -> tuple[dict[tuple[int, int], tuple[int, int]], dict[int, int]]:
    """(rules, rank by state) of a protocol without random choices; a state is the number of its variables' values."""
    sizes = list(protocol.scalars.values())
    many = int(np.prod(sizes, dtype=np.float64))
    if len(sizes) != len(protocol.fields) or many > MOST_STATES:
        raise InputError(f"found {2 ** min(protocol.bits, 1000):.3g} states; expected at most {MOST_STATES} of single variables")
    kind, made = type(protocol), protocol.empty()
    names, rules, ranks = list(protocol.scalars), {}, {}
    pair = made.agents[:2].copy() if protocol.n > 2 else made.agents.copy()
    untouched = np.arange(1, 5, dtype=np.uint64)
    random = untouched.copy()

    def put(u: int, state: int) -> None:
        for name, value in zip(names, np.unravel_index(state, sizes)):
            pair[u][name] = value

    def taken(u: int) -> int:
        return int(np.ravel_multi_index(tuple(int(pair[u][name]) for name in names), sizes))

    for a in range(many):
        put(0, a)
        ranks[a] = int(kind.output(pair, 0, protocol.constants))
        for b in range(many):
            put(0, a)
            put(1, b)
            kind.interact(pair, made.memory, 0, 1, random, protocol.constants)
            if (taken(0), taken(1)) != (a, b):
                rules[a, b] = (taken(0), taken(1))
    if (random != untouched).any():
        raise InputError("the protocol draws random numbers; expected one without")
    return rules, ranks
