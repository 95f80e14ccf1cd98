"""Tables of pairwise interference, distilled from a predictor: who suffers from whom, on one core and on one socket.

I_SC[a, b] is the predicted log-inflation of a when every thread of a has a thread of b as its only sibling, and I_SS[a, b] when b has a
thread on every other core of the socket instead. Both are ordered: a suffers from b.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from armillary.scheduling.colocation.placement.packing import Packing
from armillary.scheduling.colocation.placement.scheduler import Scene
from armillary.scheduling.contention import Fleet, Topology

from .predictors import Predictor
from .tokens import features

Floats = npt.NDArray[np.float64]
#: A typical instance of an application has so many threads.
THREADS = 4


def typical(scene: Scene, applications: int) -> Scene:
    """One instance per application: mean readings, mean load per thread and mean requests per thread, with four threads.

    Applications without an instance get the means of all instances.
    """
    counts = np.bincount(scene.app, minlength=applications).astype(np.float64)
    some = counts > 0

    def mean(values: Floats) -> Floats:
        sums = np.bincount(scene.app, values, applications)
        return np.where(some, sums / np.maximum(counts, 1.0), values.mean())

    readings = np.column_stack([mean(scene.readings[:, c]) for c in range(scene.readings.shape[1])])
    load, rps = mean(scene.cpu / scene.k), mean(scene.rps / scene.k)
    packing = Packing(Fleet((Topology.regular(1, 1),), np.zeros(1, np.int64)), np.full(applications, THREADS, np.int64))
    return replace(scene, app=np.arange(applications), readings=readings, packing=packing, cpu=THREADS * load, rps=THREADS * rps)


def tables(predictor: Predictor, scene: Scene, applications: int, topology: Topology) -> tuple[Floats, Floats]:
    """(I_SC, I_SS) on one kind of server, [A, A] each: A batches of A pairs."""
    feats, load = features(typical(scene, applications))
    return pair_tables(predictor, feats, load, topology)


def pair_tables(predictor: Predictor, feats: Floats, load: Floats, topology: Topology) -> tuple[Floats, Floats]:
    """The tables of applications with these features, [A, 8], and loads per thread, [A]."""
    n = len(feats)
    # Neighbours are copies, so that an application can also be beside another instance of its own.
    both, loads, app = np.concatenate([feats, feats]), np.concatenate([load, load]), np.tile(np.arange(n), 2)
    ids, targets, none = np.arange(2 * n), np.arange(n), np.zeros((2 * n, 2 * n))
    found = np.empty((2, n, n))
    for shift in range(n):
        beside = (targets + shift) % n
        one = none.copy()
        one[targets, n + beside] = 1.0
        found[0, targets, beside] = predictor.inflation(topology, ids, one, none, targets, both, loads, app)
        found[1, targets, beside] = predictor.inflation(topology, ids, none, one, targets, both, loads, app)
    return found[0], found[1]
