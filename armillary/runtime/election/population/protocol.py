"""What a protocol is: the variables of an agent, what two agents do when they meet, and the rank that an agent shows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown
from armillary.kernels import part

MOST_AGENTS = 1 << 20
#: Of the variable that has several values, over all agents.
MOST_BYTES = 1 << 30
STARTS = ("all-one", "one-duplicate", "random-ranks", "random-state", "two-leaders", "poisoned", "starved")
Agents = npt.NDArray[Any]
Memory = npt.NDArray[np.uint32]


@dataclass
class Population:
    """The state of all agents: one record per agent, and for each agent a row of the variable that has several values, if there is one."""

    agents: Agents
    memory: Memory

    def copy(self) -> Population:
        """The same state, apart."""
        return Population(self.agents.copy(), self.memory.copy())


@part
def always(agents, memory, constants):  # type: ignore[no-untyped-def]
    """Nothing but ranks can be inconsistent."""
    return True


class Protocol(ABC):
    """A protocol for a population of known size.

    `fields` says of each variable how many values it has, 0 being the first; one variable may be a tuple (values, how many of it). There is
    no other state. Three functions are compiled: `interact(agents, memory, u, v, random, constants)` changes agents u (the initiator) and
    v; `output(agents, u, constants)` gives the rank that u shows, or 0; and `consistent(agents, memory, constants)` says whether nothing
    hidden can still undo ranks that are all different.
    """

    interact: ClassVar[Callable[..., None]]
    output: ClassVar[Callable[..., int]]
    consistent: ClassVar[Callable[..., bool]] = always
    #: The variables that need more than 31 bits for the largest populations.
    wide: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, n: int) -> None:
        if not 2 <= n <= MOST_AGENTS:
            raise InputError(f"found {n}; expected 2 to {MOST_AGENTS:,} agents", where="n")
        self.n = n

    @property
    @abstractmethod
    def fields(self) -> Mapping[str, int | tuple[int, int]]:
        """The number of values of each variable."""

    @property
    @abstractmethod
    def constants(self) -> Any:
        """What `interact` is given besides the state: a named tuple."""

    @property
    @abstractmethod
    def patience(self) -> float:
        """The parallel time after which a run is given up."""

    @abstractmethod
    def ranked(self, ranks: npt.NDArray[np.int64], rng: np.random.Generator) -> Population:
        """Agents that show these ranks and are otherwise at rest."""

    @property
    def cycle(self) -> float:
        """The parallel time in which the protocol does everything once that it does by a clock; 0 without a clock."""
        return 0.0

    @property
    def bits(self) -> float:
        """lg of the number of states of an agent."""
        sizes = (size if isinstance(size, tuple) else (size, 1) for size in self.fields.values())
        return math.fsum(many * math.log2(values) for values, many in sizes)

    @property
    def scalars(self) -> dict[str, int]:
        """The variables with one value each."""
        return {name: size for name, size in self.fields.items() if isinstance(size, int)}

    def empty(self) -> Population:
        """All variables of all agents at 0."""
        rows = [one for one in self.fields.values() if isinstance(one, tuple)]
        if len(rows) > 1:
            raise TypeError("a protocol has at most one variable with several values")
        if rows and self.n * rows[0][1] * 4 > MOST_BYTES:
            raise InputError(
                f"{rows[0][1]} values per agent need {self.n * rows[0][1] * 4 / 1e9:.1f} GB for {self.n:,} agents; "
                f"expected at most {MOST_BYTES / 1e9:.1f} GB, which a smaller rho keeps to",
                where="rho",
            )
        # Widths do not depend on the number of agents, or every size would be compiled anew.
        kinds = [(name, np.int64 if name in self.wide else np.int32) for name in self.scalars]
        return Population(np.zeros(self.n, np.dtype(kinds, align=True)), np.zeros((self.n, rows[0][1] if rows else 1), np.uint32))

    def random_state(self, rng: np.random.Generator) -> Population:
        """Every variable of every agent drawn from all of its values."""
        made = self.empty()
        for name, size in self.fields.items():
            if isinstance(size, tuple):
                made.memory[:] = rng.integers(0, size[0], made.memory.shape)
            else:
                made.agents[name] = rng.integers(0, size, self.n)
        return made

    def begin(self, start: str, rng: np.random.Generator) -> Population:
        """The population as it starts."""
        if start not in STARTS:
            raise unknown("start", start, STARTS)
        if start == "random-state":
            return self.random_state(rng)
        return self.ranked(start_ranks(start, self.n, rng), rng)


def start_ranks(start: str, n: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """The ranks of a start in which ranks are all that is wrong, in an order that says nothing."""
    if start == "all-one":
        return np.ones(n, np.int64)
    if start == "random-ranks":
        return rng.integers(1, n + 1, n)
    ranks = np.arange(1, n + 1)
    if start == "two-leaders":
        ranks[-1] = 1
    else:
        twice, gone = rng.choice(n, 2, replace=False)
        ranks[gone] = ranks[twice]
    return rng.permutation(ranks)
