"""Finding the quickest exchange on the ranks at hand, and remembering it.

Winners are remembered in the process by (library and version, local shape, type, width, corners, decomposition, periodicity, ranks).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from armillary.errors import InputError

from .halo import CALLS, METHODS, Halo

_WINNERS: dict[tuple[Any, ...], tuple[str, str]] = {}


def tune(
    shape: Sequence[int], comm: Any, dtype: Any = "f8", width: int = 1, decomposition: Sequence[int] | None = None,
    periodic: Sequence[bool] | bool | None = None, *, corners: str = "none", exchanges: int = 50, rounds: int = 5,
) -> list[dict[str, Any]]:  # fmt: skip
    """Time every method and call on these ranks, and return a table, quickest first; `Halo.plan("auto")` takes the winner from then on.

    All ranks call it together and get the same table. Rows have `method`, `call`, `us` (median of the rounds, slowest rank) and `fault`.
    The calls take turns within a round. Halos are checked by stamps before anything is timed.
    """
    halo = Halo(shape, dtype, width, comm, decomposition, periodic, corners=corners)
    plans = []
    for method in METHODS:
        for call in CALLS:
            try:
                plans.append((method, call, halo.plan(method, call, verify=True)))
            except InputError:
                continue  # All ranks refuse alike: the combination does not exist here.
    a = np.zeros(halo.shape, halo.dtype)
    seconds = np.zeros((rounds, len(plans)))
    for turn in range(-1, rounds):
        for i, (_, _, plan) in enumerate(plans):
            halo.comm.Barrier()
            began = time.perf_counter()
            for _ in range(exchanges):
                plan.exchange(a)
            if turn >= 0:
                seconds[turn, i] = (time.perf_counter() - began) / exchanges
    from mpi4py import MPI

    slowest = np.empty_like(seconds)
    halo.comm.Allreduce(seconds, slowest, MPI.MAX)
    rows = [
        {"method": method, "call": call, "us": 1e6 * statistics.median(slowest[:, i]), "fault": plan.fault}
        for i, (method, call, plan) in enumerate(plans)
    ]
    for _, _, plan in plans:
        plan.free()
    rows.sort(key=lambda row: row["us"])
    best = next(row for row in rows if not row["fault"])
    _WINNERS[_key(halo)] = (best["method"], best["call"])
    halo.free()
    return rows


def known(halo: Halo) -> tuple[str, str] | None:
    """Return the method and call that `tune` found for such a halo, or None. All ranks agree, because the slowest rank's time counted."""
    return _WINNERS.get(_key(halo))


def _key(halo: Halo) -> tuple[Any, ...]:
    from mpi4py import MPI

    return (
        MPI.Get_library_version(), tuple(halo.shapes), halo.dtype.str, halo.width, halo.corners, halo.decomposition, halo.periodic,
        halo.comm.size,
    )  # fmt: skip
