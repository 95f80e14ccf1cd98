"""Keep-alive as an environment: the decisions of one pod after another, on the built-in training days.

An episode follows one pod of a day at one λ, which is drawn uniformly, on a grid that is up to `dirt` times as clean or as dirty. An
observation has LACE-RL's 14 numbers, and an action is one of nine keep-alives. The reward is minus what the action costs at the pod's gap,
divided by what a cold start and a minute of idling cost. `info["rewards"]` holds the reward of every action. Gaps do not depend on actions,
so the next observation does not depend on them either.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.learn.environments import Step

from .learning.replay import Decisions
from .simulation.decisions import INPUTS, OUTPUTS

ENVIRONMENTS = {"KeepAlive-v0": "armillary.scheduling.keepalive.environment:make"}
Array = npt.NDArray[Any]
#: Decisions after which an episode is cut.
LONGEST = 200


class KeepAlive:
    """A batched environment over a table of decisions."""

    name = "armillary/KeepAlive-v0"
    observation: tuple[int, ...] = (INPUTS,)
    factors: tuple[int, ...] = (OUTPUTS,)

    def __init__(
        self, n: int, table: Decisions, standard: tuple[Array, Array] | None = None, lam: float | None = None, dirt: float = 1.0
    ) -> None:
        self.n, self.table, self.lam, self.dirt = n, table, lam, dirt
        mean, scale = standard if standard is not None else (np.zeros(INPUTS), np.ones(INPUTS))
        self._mean, self._scale = np.asarray(mean, np.float32), np.asarray(scale, np.float32)
        #: The first decision of each pod; pods are drawn with equal odds per function.
        first = np.ones(len(table), bool)
        first[table.following[table.following >= 0]] = False
        starts = np.flatnonzero(first)
        if not len(starts):
            raise InputError("found no decisions; expected at least one", where=self.name)
        order = np.argsort(table.function[starts], kind="stable")
        self._starts = starts[order]
        self._functions, self._begin, self._many = np.unique(table.function[self._starts], return_index=True, return_counts=True)
        self._rngs: list[np.random.Generator] = []

    def reset(self, seeds: Array) -> Array:
        """See `BatchedEnv`."""
        self._rngs = [np.random.default_rng(int(seed)) for seed in seeds]
        self._row, self._lam, self._age = np.zeros(self.n, np.int64), np.zeros(self.n), np.zeros(self.n, np.int64)
        self._dirt = np.ones(self.n)
        for i in range(self.n):
            self._begin_episode(i)
        return self._seen()

    def _begin_episode(self, i: int) -> None:
        rng = self._rngs[i]
        f = int(rng.integers(len(self._functions)))
        row = int(self._starts[self._begin[f] + int(rng.integers(self._many[f]))])
        # Long-lived pods begin somewhere in their life, so that all of it is met.
        for _ in range(int(rng.integers(LONGEST))):
            if self.table.following[row] < 0:
                break
            row = int(self.table.following[row])
        self._row[i], self._lam[i], self._age[i] = row, rng.random() if self.lam is None else self.lam, 0
        self._dirt[i] = self.dirt ** rng.uniform(-1, 1)

    def _seen(self) -> Array:
        found: Array = ((self.table.inputs(self._row, self._lam, self._dirt) - self._mean) / self._scale).astype(np.float32)
        return found

    def step(self, actions: Array) -> Step:
        """See `BatchedEnv`."""
        rewards = self.table.rewards(self._row, self._lam, self._dirt)
        reward = rewards[np.arange(self.n), np.asarray(actions, np.int64)]
        following = self.table.following[self._row]
        done = following < 0
        self._row = np.where(done, self._row, following)
        self._age += 1
        truncated = ~done & (self._age >= LONGEST)
        final = self._seen()
        for i in np.flatnonzero(done | truncated).tolist():
            self._begin_episode(i)
        seen = self._seen() if (done | truncated).any() else final
        return seen, reward, done, truncated, {"final_obs": final, "rewards": rewards}

    def mask(self) -> None:
        """None: every action is always allowed."""


def make(functions: int = 60, invocations: int = 12_000, grid: str = "solar-dip", **options: Any) -> Any:
    """One copy as a Gymnasium environment, on a training day with this number of functions and at most this number of invocations."""
    from armillary.learn.gymnasium_envs import Single

    return Single(KeepAlive(1, training_table(functions, invocations, grid), **options))


def training_table(functions: int, invocations: int, grid: str) -> Decisions:
    """All decisions of a training day on a grid."""
    from .learning.replay import decisions
    from .workload import KeepAliveWork, Knowledge, training_day

    day = training_day(grid, functions, invocations)
    return decisions(KeepAliveWork(*day, 0.5, Knowledge.of(*day)))
