"""Quotas as an environment: every second each service gets −20, −10, 0, +10 or +30 %, and one head decides for all of them.

An episode is 300 s of a training load that begins with quotas near the owner's. The observation of a service is the predictor's token of
it, the two probabilities of a violation if quotas stay, and the trend of the load. The reward of a window is
`−Σ quota / Σ quota_max − 4·[violated] − 0.02·changes`, where quota_max is what owners ask for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.learn.environments import Step
from armillary.streams import stream

from .application.application import Application
from .control.allocator import within
from .learning.features import LEVELS, Observed
from .learning.observation import INPUTS, observations
from .learning.predictor import Predictor
from .simulation.play import Simulation
from .simulation.window import Decision
from .workload import drawn, training_rates

ENVIRONMENTS = {"Microservices-v0": "armillary.scheduling.microservices.environment:make"}
Array = npt.NDArray[Any]
EPISODE = 300
VIOLATED, CHANGED = 4.0, 0.02


class Microservices:
    """`n` copies of an application under training loads; without `foresight` tokens and probabilities are hidden."""

    name = "armillary/Microservices-v0"

    def __init__(
        self, n: int, app: Application, parts: Any, *, foresight: bool = True, relations: bool = True, episode: int = EPISODE
    ) -> None:  # fmt: skip
        self.n, self.app, self.foresight, self.episode = n, app, foresight, episode
        self.observation: tuple[int, ...] = (len(app.services), INPUTS)
        self.factors: tuple[int, ...] = (len(LEVELS),)
        self.predictor = Predictor(parts, app, relations)
        self._rngs: list[np.random.Generator] = []
        self._most = float((app.quotas * app.replicas).sum())

    def reset(self, seeds: Array) -> Array:
        """See `BatchedEnv`."""
        self._rngs = [stream(int(seed), "scheduling/microservices", "train") for seed in seeds]
        self._sims: list[Simulation] = [self._begun(i) for i in range(self.n)]
        self.seen = [Observed(self.app) for _ in range(self.n)]
        self._at = np.zeros(self.n, np.int64)
        for sim, seen in zip(self._sims, self.seen):
            seen.add(sim.step())
        return self._observed(range(self.n))

    def _begun(self, i: int) -> Simulation:
        rng = self._rngs[i]
        work = drawn(rng, self.app, training_rates(self.app, rng, self.episode + 1))
        return Simulation(work, within(self.app.quotas * np.exp(rng.normal(0, 0.3, len(self.app.services)))))

    def _observed(self, which: Any) -> Array:
        return observations(self.predictor, [self.seen[i] for i in which], self.foresight)

    def step(self, actions: Array) -> Step:
        """See `BatchedEnv`."""
        reward, ended = np.zeros(self.n, np.float32), np.zeros(self.n, bool)
        for i, sim in enumerate(self._sims):
            before = sim.quotas
            quotas = within(before * LEVELS[np.asarray(actions[i], np.int64)])
            window = sim.step(Decision(quotas))
            cost = float((quotas * sim.replicas).sum()) / self._most
            reward[i] = -cost - VIOLATED * window.violated - CHANGED * float((quotas != before).sum())
            self.seen[i].add(window)
            self._at[i] += 1
            ended[i] = self._at[i] >= self.episode
        final = seen = self._observed(range(self.n))
        if ended.any():
            for i in np.flatnonzero(ended).tolist():
                self._sims[i], self.seen[i], self._at[i] = self._begun(i), Observed(self.app), 0
                self.seen[i].add(self._sims[i].step())
            seen = self._observed(range(self.n))
        return seen, reward, np.zeros(self.n, bool), ended, {"final_obs": final}

    def mask(self) -> None:
        """Every level is allowed; quotas end at 0.1 and 16 cores."""


def make(application: str = "shop-8", episode: int = EPISODE) -> Any:
    """One copy of a built-in application as a Gymnasium environment."""
    from armillary.learn.gymnasium_envs import Single

    from .application.built_in import built_in
    from .ddrm import Ddrm

    app = built_in(application)
    return Single(Microservices(1, app, Ddrm().predictor_parts(app), episode=episode))
