"""A plan carried out in simulated time, planned again where the technique does that, and byte by byte on real data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from armillary.timing import Stopwatch

from ..own_placement.bandwidth import Bandwidth
from ..plans.plan import RepairPlan, along_tree, helper_coefficients
from ..plans.planner import Planner
from ..plans.problem import Problem
from ..plans.unified import MOST_VARIABLES, variables
from .flows import WINDOW, simulate

#: Problems with more variables than this are planned again by the greedy.
QUICK = 2_000
#: Very large repairs look at the bandwidth at most this often in total.
LOOKS = 20


class Piece(NamedTuple):
    """Bytes [start, stop) of lost block `row` that sub-repair `sub` of `plan` has rebuilt."""

    plan: RepairPlan
    sub: int
    row: int
    start: int
    stop: int


@dataclass(frozen=True)
class CarriedOut:
    """Seconds to the last byte, bytes over every pool and what the pools offered, the rebuilt pieces, and the number of plans made."""

    seconds: float
    pool_bytes: np.ndarray
    capacity_bytes: np.ndarray
    pieces: tuple[Piece, ...]
    plans: int


def carry_out(planner: Planner, plan: RepairPlan, bandwidth: Bandwidth, *, window: int = WINDOW) -> CarriedOut:
    """Runs the plan under changing bandwidth; a planner with `replan_s` plans the rest again when the bandwidth has drifted."""
    if planner.replan_s is None or len(bandwidth.times) == 1:
        run = simulate(plan, bandwidth if len(bandwidth.times) > 1 else None, window=window)
        pieces = tuple(Piece(plan, s, int(plan.block[s]), int(plan.start[s]), int(plan.stop[s])) for s in range(len(plan)))
        return CarriedOut(run.seconds, run.pool_bytes, run.capacity_bytes, pieces, 1)
    return _with_replanning(planner, plan, bandwidth, window)


def _with_replanning(planner: Planner, plan: RepairPlan, bandwidth: Bandwidth, window: int) -> CarriedOut:
    whole = plan.problem
    every = float(planner.replan_s or 1.0)
    quick = planner
    if variables(whole) > MOST_VARIABLES:
        every = max(every, plan.least_s / LOOKS)
    if variables(whole) > QUICK and getattr(planner, "solver", None) == "auto":
        quick = replace(planner, solver="greedy")  # type: ignore[call-arg]
    rows = np.arange(len(whole))
    # The (from, to) stretches that are left of each block, in the order in which the plan counts bytes.
    stretches = [[(0, int(size))] for size in whole.size]
    fixed = np.full(len(whole), -1, np.int64)
    pieces: list[Piece] = []
    pool_bytes, capacity_bytes = np.zeros(len(whole.fabric.capacities)), np.zeros(len(whole.fabric.capacities))
    now, plans = 0.0, 1
    while True:
        look = _next_look(planner, bandwidth, now, every)
        run = simulate(plan, bandwidth, window=window, start=now, stop=look)
        pool_bytes += run.pool_bytes
        capacity_bytes += run.capacity_bytes
        left: dict[int, list[tuple[int, int]]] = {}
        for s in range(len(plan)):
            row = int(rows[plan.block[s]])
            begin, end = int(plan.start[s]), int(plan.stop[s])
            reached = end if run.finished else begin + int(run.done[s])
            for a, b in _mapped(stretches[row], begin, reached):
                pieces.append(Piece(plan, s, row, a, b))
                fixed[row] = plan.destination[s]
            if reached < end:
                left.setdefault(row, []).extend(_mapped(stretches[row], reached, end))
        now += run.seconds
        if run.finished or not left:
            return CarriedOut(now, pool_bytes, capacity_bytes, tuple(pieces), plans)
        rows = np.array(sorted(left), np.int64)
        for row, parts in left.items():
            stretches[row] = sorted(parts)
        plan = quick.plan(_rest(whole, bandwidth, now, rows, left, fixed))
        plans += 1


def _next_look(planner: Planner, bandwidth: Bandwidth, now: float, every: float) -> float:
    """The next multiple of `every` at which some node's bandwidth differs by more than the planner tolerates."""
    up, down = bandwidth.at(now)
    bears = float(getattr(planner, "drift", 0.1))
    for t in bandwidth.times[bandwidth.times > now]:
        there, back = bandwidth.at(float(t))
        if (np.abs(there - up) > bears * up).any() or (np.abs(back - down) > bears * down).any():
            return max(math.ceil(float(t) / every - 1e-9), math.floor(now / every + 1e-9) + 1) * every
    return np.inf


