"""What one round of relocation moves: containers that are nearly empty, and torn units of chains, those of the worst files first.

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
#: A round may give a file more runs, up to this many for each container that it would fill, and as many again (ours).
TOLERATED = 8
#: Plans that are tried for a round before nothing moves.
ATTEMPTS = 32


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
    """Plans one round: it moves units of the files with most runs for their size, and merges nearly empty containers.

    Both together move at most `budget` of the store's bytes. A file has more runs after the round than before it only if it has no more
    than `TOLERATED` of them for each container that it would fill, and as many again. Chunks are 0 to U-1 and all live. `position[c]` is
    container·slots + slot, and new containers are numbered from `first`. `units` are those of `chains`, if they are already known.
    """
    if not 0 <= budget <= 1:
        raise InputError(f"budget: found {budget!r}; expected a share of the store from 0 to 1")
    units = chains(files, len(position), mode).units(room_of(slots, slack)) if units is None else units
    unit_of = np.empty(len(position), np.int64)
    unit_of[units.order] = np.repeat(np.arange(len(units.starts) - 1), np.diff(units.starts))
    numbers, container = np.unique(position // slots, return_inverse=True)
    torn = _torn(units, position, container, len(numbers), slots)
    bytes_of, most = np.bincount(unit_of, sizes, len(torn)).astype(np.int64), math.floor(budget * int(sizes.sum()))
    nothing = np.zeros(len(torn), np.bool_)
    chosen = nothing.copy()
    runs = runs_per_file(files.starts, position[files.values], slots)
    ideal = np.maximum(1, -(-np.diff(files.starts) // slots))
    merging = (unit_of, container, len(numbers), slots, bytes_of, most)
    # What the rounds before have nearly emptied comes first, because its space comes back for few bytes.
    _merge(chosen, *merging)
    if torn.any():
        worst = np.argsort(-(runs / ideal), kind="stable")
        _choose(worst, files.starts, files.values, unit_of, torn, bytes_of, most, chosen)
    for which in (chosen, nothing):
        _merge(which, *merging)
        after, end = _harmless(which, files, position, units, unit_of, np.maximum(runs, TOLERATED * (ideal + 1)), slots, slack, first)
        # A round that would not make the files less torn is not worth its bytes, so then only containers are merged.
        if runs_per_file(files.starts, after[files.values], slots).sum() < runs.sum():
            break
    return Moves(after, which[unit_of], end)


def _harmless(
    chosen: np.ndarray, files: Rows, position: np.ndarray, units: Chains, unit_of: np.ndarray, allowed: np.ndarray, slots: int,
    slack: float, first: int,
) -> tuple[np.ndarray, int]:  # fmt: skip
    """(positions, next container) after the units `chosen` have moved, less those that would give a file more runs than are `allowed`.

    A unit that many files share may lie well for most of them and tear one of them apart, which the sum of all runs does not show. Such
    a file keeps as many units that lie side by side in it now as it has runs too many, and in later attempts all of its units. `chosen`
    only shrinks, and in the last attempt nothing moves.
    """
    for attempt in range(ATTEMPTS + 1):
        after = position.copy()
        end = place_units(units, np.flatnonzero(chosen), after, slots, slack, first) if chosen.any() else first
        excess = runs_per_file(files.starts, after[files.values], slots) - allowed
        if not (excess > 0).any():
            break
        if attempt == ATTEMPTS - 1:
            chosen[:] = False
        else:
            _spare(excess, files.starts, files.values, unit_of, position, after, slots, attempt >= ATTEMPTS // 2, chosen)
    return after, end


def _torn(units: Chains, position: np.ndarray, container: np.ndarray, count: int, slots: int) -> np.ndarray:
    lowest, highest = np.full(count, np.iinfo(np.int64).max), np.full(count, -1, np.int64)
    np.minimum.at(lowest, container, position)
    np.maximum.at(highest, container, position)
    torn = np.zeros(len(units.starts) - 1, np.bool_)
    _mark_torn(units.order, units.starts, position, container, lowest, highest, slots, torn)
    return torn


def _merge(chosen: np.ndarray, unit_of: np.ndarray, container: np.ndarray, count: int, slots: int, bytes_of: np.ndarray, most: int) -> None:
    """Adds the units that have a chunk in a nearly empty container, the emptiest container first, as long as `most` bytes allow it."""
    order = np.argsort(container, kind="stable")
    starts = np.searchsorted(container[order], np.arange(count + 1))
    while True:
        live = np.bincount(container[~chosen[unit_of]], minlength=count)
        empty = np.flatnonzero((live > 0) & (live < NEARLY_EMPTY * slots))
        # A single such container with nothing to join is only the end of the log.
        if not len(empty) or (not chosen.any() and len(empty) < 2):
            return
        left, added = most - int(bytes_of[chosen].sum()), False
        for number in empty[np.argsort(live[empty], kind="stable")]:
            found = np.unique(unit_of[order[starts[number] : starts[number + 1]]])
            found = found[~chosen[found]]
            size = int(bytes_of[found].sum())
            if size <= left:
                chosen[found] = True
                left, added = left - size, added or len(found) > 0
        if not added:
            return


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
    for unit in range(len(chosen)):
        if chosen[unit]:
            taken += bytes_of[unit]
    for i in range(len(worst)):
        f = worst[i]
        for r in range(starts[f], starts[f + 1]):
            unit = unit_of[refs[r]]
            if torn[unit] and not chosen[unit] and taken + bytes_of[unit] <= most:
                chosen[unit] = True
                taken += bytes_of[unit]


@kernel
def _spare(excess, starts, refs, unit_of, position, after, slots, whole, chosen):
    for f in range(len(excess)):
        left = excess[f]
        if left <= 0:
            continue
        for r in range(starts[f], starts[f + 1] - 1):
            c, d = refs[r], refs[r + 1]
            beside = position[d] == position[c] + 1 and position[d] % slots != 0
            still = after[d] == after[c] + 1 and after[d] % slots != 0
            if beside and not still and (chosen[unit_of[c]] or chosen[unit_of[d]]):
                chosen[unit_of[c]] = chosen[unit_of[d]] = False
                left -= 1
                if left == 0:
                    break
        if whole or left == excess[f]:
            for r in range(starts[f], starts[f + 1]):
                chosen[unit_of[refs[r]]] = False
