"""What a predictor sees of an instance: itself, those that share its cores, those that share its socket, and the hardware.

Typed tokens for attention; for trees, the same numbers as sums over neighbours, weighted by how much they share and how busy they are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.kernels import loop
from armillary.scheduling.colocation.placement.scheduler import Scene
from armillary.scheduling.contention import Topology

Floats = npt.NDArray[np.float64]
#: CPU request, solo CPU, log of requests per second, CPI, MPKI, memory GB/s, network MB/s, hour.
FEATURES = 8
#: Further inputs of a token: the share, the share times the load per thread, and the hardware's speed, cores per socket and LLC.
INPUTS = FEATURES + 2 + 3
SELF, SIBLING, NEIGHBOUR, HARDWARE = range(4)
MOST_TOKENS = 24
#: Self and hardware, shares of siblings and sums over them, and the same over the socket.
COLUMNS = FEATURES + 1 + 3 + 1 + 6 + 6


def features(scene: Scene) -> tuple[Floats, Floats]:
    """The features of every instance, [n, 8], and the busy share of each of its threads alone at speed 1, [n]."""
    rps = np.array([math.log1p(v) for v in scene.rps.tolist()])
    k = scene.k.astype(np.float64)
    found = np.column_stack([k, scene.cpu, rps, scene.readings, np.full(len(k), scene.hour)])
    return np.ascontiguousarray(found), scene.cpu / k


def hardware(topology: Topology) -> Floats:
    """Speed, cores per socket, and MiB of last-level cache."""
    return np.array([topology.speed, topology.cores / topology.sockets, topology.llc_bytes / 2**20])


@loop
def tokens(ids, near, far, targets, feats, load, machine, with_hardware, x, types, counts):  # type: ignore[no-untyped-def]
    """Fills the token sets x[r], types[r] and counts[r] of the instances ids[targets[r]] of one server.

    ids: the server's instances; near, far: their `overlap`. Where more share the socket than fit, those that use most CPU are kept.
    """
    most = x.shape[1]
    n = len(ids)
    order = np.empty(n, np.int64)
    for r in range(len(targets)):
        i = targets[r]
        x[r] = 0.0
        for f in range(8):
            x[r, 0, f] = feats[ids[i], f]
        x[r, 0, 9] = load[ids[i]]
        types[r, 0] = 0
        c = 1
        if with_hardware:
            for f in range(3):
                x[r, c, 10 + f] = machine[f]
            types[r, c] = 3
            c += 1
        for j in range(n):
            if near[i, j] > 0.0 and c < most:
                for f in range(8):
                    x[r, c, f] = feats[ids[j], f]
                x[r, c, 8] = near[i, j]
                x[r, c, 9] = near[i, j] * load[ids[j]]
                types[r, c] = 1
                c += 1
        distant = 0
        for j in range(n):
            if far[i, j] > 0.0:
                place = distant
                while place > 0 and feats[ids[order[place - 1]], 1] < feats[ids[j], 1]:
                    order[place] = order[place - 1]
                    place -= 1
                order[place] = j
                distant += 1
        for d in range(min(distant, most - c)):
            j = order[d]
            for f in range(8):
                x[r, c, f] = feats[ids[j], f]
            x[r, c, 8] = far[i, j]
            x[r, c, 9] = far[i, j] * load[ids[j]]
            types[r, c] = 2
            c += 1
        counts[r] = c


@loop
def columns(ids, near, far, targets, feats, load, machine, out):  # type: ignore[no-untyped-def]
    """Fills out[r] with the row of instance ids[targets[r]] for trees."""
    for r in range(len(targets)):
        i = targets[r]
        for f in range(8):
            out[r, f] = feats[ids[i], f]
        out[r, 8] = load[ids[i]]
        for f in range(3):
            out[r, 9 + f] = machine[f]
        out[r, 12] = near[i, i]
        for f in range(13, out.shape[1]):
            out[r, f] = 0.0
        for j in range(len(ids)):
            busy, distant = near[i, j] * load[ids[j]], far[i, j] * load[ids[j]]
            out[r, 13] += near[i, j]
            out[r, 14] += busy
            out[r, 19] += far[i, j]
            out[r, 20] += distant
            for f in range(4):
                out[r, 15 + f] += busy * feats[ids[j], 3 + f]
                out[r, 21 + f] += distant * feats[ids[j], 3 + f]


def token_arrays(rows: int, most: int = MOST_TOKENS) -> tuple[Any, Any, Any]:
    """Empty arrays for `tokens`."""
    return np.zeros((rows, most, INPUTS), np.float32), np.zeros((rows, most), np.int64), np.zeros(rows, np.int64)
