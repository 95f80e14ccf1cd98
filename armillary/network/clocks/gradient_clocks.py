"""Gradient clock synchronisation as an object that goes on running, with links that join."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from .bounds.budget import Bounds, Budget
from .gcs_two_way import GcsTwoWay, Gradient
from .graph.network import ClockNetwork, Floats
from .simulation.oscillators import Oscillators
from .simulation.play import world_of
from .simulation.world import Seen, World
from .workload import ClockWork

#: Steps in which κ of a joining link is halved.
STAIRS = 8


class GradientClocks:
    """Clocks of a network under two-way gradient clock synchronisation.

    `graph` is a `ClockNetwork` or a networkx graph whose edges may have `delay`, `asymmetry` and `jitter` in seconds. `skews` are those of
    the last `run`. A clock's value is its offset from nominal time.
    """

    def __init__(
        self, graph: Any, rho: float = 1e-5, mu: float = 1e-4, period: float = 1e-4, *, grain: float = 0.0, c: float = 2.5, seed: int = 0,
        initial_s: float = 0.0, rates: Floats | None = None,
    ) -> None:  # fmt: skip
        network = graph if isinstance(graph, ClockNetwork) else ClockNetwork.from_networkx(graph)
        offsets = () if rates is None else tuple(map(float, rates))
        self.technique = GcsTwoWay(mu=mu, c=c)
        self.work = ClockWork(
            network, Oscillators(rho, offsets=offsets), period=period, grain=grain, initial_s=initial_s, rates="random", delays="random",
            seed=seed,
        )  # fmt: skip
        self.seconds = 0.0
        self._bounds = self.technique.bounds(self.work)
        self._world: World = world_of(self.work)
        self._world.rate[:] = self._world.still
        self._clocks = Gradient(*self.technique.limits(self.work), mu, network.nodes, both_ways=True)
        #: κ at the start and the time of joining, by link, while it is above its nominal value.
        self._joining: dict[int, tuple[float, float]] = {}
        self._worst = np.zeros(network.links)
        self._global = 0.0

    @property
    def network(self) -> ClockNetwork:
        """The network as it is now."""
        return self.work.network

    @property
    def clocks(self) -> Floats:
        """The clocks' offsets from nominal time, in seconds."""
        return self._world.clock.copy()

    @property
    def skews(self) -> Floats:
        """The largest skew of each link during the last run."""
        return self._worst.copy()

    @property
    def local_skew(self) -> float:
        """The largest skew of any link during the last run."""
        return float(self._worst.max())

    @property
    def global_skew(self) -> float:
        """The largest difference of any two clocks during the last run."""
        return self._global

    @property
    def kappa(self) -> Floats:
        """κ of each link as the triggers take it now."""
        return self._clocks.kappa.copy()

    def bounds(self) -> Bounds:
        """What skews cannot exceed once initial differences are gone."""
        return self._bounds

    def error_budget(self) -> Budget:
        """The error of one estimate on each link, by its parts."""
        return self.technique.budget(self.work)

    def run(self, seconds: float) -> None:
        """Lets the clocks run, and notes their skews."""
        steps = max(1, round(seconds / self.work.period))
        links = self.network.links
        self._worst, seen_all, course = np.zeros(links), np.zeros(1), np.zeros(steps)
        seen = Seen(self._worst, seen_all, course, np.zeros((0, links)), 1)
        first = 0
        while first < steps:
            many = steps - first
            if self._joining:
                self._shrink()
                stair = self._bounds.global_skew / self.technique.mu / STAIRS
                many = min(many, max(1, round(stair / self.work.period)))
            self._clocks.advance(self._world, seen, first, many)
            first += many
            self.seconds += many * self.work.period
        self._global = float(seen_all[0])

    def join(self, a: int, b: int, *, delay: float = 1e-6, asymmetry: float = 0.0, jitter: float = 0.0, rate: float = 0.0) -> None:
        """Adds a link; one end may be a new clock, numbered after the last.

        The link's κ starts at the skew that it has now and is halved every G/μ seconds until it is nominal, so that nobody jumps and the
        other links keep their bounds.
        """
        old = self.network
        nodes = max(old.nodes, a + 1, b + 1)
        network = ClockNetwork(
            nodes, np.append(old.a, a), np.append(old.b, b), np.append(old.delay, delay), np.append(old.asymmetry, asymmetry),
            np.append(old.jitter, jitter),
        )  # fmt: skip
        still = np.append(self._world.still, np.full(nodes - old.nodes, rate))
        self.work = replace(self.work, network=network, oscillators=replace(self.work.oscillators, offsets=tuple(still.tolist())))
        before, kappas = self._world, self._clocks.kappa
        self._world = world_of(self.work)
        neighbour = before.clock[min(a, b) if max(a, b) >= old.nodes else a]
        self._world.clock[:] = np.append(before.clock, np.full(nodes - old.nodes, neighbour))
        self._world.rate[:] = still
        self._world.lean[: old.links] = before.lean
        self._bounds = self.technique.bounds(self.work)
        delta, nominal = self.technique.limits(self.work)
        self._clocks = Gradient(delta, nominal, self.technique.mu, nodes, both_ways=True)
        self._clocks.kappa[: old.links] = kappas
        skew = abs(float(self._world.clock[a] - self._world.clock[b])) + float(delta[-1])
        if skew > nominal[-1]:
            self._joining[old.links] = (skew, self.seconds)
            self._clocks.kappa[-1] = skew

    def _shrink(self) -> None:
        nominal = self.technique.limits(self.work)[1]
        half_life = self._bounds.global_skew / self.technique.mu
        for link, (start, since) in list(self._joining.items()):
            stairs = math.floor(STAIRS * (self.seconds - since) / half_life) / STAIRS
            self._clocks.kappa[link] = max(float(nominal[link]), start * 2.0**-stairs)
            if self._clocks.kappa[link] == nominal[link]:
                del self._joining[link]
