"""Derivatives to compare with: along random directions, and by single elements.

A built-in kernel that is analytic is run by NumPy on complex numbers, x + ih·d, whose imaginary part over h is exact to rounding. Others
are run twice, on both sides, in double precision. A kernel from a file is never run by Python, so its
reference are central differences of the compiled kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernels.catalogue import KERNELS
from ..pipeline.gradient import gradient
from ..workload import Problem

Array = np.ndarray[Any, Any]
COMPLEX_STEP = 1e-30
STEP = 1e-6
DIRECTIONS = 2
#: Arguments of which one element is looked at.
MOST_ELEMENTS = 6


@dataclass(frozen=True)
class Probe:
    """A derivative along a direction, which is zero for the arguments that it leaves out."""

    direction: Mapping[str, Array]
    derivative: float


def probes(problem: Problem, rng: np.random.Generator) -> list[Probe]:
    """Derivatives along directions of all active arguments together, and by one element of each of a few."""
    directions = [{name: rng.standard_normal(problem.arguments[name].shape) for name in problem.active} for _ in range(DIRECTIONS)]
    for name in problem.active[:MOST_ELEMENTS]:
        one = np.zeros(problem.arguments[name].shape)
        if one.size:
            one.flat[rng.integers(one.size)] = 1.0
            directions.append({name: one})
    derivative = _derivative(problem)
    return [Probe(direction, derivative(direction)) for direction in directions]


def error(gradients: Mapping[str, Array], found: list[Probe]) -> float:
    """The largest error of a directional derivative, relative to it, or to 1 where it is smaller."""
    worst = 0.0
    for probe in found:
        mine = sum(float(np.vdot(np.asarray(gradients[name], float), direction)) for name, direction in probe.direction.items())
        worst = max(worst, abs(mine - probe.derivative) / max(1.0, abs(probe.derivative)))
    return worst


def run(problem: Problem, arguments: Mapping[str, Any]) -> Array:
    """The result of a built-in kernel, run by NumPy."""
    assert problem.kernel is not None
    own = {name: np.array(value, copy=True) if isinstance(value, np.ndarray) else value for name, value in arguments.items()}
    result = KERNELS[problem.kernel].function(*own.values())
    if problem.output is not None:
        return np.asarray(own[problem.output])
    return np.asarray(result[0] if isinstance(result, tuple) else result)


def _derivative(problem: Problem) -> Callable[[Mapping[str, Array]], float]:
    if problem.kernel is None:
        compiled = gradient(problem.source, problem.active, output=problem.output)
        return lambda direction: _central(problem, direction, lambda at: float(np.sum(compiled.forward(**at), dtype=float)))
    if KERNELS[problem.kernel].analytic:
        return lambda direction: _complex(problem, direction)
    return lambda direction: _central(problem, direction, lambda at: float(np.sum(run(problem, at), dtype=float)))


def _complex(problem: Problem, direction: Mapping[str, Array]) -> float:
    moved = {
        name: value.astype(complex) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value
        for name, value in problem.arguments.items()
    }
    for name, d in direction.items():
        moved[name] += 1j * COMPLEX_STEP * d
    return float(np.sum(run(problem, moved)).imag / COMPLEX_STEP)


def _central(problem: Problem, direction: Mapping[str, Array], at: Callable[[Mapping[str, Any]], float]) -> float:
    def moved(step: float) -> dict[str, Any]:
        made = {
            name: value.astype(float) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value
            for name, value in problem.arguments.items()
        }
        for name, d in direction.items():
            made[name] = made[name] + step * d
        return made

    return (at(moved(STEP)) - at(moved(-STEP))) / (2 * STEP)
