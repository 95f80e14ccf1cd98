"""Steps 4 to 6 of Hestia for any predictor: look-up in tables, the full predictor on the best few, and moves.

The same procedure serves the boosted trees and the oracle, so that only the predictor differs between them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.scheduling.colocation.prediction.predictors import Predictor
from armillary.scheduling.colocation.prediction.tokens import features
from armillary.scheduling.contention.settled import overlap

from .candidates import DEFAULT, Machine, Others, Weights, score_servers, thread_set
from .packing import residents
from .scheduler import Scene

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: No thread of an instance should be busier than this.
FULL = 0.85


@dataclass(frozen=True)
class Option:
    """A thread set on a server after the full prediction: whom it touches, what they would use, and how it compares."""

    server: int
    rows: Ints
    score: float
    touched: Ints
    #: Cores that the touched instances, the newcomer last, are expected to use.
    expected: Floats
    #: The change of the sum, and by how much limits are exceeded.
    added: float
    beyond: float


@dataclass
class TableScheduler:
    """Places by tables, re-scores the best `top` sets with the predictor, and moves the worst instances."""

    scene: Scene
    predictor: Predictor
    tables: tuple[tuple[Floats, Floats], ...]
    weights: Weights = DEFAULT
    top: int = 5
    #: The share of the instances that are offered a move in each round, and the gain that a move needs; 0 moves none.
    offered: float = 0.02
    gain: float = 0.05
    _expected: Floats = field(init=False)
    _known: int = field(default=-1, init=False)

    def __post_init__(self) -> None:
        fleet = self.scene.fleet
        self._machines = tuple(
            Machine(t.core, t.socket, t.members, t.cores_per_socket, by_core, by_socket, -math.log(t.speed))
            for t, (by_core, by_socket) in zip(fleet.topologies, self.tables)
        )
        self._servers = tuple(np.flatnonzero(fleet.kind == kind) for kind in range(len(fleet.topologies)))
        self._columns = 3 * max(t.sockets for t in fleet.topologies) + 1
        self._expected = np.full(len(self.scene.app), np.nan)

    def _refresh(self) -> None:
        """Reads the scene anew where time has gone on; expectations of placed instances go with it."""
        if self._known == self.scene.age:
            return
        self._features, self._load = features(self.scene)
        self._known = self.scene.age
        if self.top:
            self._expected = self.predict(self.scene)
        else:
            self._expected = np.where(self.scene.packing.server >= 0, self.scene.cpu, np.nan)

    def place(self, i: int) -> tuple[int, Ints]:
        """The best set of threads for instance i."""
        options = self.options(i)
        best = options[0]
        self._expected[best.touched] = best.expected
        return best.server, best.rows

    def _others(self) -> Others:
        return Others(self.scene.app, self.scene.k, np.where(np.isnan(self._expected), 0.0, self._expected) / self.scene.k)

    def _scores(self, i: int, servers: Array | None) -> Floats:
        """The scores of all thread sets of instance i, [M, kinds of sets]; infinite where there is none."""
        self._refresh()
        packing = self.scene.packing
        scores = np.full((len(self.scene.fleet), self._columns), np.inf)
        for machine, own in zip(self._machines, self._servers):
            here = own if servers is None else np.intersect1d(own, servers)
            a, k, use = int(self.scene.app[i]), int(self.scene.k[i]), float(self.scene.cpu[i])
            score_servers(machine, here, packing.owner, packing.free, self._others(), a, k, use, self.weights, scores)
        return scores

    def best_by_server(self, i: int, servers: Array) -> dict[int, float]:
        """The best score of each of these servers that has room for instance i."""
        best = self._scores(i, servers).min(1)
        return {m: float(best[m]) for m in servers.tolist() if np.isfinite(best[m])}

    def reread(self, i: int) -> None:
        """Instance i, which has no place, is another one now."""
        self._refresh()
        scene = self.scene
        self._features[i] = (scene.k[i], scene.cpu[i], math.log1p(scene.rps[i]), *scene.readings[i], scene.hour)
        self._load[i] = scene.cpu[i] / scene.k[i]
        self._expected[i] = np.nan

    def changed(self, m: int) -> None:
        """Other instances are on server m now."""
        self._refresh()
        ids, expected = self._server(m)
        self._expected[ids] = expected

    def ranked(self, i: int, most: int, servers: Array | None = None) -> list[tuple[float, int, Ints]]:
        """The `most` best thread sets by the tables: (score, server, threads), best first."""
        packing, a, k = self.scene.packing, int(self.scene.app[i]), int(self.scene.k[i])
        flat = self._scores(i, servers).ravel()
        near = np.argpartition(flat, min(most, len(flat) - 1))[:most] if most < len(flat) else np.arange(len(flat))
        near = near[np.isfinite(flat[near])]
        found, others = [], self._others()
        for place in near[np.lexsort((near, flat[near]))].tolist():
            m, column = divmod(place, self._columns)
            rows = np.empty(k, np.int64)
            machine = self._machines[int(self.scene.fleet.kind[m])]
            socket, kind = (-1, 0) if column == self._columns - 1 else divmod(column, 3)
            thread_set(machine, packing.owner[m, : len(machine.core)], others, a, k, kind, socket, rows)
            found.append((float(flat[place]), m, np.sort(rows)))
        if not found:
            raise InputError(f"instance {i}: found no server with {k} free threads; expected room for every instance")
        return found

    def options(self, i: int) -> list[Option]:
        """The best sets after the full prediction, best first: the least CPU among those within limits, else the least excess."""
        ranked = self.ranked(i, max(1, self.top))
        if not self.top:
            score, m, rows = ranked[0]
            alone = np.array([self.scene.cpu[i]])
            return [Option(m, rows, score, np.array([i]), alone, 0.0, 0.0)]
        options = [self._option(i, m, rows, score) for score, m, rows in ranked]
        return sorted(options, key=lambda o: (o.beyond > 1e-9, o.beyond if o.beyond > 1e-9 else o.added, o.score))

    def _option(self, i: int, m: int, rows: Ints, score: float) -> Option:
        owner = self.scene.packing.owner
        owner[m, rows] = i
        try:
            ids, expected = self._server(m, i)
        finally:
            owner[m, rows] = -1
        before = np.where(ids == i, 0.0, self._expected[ids])
        beyond = np.maximum(expected - FULL * self.scene.k[ids], 0.0)
        return Option(m, rows, score, ids, expected, float((expected - before).sum()), float(beyond.sum()))

    def _layout(self, m: int) -> tuple[Ints, Floats, Floats]:
        """The instances of a server and their `overlap`."""
        topology, packing = self.scene.fleet.topology(m), self.scene.packing
        t = topology.threads
        ids, offsets, threads = np.empty(t, np.int64), np.empty(t + 1, np.int64), np.empty(t, np.int64)
        n = int(residents(packing.owner[m, :t], packing.k, ids, offsets, threads))
        near, far = np.empty((n, n)), np.empty((n, n))
        overlap(topology.core, topology.members, topology.cores_per_socket, topology.socket, offsets[: n + 1], threads, near, far)
        return ids[:n], near, far

    def _server(self, m: int, about: int = -1) -> tuple[Ints, Floats]:
        """Instances of a server and the cores that they are expected to use; only those that `about` touches, where it is one of them."""
        ids, near, far = self._layout(m)
        targets = np.arange(len(ids)) if about < 0 else touched(ids, near, far, about)
        topology = self.scene.fleet.topology(m)
        log = self.predictor.inflation(topology, ids, near, far, targets, self._features, self._load, self.scene.app)
        return ids[targets], self._cores(ids[targets], topology.speed, log)

    def _cores(self, ids: Ints, speed: float, log: Floats) -> Floats:
        inflated = np.array([math.exp(v) for v in log.tolist()])
        return np.minimum(np.minimum(self.scene.cpu[ids] / speed, self.scene.k[ids]) * inflated, self.scene.k[ids])

    def predict(self, scene: Scene) -> Floats:
        """The cores that every placed instance of a scene is expected to use."""
        kept = self.scene, getattr(self, "_features", None), getattr(self, "_load", None)
        self.scene = scene
        self._features, self._load = features(scene)
        found = np.full(len(scene.app), np.nan)
        for m in np.unique(scene.packing.server[scene.packing.server >= 0]).tolist():
            ids, expected = self._server(m)
            found[ids] = expected
        if scene is not kept[0] and kept[1] is not None and kept[2] is not None:
            self._features, self._load = kept[1], kept[2]
        self.scene = kept[0]
        return found

    def reschedule(self, measured: Floats) -> int:
        """Offers the worst instances by (measured − alone) another place; a move needs a predicted gain."""
        scene, packing = self.scene, self.scene.packing
        if not self.offered or not self.top:
            return 0
        self._refresh()
        alone = scene.cpu / scene.fleet.speed[np.maximum(packing.server, 0)]
        worse = np.where(packing.server >= 0, measured - alone, -np.inf)
        moved = 0
        for i in np.argsort(-worse, kind="stable")[: math.ceil(self.offered * len(worse))].tolist():
            if worse[i] <= 0:
                break
            moved += self._move(i)
        return moved

    def _move(self, i: int) -> int:
        """Moves instance i if that is expected to save enough CPU over all that it touches, as a share of its own."""
        packing = self.scene.packing
        m, rows = int(packing.server[i]), packing.rows(i).copy()
        ids, near, far = self._layout(m)
        ids = ids[touched(ids, near, far, i)]
        before, kept, own = self._expected[ids], self._expected.copy(), float(self._expected[i])
        packing.take(i)
        self._expected[i] = np.nan
        rest = ids[ids != i]
        if len(rest):
            there, near, far = self._layout(m)
            places = np.flatnonzero(np.isin(there, rest))
            topology = self.scene.fleet.topology(m)
            log = self.predictor.inflation(topology, there, near, far, places, self._features, self._load, self.scene.app)
            self._expected[there[places]] = self._cores(there[places], topology.speed, log)
        freed = float(before.sum() - self._expected[rest].sum())
        best = self.options(i)[0]
        beyond = float(np.maximum(before - FULL * self.scene.k[ids], 0.0).sum())
        saved = freed - best.added
        if saved >= self.gain * own and best.beyond <= beyond + 1e-9:
            packing.put(i, best.server, best.rows)
            self._expected[best.touched] = best.expected
            return 1
        packing.put(i, m, rows)
        self._expected = kept
        return 0


def touched(ids: Ints, near: Floats, far: Floats, i: int) -> Ints:
    """The places in `ids` of instance i and of all that share a core or a socket with it."""
    me = int(np.flatnonzero(ids == i)[0])
    return np.flatnonzero((near[:, me] > 0) | (far[:, me] > 0) | (np.arange(len(ids)) == me))
