"""What one round of relocation moves: torn units of chains, those of the worst files first, and containers that are nearly empty.

A unit is a piece of a chain that fits one container. It is whole when its chunks lie side by side, or continue from the last live slot of
one container to the first of another. Whole units stay where they are, so a second round finds nothing to do. All of this is our design.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.kernels import kernel

from ..layouts.layout import runs_per_file
from .chains import Chains, chains, place_units, room_of
from .similarity import Rows

#: A container with less than this share of its slots live is merged.
NEARLY_EMPTY = 0.25


@dataclass(frozen=True)
class Moves:
    """Where each chunk lies after a round, which of them moved, and the first container number that is still unused."""

    position: np.ndarray
    moved: np.ndarray
    next_container: int


def plan_moves(
    files: Rows, position: np.ndarray, sizes: np.ndarray, *, slots: int, slack: float = 0.05, budget: float = 0.2, first: int,
    mode: str = "adjacency", units: Chains | None = None,
) -> Moves:  # fmt: skip
    """Plans one round: it moves at most `budget` of the store's bytes, as units of the files with most runs for their size, and merges.

    Chunks are 0 to U-1 and all live. `position[c]` is container·slots + slot, and new containers are numbered from `first`. `units` are
    those of `chains`, if they are already known.
    """
    if not 0 <= budget <= 1:
        raise InputError(f"budget: found {budget!r}; expected a share of the store from 0 to 1")
    units = chains(files, len(position), mode).units(room_of(slots, slack)) if units is None else units
    unit_of = np.empty(len(position), np.int64)
    unit_of[units.order] = np.repeat(np.arange(len(units.starts) - 1), np.diff(units.starts))
    numbers, container = np.unique(position // slots, return_inverse=True)
    torn = _torn(units, position, container, len(numbers), slots)
    bytes_of = np.bincount(unit_of, sizes, len(torn)).astype(np.int64)
    nothing = np.zeros(len(torn), np.bool_)
    chosen = nothing.copy()
    runs = runs_per_file(files.starts, position[files.values], slots)
    if torn.any():
        ideal = np.maximum(1, -(-np.diff(files.starts) // slots))
        worst = np.argsort(-(runs / ideal), kind="stable")
        _choose(worst, files.starts, files.values, unit_of, torn, bytes_of, math.floor(budget * int(sizes.sum())), chosen)
    for which in (chosen, nothing):
        _merge(which, unit_of, container, len(numbers), slots)
        after = position.copy()
        end = place_units(units, np.flatnonzero(which), after, slots, slack, first) if which.any() else first
        # A round that would not make the files less torn is not worth its bytes, so then only containers are merged.
        if runs_per_file(files.starts, after[files.values], slots).sum() < runs.sum():
            break
    return Moves(after, which[unit_of], end)


def _torn(units: Chains, position: np.ndarray, container: np.ndarray, count: int, slots: int) -> np.ndarray:
    lowest, highest = np.full(count, np.iinfo(np.int64).max), np.full(count, -1, np.int64)
    np.minimum.at(lowest, container, position)
    np.maximum.at(highest, container, position)
    torn = np.zeros(len(units.starts) - 1, np.bool_)
    _mark_torn(units.order, units.starts, position, container, lowest, highest, slots, torn)
    return torn


def _merge(chosen: np.ndarray, unit_of: np.ndarray, container: np.ndarray, count: int, slots: int) -> None:
    """Adds the units that have a chunk in a nearly empty container, until no such container is left behind."""
    while True:
        stays = ~chosen[unit_of]
        live = np.bincount(container[stays], minlength=count)
        empty = (live > 0) & (live < NEARLY_EMPTY * slots)
        # A single such container with nothing to join is only the end of the log.
        if not empty.any() or (not chosen.any() and empty.sum() < 2):
            return
        chosen[unit_of[stays & empty[container]]] = True


@kernel
def _mark_torn(order, starts, position, container, lowest, highest, slots, torn):
    for unit in range(len(starts) - 1):
        for i in range(starts[unit], starts[unit + 1] - 1):
            c, d = order[i], order[i + 1]
            p, q = position[c], position[d]
            beside = q == p + 1 and q % slots != 0
            runs_on = highest[container[c]] == p and lowest[container[d]] == q and container[c] != container[d]
            if not beside and not runs_on:
                torn[unit] = True
                break


@kernel
def _choose(worst, starts, refs, unit_of, torn, bytes_of, most, chosen):
    taken = 0
    for i in range(len(worst)):
        f = worst[i]
        for r in range(starts[f], starts[f + 1]):
            unit = unit_of[refs[r]]
            if torn[unit] and not chosen[unit] and taken + bytes_of[unit] <= most:
                chosen[unit] = True
                taken += bytes_of[unit]
