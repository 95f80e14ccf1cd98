"""Works: servers, instances of applications, what monitoring says about them, and the truth that only the judge knows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.scheduling.contention import LLC, MEMORY, PORTS, PRIVATE, Applications, Fleet, Model, draw_applications, p95
from armillary.scheduling.contention.settled import DEFAULT
from armillary.streams import stream

from .placement.packing import Packing
from .placement.scheduler import Scene

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: Threads of an instance and their shares; the mean is 4.8. All are even, because `full-pcpus-only` refuses odd requests.
SIZES, SHARES = (2, 4, 6, 8), (0.25, 0.30, 0.25, 0.20)
FILL = 0.75
#: Solo use of an instance's threads, diurnal swing, hours of the peak, and the noise of readings.
SOLO, SWING, PEAK_H, NOISE = (0.35, 0.60), 0.3, (0.0, 24.0), 0.05
#: Rounds of 10 minutes from noon on; every fourth is looked at.
START_H, ROUND_H, ROUNDS, LOOK_EVERY = 12.0, 1 / 6, 12, 4
#: What monitoring reads of an application alone: CPI, MPKI, GB/s and MB/s per busy core, at 0 and the span up to 1.
CPI, MPKI, GBPS, MBPS = (0.4, 1.6), (0.5, 30.0), (0.2, 8.0), (5.0, 200.0)
#: A response time beyond so many times that of the instance alone violates its objective.
SLO = 2.0


@dataclass(frozen=True)
class ColocationWork:
    """Instances to place on servers. The truth (apps, cpu without noise) is for the judge and for oracles alone."""

    fleet: Fleet
    apps: Applications
    #: Application, threads, mean CPU in cores alone at speed 1, and hour of the peak, of each instance.
    app: Ints
    threads: Ints
    cpu: Floats
    peak_h: Floats
    #: CPI, MPKI, memory GB/s and network MB/s per busy core as read, and the factor by which the reading of cpu is off.
    readings: Floats
    misread: Floats
    model: Model = DEFAULT
    #: Where each instance starts, or None if it is to be placed: (server, threads).
    start: tuple[tuple[int, Ints] | None, ...] = ()
    swing: float = SWING
    rounds: int = ROUNDS
    requests: int = 4000
    seed: int = 0
    names: tuple[str, ...] = ()
    app_names: tuple[str, ...] = ()
    server_names: tuple[str, ...] = ()
    _alone: dict[float, Floats] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        n = len(self.app)
        if not n:
            raise InputError("found no instance; expected at least one")
        if int(self.threads.sum()) > self.fleet.total_threads:
            wanted, there = int(self.threads.sum()), self.fleet.total_threads
            raise InputError(f"found {wanted:,} threads of instances; expected at most the fleet's {there:,}")
        if self.threads.min() < 1 or self.threads.max() > self.fleet.threads.max():
            raise InputError(f"found an instance of {int(self.threads.max())} threads; expected 1 to {int(self.fleet.threads.max())}")

    def __len__(self) -> int:
        return len(self.app)

    def cpu_at(self, hour: float) -> Floats:
        """The CPU in cores that each instance takes alone at speed 1 at this hour."""
        # Rounded, because the last bits of a cosine depend on the C library.
        swing = [round(1.0 + self.swing * math.cos(math.pi / 12 * (hour - peak)), 12) for peak in self.peak_h.tolist()]
        found: Floats = self.cpu * np.array(swing)
        return found

    def rps(self, cpu: Floats) -> Floats:
        """Requests per second that take this CPU alone."""
        found: Floats = cpu / self.apps.cpu_s[self.app]
        return found

    def alone_p95(self, hour: float) -> Floats:
        """The p95 in seconds of each instance alone on a server of speed 1, one thread per core, at an hour."""
        if hour not in self._alone:
            seconds, sigma = self.apps.cpu_s[self.app], self.apps.sigma[self.app]
            self._alone[hour] = p95(self.rps(self.cpu_at(hour)), seconds, sigma, self.threads, seed=self.seed, requests=self.requests)
        return self._alone[hour]

    def hour(self, round_: int) -> float:
        """The time of day after so many rounds."""
        return START_H + ROUND_H * round_

    def scene(self, packing: Packing | None = None) -> Scene:
        """What a scheduler sees at the start."""
        cpu = self.cpu_at(START_H)
        held = Packing(self.fleet, self.threads) if packing is None else packing
        return Scene(self.fleet, self.app, self.readings, held, cpu * self.misread, self.rps(cpu), START_H, self.start)

    def measured(self, use: Floats, round_: int) -> Floats:
        """CPU in cores as monitoring reads it, with noise that is the same for every technique."""
        noise = stream(self.seed, "measured", str(round_)).standard_normal(len(self))
        found: Floats = use * (1.0 + NOISE * np.clip(noise, -3, 3))
        return found


def read_off(apps: Applications) -> Floats:
    """What monitoring would read of each application alone without noise, [A, 4] (ours).

    Busy ports and private caches retire more per cycle, so CPI falls with the pressure on the core. Misses of the last level tell how much
    an application depends on it, and traffic to memory how much it takes. Services that talk much run much code, which is what
    siblings spoil, so network per busy core rises with the sensitivity of the core's parts.
    """
    p, s = apps.pressure, apps.sensitivity
    return np.stack([
        CPI[0] + CPI[1] * (1.0 - (p[:, PORTS] + p[:, PRIVATE]) / 2), MPKI[0] + MPKI[1] * (s[:, LLC] + s[:, MEMORY]) / 2,
        GBPS[0] + GBPS[1] * (p[:, LLC] + p[:, MEMORY]) / 2, MBPS[0] + MBPS[1] * (s[:, PORTS] + s[:, PRIVATE]) / 2,
    ], axis=1)  # fmt: skip


def inferred(readings: Array, cpu_s: float | Array = 0.004, cv: float | Array = 1.0) -> Applications:
    """Applications that would give these readings [A, 4]: `read_off` inverted, which cannot tell the two resources of a pair apart."""
    r = np.asarray(readings, np.float64)
    core_p = 1.0 - (r[:, 0] - CPI[0]) / CPI[1]
    far_s, far_p, core_s = ((r[:, c] - low) / span for c, (low, span) in ((1, MPKI), (2, GBPS), (3, MBPS)))
    io = np.zeros(len(r))
    pressure = np.clip(np.stack([core_p, core_p, far_p, far_p, io], 1), 0.0, 1.0)
    return Applications.of(pressure, np.clip(np.stack([core_s, core_s, far_s, far_s, io], 1), 0.0, 1.0), cpu_s, cv)


def noisy(rng: np.random.Generator, values: Array) -> Floats:
    """Readings with 5 % noise, at most 15 %."""
    found: Floats = values * (1.0 + NOISE * np.clip(rng.standard_normal(np.shape(values)), -3, 3))
    return found


def built_in(
    rng: np.random.Generator, fleet: Fleet, *, population: str, instances: int, applications: int = 60, requests: int = 4000, seed: int = 0,
    rounds: int = ROUNDS, model: Model | None = None,
) -> ColocationWork:  # fmt: skip
    """Instances of drawn applications that fill 75 % of the threads of a fleet, give or take one instance."""
    apps = draw_applications(rng, applications, population)
    threads = rng.choice(SIZES, instances, p=SHARES).astype(np.int64)
    wanted = int(FILL * fleet.total_threads)
    order = rng.permutation(instances)
    # The drawn sizes miss 75 % by a little; instances are grown or shrunk by one step in random order until they meet it.
    for step in (0, 1):
        for i in order.tolist():
            gap = wanted - int(threads.sum())
            if gap >= 2 and threads[i] < SIZES[-1]:
                threads[i] += 2
            elif gap <= -2 and threads[i] > SIZES[0]:
                threads[i] -= 2
        if abs(wanted - int(threads.sum())) < 2 or step:
            break
    app = rng.integers(0, applications, instances).astype(np.int64)
    cpu = threads * rng.uniform(*SOLO, instances)
    peak = rng.uniform(*PEAK_H, instances)
    readings = noisy(rng, read_off(apps)[app])
    misread = noisy(rng, np.ones(instances))
    names = tuple(f"i{i}" for i in range(instances))
    return ColocationWork(
        fleet, apps, app, threads, cpu, peak, readings, misread, Model() if model is None else model, (None,) * instances, SWING, rounds,
        requests, seed, names, tuple(f"a{a}" for a in range(applications)),
    )  # fmt: skip
