"""The seconds of one iteration of a serving engine, as numbers that a compiled loop can use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt


class CostArrays(NamedTuple):
    """The seconds of an iteration, as two tables and constants; they are affine in the context once tokens and sequences are given."""

    tokens: npt.NDArray[np.float64]  # the tables' grid, increasing from 0
    body_s: npt.NDArray[np.float64]  # all that depends on the new tokens alone: projections, norms, collectives
    head_s: npt.NDArray[np.float64]  # LM head and sampling for as many sequences as the grid says
    pair_s: float  # for each (query, key) pair of prompt chunks
    context_s: float  # for each cached token that a decode reads
    computed_s: float  # for each token computed before, of every request in the iteration
    adapter_s: float  # for each distinct adapter
    rank_token_s: float  # for each new token times its adapter's rank
    host_s: float  # for the iteration
    running_s: float  # for each running request
    waiting_s: float  # for each waiting request
    adapter_token_s: float = 0.0  # for each distinct adapter times each new token: kernels that pass over all tokens for every adapter


class IterationCost(Protocol):
    """Anything that can price an iteration."""

    def arrays(self) -> CostArrays:
        """The numbers that the compiled loop uses."""
        ...


@dataclass(frozen=True)
class AffineCost:
    """A cost written by hand, in seconds: start + token·N + computed·Σ(tokens computed before) + adapter·(distinct adapters) + …"""

    start: float
    token: float = 0.0
    computed: float = 0.0
    adapter: float = 0.0
    running: float = 0.0
    waiting: float = 0.0
    adapter_token: float = 0.0

    def arrays(self) -> CostArrays:
        """A table of two points, which is exact beyond them too because the last slope continues."""
        grid = np.array([0.0, 1.0])
        return CostArrays(
            grid, self.token * grid, np.zeros(2), 0.0, 0.0, self.computed, self.adapter, 0.0, self.start, self.running, self.waiting,
            self.adapter_token,
        )  # fmt: skip
