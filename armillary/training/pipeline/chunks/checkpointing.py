"""Chooses how many layers every chunk recomputes on every stage, so that whatever is in flight together fits.

ℓ[k, s] of the L_s layers of stage s are recomputed for chunk k. For every set of chunks that is in flight together (read off the
schedule): static + Σ [(L − ℓ)·M_none + ℓ·M_full + L·KV] ≤ capacity. The step is governed by its busiest stage, so τ = max over s of
Σ_k (F + B + ρ_k·ℓ[k, s]) is minimised, and then Σℓ with τ held at (1 + gap) times that. The stages share nothing but τ, so each is an
integer programme of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from ..simulation.schedule import B, F, I, IntArray, Schedule
from ..simulation.simulator import FloatArray


@dataclass(frozen=True, eq=False)
class Burden:
    """What chunks weigh: bytes per layer without and with recomputation, keys and values per layer, seconds ρ of recomputing a layer.

    All have one entry per chunk; `fixed` has one per stage and chunk (bytes beside the layers, such as the tail's).
    """

    none: FloatArray
    full: FloatArray
    keys: FloatArray
    again: FloatArray
    fixed: FloatArray


def live_sets(
    schedule: Schedule, stage: int, weight: Callable[[int], tuple[float, float]] | None = None, room: float = -1.0
) -> list[tuple[IntArray, IntArray]]:
    """(chunks in flight, chunks whose keys and values are there) at every moment of a stage that no other moment includes.

    With `weight`, which gives the bytes of a chunk and those of its keys and values, only moments that may exceed `room` are returned.
    """
    at = np.flatnonzero(schedule.stage == stage)
    kinds, micros = schedule.kind[at].tolist(), schedule.micro[at].tolist()
    previous, following = schedule.previous_slice.tolist(), schedule.next_slice.tolist()
    flying: dict[int, None] = {}
    kept: dict[int, None] = {}
    found: list[tuple[IntArray, IntArray]] = []
    total, grew = 0.0, False
    for kind, micro in zip(kinds, micros):
        size, keys = weight(micro) if weight is not None else (0.0, 0.0)
        if kind == F:
            flying[micro] = kept[micro] = None
            total += size + keys
            grew = True
        elif kind in (I, B):
            if grew and total > room * (1 - 1e-9):  # Running sums lose digits; whoever asks sums again.
                found.append((np.array(list(flying)), np.array(list(kept))))
            grew = False
            del flying[micro]
            total -= size
            if previous[micro] < 0:
                each = micro
                while each >= 0:
                    if each in kept:
                        del kept[each]
                        total -= weight(each)[1] if weight is not None else 0.0
                    each = following[each]
    return found


def checkpoints(
    schedule: Schedule, layers: IntArray, work_s: FloatArray, burden: Burden, room: FloatArray, *, exact: bool = True, gap: float = 0.01,
    nodes: int = 2000,
) -> IntArray | None:  # fmt: skip
    """ℓ of shape (chunks, stages), or None where even full recomputation does not fit.

    layers: per stage. work_s: seconds of each stage without recomputation. room: bytes per stage for activations, keys and values.
    Without `exact` the relaxation is rounded up, which always fits.
    """
    stages, chunks = len(layers), len(burden.none)
    rows = [_rows(schedule, s, int(layers[s]), burden, float(room[s])) for s in range(stages)]
    if any(row is None for row in rows):
        return None
    least = np.zeros((chunks, stages), np.int64)
    for s, row in enumerate(rows):
        assert row is not None
        found = _solved(burden.again, row, int(layers[s]), exact, gap, nodes)
        if found is None:
            return None
        least[:, s] = found
    if not exact:
        return least
    longest = float((work_s + (burden.again[:, None] * least).sum(0)).max()) * (1 + gap)
    for s, row in enumerate(rows):
        assert row is not None
        spare = longest - float(work_s[s])
        fewer = _solved(np.ones(chunks), row, int(layers[s]), True, gap, nodes, (burden.again, spare))
        if fewer is not None and fewer.sum() < least[:, s].sum():
            least[:, s] = fewer
    return least


def _rows(schedule: Schedule, stage: int, layers: int, burden: Burden, room: float) -> tuple[FloatArray, FloatArray] | None:
    """(bytes freed per recomputed layer, bytes that must be freed) for every moment at which something must be; None if it cannot be."""
    table, needed = [], []
    freed = burden.none - burden.full
    sizes, keys = (layers * burden.none + burden.fixed[stage]).tolist(), (layers * burden.keys).tolist()
    for flying, kept in live_sets(schedule, stage, lambda k: (sizes[k], keys[k]), room):
        total = layers * (burden.none[flying].sum() + burden.keys[kept].sum()) + burden.fixed[stage, flying].sum()
        lack = total - room
        if lack <= 0:
            continue
        row = np.zeros(len(burden.none))
        row[flying] = freed[flying]
        if layers * row.sum() < lack:
            return None
        table.append(row)
        needed.append(lack)
    return np.array(table).reshape(-1, len(burden.none)), np.array(needed)


def _solved(
    cost: FloatArray, rows: tuple[FloatArray, FloatArray], layers: int, exact: bool, gap: float, nodes: int,
    also: tuple[FloatArray, float] | None = None,
) -> IntArray | None:  # fmt: skip
    """The integers of least cost that free enough at every moment."""
    table, needed = rows
    n = len(cost)
    if not len(needed):
        return np.zeros(n, np.int64)
    used = np.flatnonzero(table.any(0))
    size = table.max(1)
    matrix, lows = table[:, used] / size[:, None], needed / size
    scale = float(cost[used].max()) or 1.0
    if exact:
        limits = [LinearConstraint(matrix, lows, np.inf)]
        if also is not None:
            most = max(float(also[0].max()), 1e-30)
            limits.append(LinearConstraint(also[0][used][None, :] / most, -np.inf, also[1] / most))
        found = milp(
            cost[used] / scale, integrality=np.ones(len(used), np.int64), bounds=Bounds(0, layers), constraints=limits,
            options={"mip_rel_gap": gap, "node_limit": nodes},
        )  # fmt: skip
        if found.x is not None:
            whole = np.zeros(n, np.int64)
            whole[used] = np.rint(found.x).astype(np.int64)
            if (table @ whole >= needed * (1 - 1e-9)).all():
                return whole
        if also is not None:
            return None
    relaxed = linprog(cost[used] / scale, A_ub=-matrix, b_ub=-lows, bounds=(0, layers), method="highs")
    if relaxed.x is None:
        return None
    whole = np.zeros(n, np.int64)
    whole[used] = np.minimum(layers, np.ceil(relaxed.x - 1e-9)).astype(np.int64)
    return whole
