"""Training through failures: which version survives, what is trained again, and how much of the time was useful."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.training.checkpoint.workload import WARM_UP, CheckpointWork

from .storage import write_s

if TYPE_CHECKING:
    from .training import Trained


@dataclass(frozen=True)
class Survived:
    """`goodput`: the share of the time in which training went on that no failure undid, at the speed without checkpoints.

    `lost` iterations and `recovery_s` seconds are means per failure; `unrecoverable` counts failures after which memory held no
    version, so that training went back to storage or to the beginning.
    """

    goodput: float
    lost: float
    recovery_s: float
    failures: int
    unrecoverable: int
    done: int


def recoverable(dead: Iterable[int], nodes: int, replicas: int) -> bool:
    """Whether every dead node's state lives on another one; node n keeps a copy of its own and n + 1, …, n + replicas − 1 the others."""
    gone = set(dead)
    return all(any((n + i) % nodes not in gone for i in range(replicas)) for n in gone)


def survive(work: CheckpointWork, run: Trained) -> Survived:
    """Trains until the horizon; iterations repeat the simulated ones. A node that fails comes back without its memory.

    Versions in memory are also written to storage in the background, one after the other.
    """
    assert work.outages is not None
    horizon, machine = work.outages.horizon_s, work.machine
    clock = _Clock(run.seconds[WARM_UP:])
    ideal = float(work.plain_s[WARM_UP:].mean())
    begin, done, persisted, lost, down, bad = 0.0, 0, 0, 0.0, 0.0, 0
    events = sorted(zip(work.outages.events.start_s.tolist(), work.outages.events.part.tolist(), strict=True))
    events = [(at, node) for at, node in events if at < horizon]
    held, i, outages = 0, 0, 0
    fixed, write = machine.detect_s + machine.restart_s, write_s(work)
    while i < len(events):
        at = events[i][0]
        reached = clock.after(done, at - begin)
        writes = math.floor((at - begin) / write) if write > 0 else 0
        if run.memory and writes > 0:
            persisted = max(persisted, _newest(run, clock.after(done, (writes - 1) * write), held))
        dead, back = {events[i][1]}, at + fixed + run.load_s
        i += 1
        # Nodes that fail before training is back lose their memory too, and the wait begins anew.
        while i < len(events) and events[i][0] < back:
            dead.add(events[i][1])
            back = events[i][0] + fixed + run.load_s
            i += 1
        held = _newest(run, reached, held)
        if run.memory and not recoverable(dead, machine.nodes, run.replicas):
            bad += 1
            held = persisted
            back += write
        back += run.replayed * run.replay_share * ideal if held else 0.0
        lost += reached - held + (run.replayed if held else 0)
        down += back - at
        begin, done, outages = back, held, outages + 1
    reached = clock.after(done, horizon - begin)
    return Survived(
        reached * ideal / horizon, lost / outages if outages else 0.0, down / outages if outages else 0.0, outages, bad, reached
    )


def _newest(run: Trained, done: int, held: int) -> int:
    """The iterations that the newest complete version contains, after `done` iterations; `held` was recovered last and is kept."""
    if not run.saved:
        return 0
    every = max(1, round(run.interval))
    return max(held, (done - run.latency) // every * every)


class _Clock:
    """Seconds of a training run whose iterations repeat."""

    def __init__(self, seconds: np.ndarray) -> None:
        self._ends = np.concatenate([[0.0], np.cumsum(seconds)])

    def at(self, done: int) -> float:
        rounds, rest = divmod(done, len(self._ends) - 1)
        return float(rounds * self._ends[-1] + self._ends[rest])

    def after(self, done: int, seconds: float) -> int:
        """The iterations that are done `seconds` after `done` were."""
        if seconds <= 0:
            return done
        until = self.at(done) + seconds
        rounds = int(until // self._ends[-1])
        rest = int(np.searchsorted(self._ends, until - rounds * self._ends[-1], side="right")) - 1
        return max(done, rounds * (len(self._ends) - 1) + rest)
