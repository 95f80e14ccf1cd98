"""Plays a technique on a work: instances are placed one by one, loads go on changing, and places are changed every ten minutes."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.scheduling.colocation.placement.packing import Packing
from armillary.scheduling.colocation.placement.scheduler import Scene, Scheduler
from armillary.scheduling.colocation.workload import LOOK_EVERY, SLO, START_H, ColocationWork
from armillary.scheduling.contention import Settled, p95, settle

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Look:
    """One moment of a play: the use of each instance's threads, its load without the limit of 1, and its p95 over that alone."""

    use: Floats
    load: Floats
    stretch: Floats


@dataclass(frozen=True)
class Played:
    """What a play leaves. cpu_cores: mean over the looks. expected: the CPU of each instance that the technique promised for the last."""

    work: ColocationWork
    packing: Packing
    looks: tuple[Look, ...]
    expected: Floats
    moves: int
    place_s: float
    scheduler: Scheduler

    def metrics(self) -> dict[str, float]:
        """The arena's figures, without those that are measured."""
        stretch = np.sort(np.concatenate([look.stretch for look in self.looks]))
        loads = np.concatenate([look.load for look in self.looks])
        used = [float(math.fsum((look.use * self.work.threads).tolist())) for look in self.looks]
        delivered = self.looks[-1].use * self.work.threads
        return {
            "p95_stretch": math.exp(math.fsum(math.log(v) for v in stretch.tolist()) / len(stretch)),
            "p95_worst": float(np.quantile(stretch, 0.99)),
            "saturated": float(np.mean(loads >= 0.95)),
            "slo_violation": float(np.mean(stretch > SLO)),
            "promise_error": relative_error(self.expected, delivered),
            "cpu_cores": math.fsum(used) / len(used),
            "servers_used": float(len(np.unique(self.packing.server))),
            "moves": float(self.moves),
        }


def relative_error(said: Floats, true: Floats) -> float:
    """The mean of |said − true|/true over instances that use any CPU."""
    some = true > 0
    return float(math.fsum((np.abs(said - true)[some] / true[some]).tolist()) / max(1, int(some.sum())))


def truth(work: ColocationWork, packing: Packing, hour: float) -> tuple[Settled, Any]:
    """What all placed instances come to at an hour, and their numbers."""
    ids, server, offsets, threads = packing.placed()
    found = settle(work.apps, work.fleet, work.app[ids], work.cpu_at(hour)[ids], server, offsets, threads, work.model)
    return found, ids


def play(work: ColocationWork, technique: Any) -> Played:
    """Places every instance, then goes through the rounds. The judge settles the true model; the technique sees readings."""
    scene = work.scene()
    packing = scene.packing
    scheduler: Scheduler = technique.scheduler(scene, work) if technique.oracle else technique.scheduler(scene)
    begin = time.perf_counter()
    for i in range(len(work)):
        packing.put(i, *scheduler.place(i))
    place_s = time.perf_counter() - begin
    looks, moves = [], 0
    for round_ in range(1, work.rounds + 1):
        hour = work.hour(round_)
        now(work, scene, hour, exact=technique.oracle)
        settled, _ = truth(work, packing, hour)
        moves += scheduler.reschedule(work.measured(settled.use * work.threads, round_))
        if round_ % LOOK_EVERY == 0 or round_ == work.rounds:
            looks.append(look(work, packing, hour))
    if not looks:
        looks.append(look(work, packing, START_H))
    return Played(work, packing, tuple(looks), scheduler.predict(scene), moves, place_s, scheduler)


def now(work: ColocationWork, scene: Scene, hour: float, *, exact: bool = False) -> None:
    """Moves a scene to an hour; an oracle reads CPU without noise."""
    cpu = work.cpu_at(hour)
    scene.at(hour, cpu if exact else cpu * work.misread, work.rps(cpu))


def look(work: ColocationWork, packing: Packing, hour: float) -> Look:
    """The truth at an hour, with response times over those of each instance alone on a server of speed 1, one thread per core."""
    settled, _ = truth(work, packing, hour)
    sigma, seconds = work.apps.sigma[work.app], work.apps.cpu_s[work.app]
    rps = work.rps(work.cpu_at(hour))
    slowed = seconds * settled.slowdown / work.fleet.speed[packing.server]
    found = p95(rps, slowed, sigma, work.threads, seed=work.seed, requests=work.requests)
    return Look(settled.use, settled.load, found / work.alone_p95(hour))


def shuffled(work: ColocationWork, rng: np.random.Generator) -> Packing:
    """All instances in random places, which no technique has chosen."""
    packing = Packing(work.fleet, work.threads)
    for i in np.argsort(-work.threads, kind="stable").tolist():
        fits = np.flatnonzero(packing.free >= packing.k[i])
        m = int(fits[rng.integers(0, len(fits))])
        free = packing.free_rows(m)
        packing.put(i, m, free[rng.permutation(len(free))[: packing.k[i]]])
    return packing
