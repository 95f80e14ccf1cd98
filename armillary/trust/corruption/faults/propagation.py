"""How far a flipped bit spreads: the error model is drawn from what single flips have become some iterations later.

A detector that is tried on raw bit flips is tried on errors that nobody would see: by the time a fault matters, it has passed through
products and sums. So flips are followed for ten windows of the solver itself; after each, the share of elements that deviate and the
size of the deviations are kept. `Study.draw` then gives one such pair, for a random number of windows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError

from .inject import VANISHED, flip_bit

if TYPE_CHECKING:
    from ..solvers.solver import Solver

Array = np.ndarray[Any, Any]
#: A relative deviation beyond this counts as one.
DEVIATES = 1e-10
STEPS = 10
#: Times the number of flips that are tried where none of them lasts.
MOST_TRIES = 20


@dataclass(frozen=True, eq=False)
class Study:
    """[steps, flips]: the share of deviating elements and the median deviation; [steps, flips, 3]: the 10th, 50th and 90th percentile.

    vanished and loud are the numbers of flips that were left out: those that changed nothing, and those that gave infinities or NaN.
    """

    share: Array
    scale: Array
    quantiles: Array
    vanished: int
    loud: int

    def draw(self, rng: np.random.Generator) -> tuple[float, float]:
        """(share of elements, relative scale) of one flip after 1 to 10 windows."""
        step, flip = int(rng.integers(len(self.share))), int(rng.integers(self.share.shape[1]))
        return float(self.share[step, flip]), float(self.scale[step, flip])


def deviation(clean: Array, found: Array) -> Array:
    """The relative deviation of every element; infinite where a zero is none any more."""
    gap = np.abs(found - clean)
    with np.errstate(over="ignore"):
        return np.divide(gap, np.abs(clean), out=np.where(gap > 0, np.inf, 0.0), where=clean != 0)


def study(make: Callable[[], Solver], rng: np.random.Generator, flips: int = 2000, steps: int = STEPS) -> Study:
    """Follows single flips in the floating-point arrays of a solver. `make` gives the same solver, at its beginning, each time."""
    if flips < 1 or steps < 1:
        raise InputError(f"found {flips} flips and {steps} steps; expected at least one of each")
    shares: list[Array] = []
    scales: list[list[float]] = []
    quantiles: list[list[Array]] = []
    vanished = loud = 0
    clean = _states(make(), steps + 1)
    # A solver that ends sooner is followed as far as it goes.
    steps = min(steps, len(clean) - 1)
    for number in range(MOST_TRIES * flips):
        # Where nearly every flip is lost, the study goes on until one is not.
        if number >= flips and shares:
            break
        solver = make()
        solver.advance()
        names = [name for name, array in solver.arrays.items() if array.dtype.kind == "f"]
        array = solver.arrays[names[int(rng.integers(len(names)))]]
        element, bit = int(rng.integers(len(array))), int(rng.integers(64))
        before = float(array[element])
        flip_bit(array, element, bit)
        after = float(array[element])
        states = _states(solver, steps) if np.isfinite(after) else []
        if not states or not all(np.isfinite(one).all() for one in states):
            loud += 1
            continue
        states += [states[-1]] * (steps - len(states))
        off = np.stack([deviation(a, b) for a, b in zip(clean[1 : steps + 1], states)])
        if abs(after - before) <= VANISHED * abs(before) or not (off > DEVIATES).any():
            vanished += 1
            continue
        held = [one[(one > DEVIATES) & np.isfinite(one)] for one in off]
        share = np.array([float((one > DEVIATES).mean()) for one in off])
        held = [one if len(one) else np.array([DEVIATES]) for one in held]
        shares.append(np.maximum(share, 1 / off.shape[1]))
        quantiles.append([np.quantile(one, (0.1, 0.5, 0.9)) for one in held])
        scales.append([float(one[1]) for one in quantiles[-1]])
    if not shares:
        raise InputError(f"found no flip of {MOST_TRIES * flips} that was neither lost nor loud; expected some", where="study")
    return Study(np.array(shares).T, np.array(scales).T, np.array(quantiles).transpose(1, 0, 2), vanished, loud)


def _states(solver: Solver, steps: int) -> list[Array]:
    found: list[Array] = []
    more = True
    while more and len(found) < steps:
        with np.errstate(all="ignore"):
            more = solver.advance()
        found.append(solver.state().copy())
    return found


def products(matrix: Any, start: Array, steps: int, fault: tuple[int, int]) -> list[Array]:
    """The elements that deviate after 1, 2 … products y = A x, when one bit of one element of the vector was flipped before the first.

    They are the fault's neighbours in the graph, then the neighbours' neighbours. The first of the lists is the element itself.
    """
    clean, found = np.array(start, np.float64), np.array(start, np.float64)
    flip_bit(found, *fault)
    deviating = [np.flatnonzero(deviation(clean, found) > DEVIATES)]
    for _ in range(steps):
        clean, found = matrix @ clean, matrix @ found
        deviating.append(np.flatnonzero(deviation(clean, found) > DEVIATES))
    return deviating
