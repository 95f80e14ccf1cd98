"""Plain rules: which server has room, and which of its threads are taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

from .packing import Packing

Ints = npt.NDArray[np.int64]
Rule = Callable[[Packing, int], tuple[int, Ints]]


def room(packing: Packing, i: int) -> npt.NDArray[np.bool_]:
    """Which servers have enough free threads for instance i; raises InputError where none has."""
    found: npt.NDArray[np.bool_] = packing.free >= packing.k[i]
    if not found.any():
        raise InputError(f"instance {i}: found no server with {packing.k[i]} free threads; expected room for every instance")
    return found


def lowest(packing: Packing, m: int, k: int) -> Ints:
    """The k free threads with the lowest CPU numbers, as an allocator takes them that knows no cores."""
    return packing.free_rows(m)[:k]


def whole_cores(packing: Packing, m: int, k: int) -> Ints:
    """Both threads of empty cores, in order; an odd k leaves one thread of the last core."""
    topology = packing.fleet.topology(m)
    rows: list[int] = []
    for held in topology.members:
        own = held[held >= 0]
        if len(rows) < k and (packing.owner[m, own] == -1).all():
            rows += own[: k - len(rows)].tolist()
    return np.array(rows, np.int64)


def spread_cores(packing: Packing, m: int, k: int) -> Ints:
    """One thread each of empty cores, on the socket that has most of them; siblings of busy cores only when those are used up."""
    topology = packing.fleet.topology(m)
    busy = np.bincount(topology.core, packing.owner[m, : topology.threads] >= 0, topology.cores) > 0
    first = topology.members[:, 0]
    socket = topology.socket[first]
    empties = np.bincount(socket[~busy], minlength=topology.sockets)
    order = sorted(np.flatnonzero(~busy).tolist(), key=lambda c: (-empties[socket[c]], socket[c], c))
    rows = first[order[:k]].tolist()
    if len(rows) < k:
        rows += [t for t in packing.free_rows(m).tolist() if t not in set(rows)][: k - len(rows)]
    return np.array(rows, np.int64)


def cores_needed(packing: Packing, k: int) -> Ints:
    """The empty cores that k threads fill, on each server."""
    per_core = np.array([t.members.shape[1] for t in packing.fleet.topologies], np.int64)[packing.fleet.kind]
    return -(-k // per_core)


def first_of(values: Any, fits: npt.NDArray[np.bool_]) -> int:
    """The first server with the lowest value among those that fit."""
    return int(np.argmin(np.where(fits, values, np.inf)))
