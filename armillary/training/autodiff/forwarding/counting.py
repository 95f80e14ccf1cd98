"""How often statements run, how much they compute and move, and how long that takes on this machine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from armillary.kernels import loop as compiled_loop
from armillary.timing import timed

from ..program.affine import Affine, Range
from ..program.expressions import flops
from ..program.regions import ArgBest, Array, Branch, Check, Dot, Loop, Map, Statement, While

#: Iterations that are looked at one by one; beyond, the largest count stands for all.
MOST_POINTS = 4_000_000
#: Passes of a while loop that plans reckon with, as nothing is known before the run.
WHILE_PASSES = 16


@dataclass(frozen=True)
class Balance:
    """Seconds per unit of work on this machine."""

    flop_s: float = 0.5e-9
    byte_s: float = 0.1e-9
    blas_flop_s: float = 0.05e-9
    #: Entering a loop or a statement.
    step_s: float = 2e-9


@functools.cache
def measured_balance() -> Balance:
    """The balance of this machine, from three small loops; measured once per process, in about a tenth of a second."""
    n = 1 << 18
    a, b = np.linspace(0, 1, n), np.ones(n)
    small = np.linspace(0, 1, 1 << 10)
    for _ in range(2):
        _arithmetic(small, 4)
        _stream(a, b)
    square = np.ones((256, 256))
    flop_s = timed(lambda: _arithmetic(small, 64), min_seconds=0.02, min_calls=3).median / (64 * small.size * 4)
    byte_s = timed(lambda: _stream(a, b), min_seconds=0.02, min_calls=3).median / (24 * n)
    blas_s = timed(lambda: square @ square, min_seconds=0.02, min_calls=3).median / (2 * 256**3)
    return Balance(flop_s, byte_s, blas_s)


@compiled_loop(error_model="numpy")
def _arithmetic(a, times):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(times):
        for i in range(a.size):
            total += a[i] * k - 0.5 * a[i]
    return total


@compiled_loop(error_model="numpy")
def _stream(a, b):  # type: ignore[no-untyped-def]
    for i in range(a.size):
        b[i] = b[i] + a[i]


def trips(range_: Range, at: dict[str, np.ndarray]) -> np.ndarray:
    """The number of values of a range, for arrays of values of the variables outside it."""
    low, high = (_value(end, at) for end in (range_.low, range_.high))
    return np.maximum(0, -((low - high) // range_.step) if range_.step > 0 else -((high - low) // -range_.step))


def _value(index: Affine, at: dict[str, np.ndarray]) -> np.ndarray:
    found = np.asarray(index.constant, np.int64)
    for atom, times in index.terms:
        found = found + times * at[atom]  # type: ignore[index]
    return found


@dataclass(frozen=True)
class Pass:
    """A loop as a tape sees it: its range, and how many passes are on the tape at once; None for all of them."""

    range: Range
    at_once: int | None = None


def capacity(loops: Sequence[Pass], size: Callable[[dict[str, np.ndarray]], np.ndarray], uses: set[str]) -> int:
    """The most elements that are on a tape at once: the sum of `size` over nested loops, or over `at_once` passes of some of them.

    `uses` are the loop variables on which `size` depends. Variables on which nothing inside depends are multiplied, not followed.
    """
    return int(_capacity(list(loops), size, set(uses), {}))


def _capacity(loops: list[Pass], size: Callable[..., np.ndarray], uses: set[str], at: dict[str, np.ndarray]) -> np.ndarray:
    """The same for arrays of values of outer variables."""
    if not loops:
        return size(at)
    first, rest = loops[0], loops[1:]
    count = trips(first.range, at)
    needed = set(uses)
    for one in rest:
        needed |= {*one.range.low.names(), *one.range.high.names()}
    if first.range.name not in needed:
        inner = _capacity(rest, size, uses, at)
        kept = count if first.at_once is None else np.minimum(count, first.at_once)
        return kept * inner
    # One entry per value of the variable: flattened over the outer ones, then added up group by group.
    shape = np.broadcast_shapes(*(value.shape for value in at.values()), count.shape)
    counts = np.broadcast_to(count, shape).ravel()
    outer = {name: np.broadcast_to(value, shape).ravel() for name, value in at.items()}
    if counts.sum() > MOST_POINTS:
        least, most = first.range.span
        ends = {**outer, first.range.name: _value(least, outer)}, {**outer, first.range.name: _value(most, outer)}
        worst = np.maximum(*(_capacity(rest, size, uses, end) for end in ends))
        return (counts if first.at_once is None else np.minimum(counts, first.at_once)) * worst
    group = np.repeat(np.arange(counts.size), counts)
    place = np.arange(group.size) - np.repeat(np.cumsum(counts) - counts, counts)
    values = {name: value[group] for name, value in outer.items()}
    values[first.range.name] = np.broadcast_to(_value(first.range.low, outer), counts.shape)[group] + place * first.range.step
    inner = np.broadcast_to(_capacity(rest, size, uses, values), group.shape)
    if first.at_once is None:
        return np.bincount(group, inner, counts.size).reshape(shape)
    chunk = place // first.at_once
    most_chunks = int(chunk.max(initial=0)) + 1
    sums = np.bincount(group * most_chunks + chunk, inner, counts.size * most_chunks)
    return sums.reshape(counts.size, most_chunks).max(axis=1, initial=0).reshape(shape)


def known(affine: Affine) -> bool:
    """Whether no read of an array decides about it."""
    return not affine.loads


def executions(loops: Sequence[Statement]) -> float:
    """How often something inside these loops runs."""
    times, passes = 1.0, []
    for one in loops:
        if isinstance(one, While):
            times *= WHILE_PASSES
        elif isinstance(one, Loop):
            if known(one.range.low) and known(one.range.high):
                passes.append(Pass(one.range))
            else:
                times *= WHILE_PASSES
    bound = {one.range.name for one in passes}
    usable = [one for one in passes if {*one.range.low.names(), *one.range.high.names()} <= bound]
    return times * capacity(usable, lambda _: np.asarray(1), set())


@dataclass(frozen=True)
class Cost:
    """The work of something: plain operations, operations inside BLAS, bytes, and steps."""

    flops: float = 0.0
    blas: float = 0.0
    bytes: float = 0.0
    steps: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.blas + other.blas, self.bytes + other.bytes, self.steps + other.steps)

    def seconds(self, balance: Balance) -> float:
        """How long it takes."""
        return self.flops * balance.flop_s + self.blas * balance.blas_flop_s + self.bytes * balance.byte_s + self.steps * balance.step_s


def cost(
    statement: Statement, loops: Sequence[Statement], arrays: dict[str, Array], keep: Callable[[Statement], bool] | None = None
) -> Cost:
    """The work of a statement over all its runs inside `loops`; with `keep`, only that of the statements it accepts."""
    if isinstance(statement, Loop | While | Branch):
        inner = [*loops, statement] if not isinstance(statement, Branch) else list(loops)
        parts = [statement.then, statement.otherwise] if isinstance(statement, Branch) else [statement.body]
        total = Cost(steps=executions(loops))
        for part in parts:
            for one in part:
                total = total + cost(one, inner, arrays, keep)
        return total
    if keep is not None and not keep(statement):
        return Cost()
    times = executions(loops)
    if isinstance(statement, Dot):
        moved = sum(arrays[one].nbytes for one in statement.shapes)
        return Cost(blas=times * statement.flops, bytes=times * moved, steps=times)
    if isinstance(statement, Map | ArgBest | Check):
        ranges = statement.ranges + (statement.inner if isinstance(statement, ArgBest) else ())
        elements = executions([*loops, *(Loop(0, one) for one in ranges)])
        if isinstance(statement, Check):
            return Cost(flops=elements, steps=times)
        work = flops(statement.value) + 1
        touched = {load.array for load in statement.loads()} | ({statement.array} if isinstance(statement, Map) else set(statement.arrays))
        width = sum(8 for name in touched if arrays[name].shape)
        return Cost(flops=elements * work, bytes=elements * width, steps=times)
    return Cost()