def _mapped(stretches: list[tuple[int, int]], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The bytes [begin, end), counted along the stretches, as stretches of the block."""
    passed = 0
    for a, b in stretches:
        low, high = max(begin - passed, 0), min(end - passed, b - a)
        if low < high:
            yield a + low, a + high
        passed += b - a


def _rest(
    whole: Problem, bandwidth: Bandwidth, now: float, rows: np.ndarray, left: dict[int, list[tuple[int, int]]], fixed: np.ndarray
) -> Problem:
    """What is left to rebuild at `now`; a block that has begun keeps its destination."""
    allowed = whole.allowed[rows].copy()
    begun = fixed[rows] >= 0
    allowed[begun] = False
    allowed[np.flatnonzero(begun), fixed[rows][begun]] = True
    size = np.array([sum(b - a for a, b in left[int(row)]) for row in rows], np.int64)
    fabric = whole.fabric.with_nodes(*bandwidth.at(now))
    return replace(
        whole, fabric=fabric, stripe=whole.stripe[rows], index=whole.index[rows], holder=whole.holder[rows], allowed=allowed, size=size
    )


def _part(blocks: np.ndarray, low: int, high: int, node: int, index: int) -> np.ndarray:
    return blocks[index, low:high]


def rebuild(problem: Problem, pieces: tuple[Piece, ...], real_bytes: int, seed: int) -> tuple[bool, float]:
    """(whether every rebuilt byte equals the lost one, seconds of arithmetic) of the trees on blocks of `real_bytes` random bytes.

    Byte positions are scaled from the simulated block to the real one; partial sums are formed where the plan forms them.
    """
    code, full = problem.code, int(problem.size.max(initial=1))
    by_stripe: dict[int, list[Piece]] = {}
    for piece in pieces:
        by_stripe.setdefault(int(problem.stripe[piece.row]), []).append(piece)
    lost_rows: dict[int, list[int]] = {}
    for row, stripe in enumerate(problem.stripe.tolist()):
        lost_rows.setdefault(stripe, []).append(row)
    rng = np.random.default_rng(seed)
    right, seconds = True, 0.0
    for stripe, rows in lost_rows.items():
        data = rng.integers(0, 2**63, code.k * (-(-real_bytes // 8)), np.int64).view(np.uint8).reshape(code.k, -1)[:, :real_bytes]
        blocks = np.concatenate([data, code.encode(data)])
        rebuilt = {row: np.zeros(real_bytes, np.uint8) for row in rows}
        filled = dict.fromkeys(rows, 0)
        with Stopwatch() as watch:
            for plan, s, row, a, b in by_stripe.get(stripe, ()):
                low, high = a * real_bytes // full, b * real_bytes // full
                if low == high:
                    continue
                edges = slice(int(plan.first[s]), int(plan.first[s + 1]))
                rebuilt[row][low:high] = along_tree(
                    helper_coefficients(plan, s), plan.child[edges], plan.parent[edges], plan.source[edges],
                    partial(_part, blocks, low, high), high - low,
                )  # fmt: skip
                filled[row] += high - low
        seconds += watch.seconds
        for row in rows:
            # Each block counts its own bytes, so nothing may be rebuilt twice or left out.
            right &= filled[row] == real_bytes and np.array_equal(rebuilt[row], blocks[problem.index[row]])
    return bool(right), seconds
