"""Batches of interpolation runs on a device: the tables that the kernels read, and one launch per level and axis for all runs.

A run is one array with one plan: a chunk that is coded or restored, or a sample under a plan that is tried. Chunks have few points on
their coarse levels, so that a launch for each of them would take longer than its work.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton

from ..stages.interpolation import LEAST_BOUND, STRIDES, Plan, passes
from ..stages.stage import Context
from . import interpolation_kernels as kernels
from .quantise_kernels import EXACT, divisor

#: Points of a program, and codes of one that counts, in rounds.
BLOCK = 1024
COUNTED = (4096, 8)
#: Codes around the centre that are counted in registers.
WINDOW = 512
_ROW, _LEVELS = 24, 18

Shape = tuple[int, int, int, int]


@dataclass(frozen=True)
class Run:
    """An array from `source` on with the plan it is coded by."""

    shape: Shape
    plan: Plan
    source: int
    eps: float
    #: The bound of the anchors.
    own: float
    narrow: bool = True
    #: Whether the codes of the anchors are counted too.
    whole: bool = False


@functools.lru_cache(maxsize=1024)
def lattice_rows(shape: Shape, order: int, stride: int) -> np.ndarray:
    """Returns the anchors and each pass of a plan as the kernels read them: size, first code, axis, stride, level; first places, steps,
    counts and extents along z, y, x; what divides by the counts along x, y, z.
    """
    ctx = Context(shape, np.dtype("<f4"))
    apart = stride or STRIDES[ctx.dimensions]
    counts = [-(-n // apart) for n in shape[1:]]
    size = shape[0] * counts[0] * counts[1] * counts[2]
    rows = [(size, 0, 0, apart, 0, 0, 0, 0, apart, apart, apart, *counts)]
    every = passes(ctx, Plan(order=order, stride=stride), size)
    rows += [(p.size, p.at, p.axis, p.stride, p.level, *p.starts, *p.steps, *p.counts) for p in every]
    return np.array([(*row, *shape[1:], *divisor(row[13]), *divisor(row[12]), *divisor(row[11]), 0) for row in rows], np.int64)


@functools.lru_cache(maxsize=256)
def _divisors(alpha: float, beta: float) -> np.ndarray:
    """Returns by how much the bound of each level is divided, 1 for the anchors."""
    return np.array([1.0, *(min(alpha ** (level - 1), beta) for level in range(1, _LEVELS))])


class Batch:
    """Runs with their tables on the device; reconstructions lie as the sources do (`in_place`) or one after another, and so do codes."""

    def __init__(self, runs: Sequence[Run], device: Any, radius: int, *, in_place: bool, codes: Sequence[int] | None = None) -> None:
        self.runs, self.device, self.radius = runs, device, radius
        keys = [(run.shape, run.plan.order, run.plan.stride) for run in runs]
        known = {key: k for k, key in enumerate(dict.fromkeys(keys))}
        found = [lattice_rows(*key) for key in known]
        self.steps = max(len(rows) for rows in found)
        table = np.zeros((len(found), self.steps, _ROW), np.int64)
        for k, rows in enumerate(found):
            table[k, : len(rows)] = rows
        which = np.array([known[key] for key in keys])
        self.sizes = np.array([run.shape for run in runs], np.int64).prod(1)
        self.anchors = table[which, 0, 0]
        self.firsts, self.lengths = table[:, :, 1], table[:, :, 0]
        after = np.cumsum(self.sizes) - self.sizes
        sources = np.array([run.source for run in runs], np.int64)
        tiles = -(-self.sizes // BLOCK)
        jobs = np.zeros((len(runs), 10), np.int64)
        jobs[:, 0], jobs[:, 1], jobs[:, 2] = which * self.steps, sources, sources if in_place else after
        jobs[:, 3] = (sources if in_place else after) if codes is None else codes
        jobs[:, 4] = [run.plan.linear for run in runs]
        jobs[:, 5] = [run.plan.extrapolate for run in runs]
        jobs[:, 6] = [run.narrow + 2 * run.whole for run in runs]
        jobs[:, 7] = np.cumsum(tiles) - tiles
        jobs[:, 8] = self.anchors
        jobs[:, 9] = self.sizes
        own = np.array([run.own for run in runs])
        bounds = np.array([run.eps for run in runs])[:, None] / np.stack([_divisors(run.plan.alpha, run.plan.beta) for run in runs])
        bounds = np.maximum(bounds, LEAST_BOUND)
        bounds[:, 0] = own
        with np.errstate(all="ignore"):
            facts = np.stack([bounds, 0.5 / bounds, 2.0 * bounds], axis=2)
        self.tiles = int(tiles.sum())
        self.jobs, self.lattices, self.facts = (torch.from_numpy(t).to(device) for t in (jobs, table, facts))

    def put_trials(self, x: Any, recon: Any, last: int) -> None:
        """Puts the anchors of the first `last` runs in place, rounded."""
        tiles = triton.cdiv(int(self.anchors[:last].max(initial=0)), BLOCK)
        if tiles:
            kernels.trial_anchors[(tiles, last)](x, recon, self.jobs, self.facts, self.lattices, BLOCK=BLOCK, **EXACT)

    def put_anchors(self, x: Any, recon: Any, codes: Any, first: int = 0) -> Any:
        """Codes the anchors of the runs from `first` on; returns their outliers and violators as counts per tile, (2, runs, tiles)."""
        runs, tiles = len(self.runs) - first, triton.cdiv(int(self.anchors[first:].max()), BLOCK)
        counts = torch.zeros((2, runs, tiles), dtype=torch.int32, device=self.device)
        kernels.anchors[(tiles, runs)](
            x, recon, codes, counts, self.jobs[first:], self.facts[first:], self.lattices, self.radius, BLOCK=BLOCK, **EXACT
        )
        return counts

    def collect_anchors(self, x: Any, counts: Any, amounts: np.ndarray) -> tuple[Any, Any, Any]:
        """Returns all anchors' outliers (int64), and the places and bits of violators, run after run; `amounts` are those of both."""
        far, bad = (int(n) for n in amounts)
        outliers = torch.empty(far, dtype=torch.int64, device=self.device)
        places = torch.empty(bad, dtype=torch.int32, device=self.device)
        raw = torch.empty(bad, dtype=x.dtype, device=self.device)
        if far or bad:
            ends = counts.view(2, -1).cumsum(1)
            kernels.collect_anchors[(counts.shape[2], counts.shape[1])](
                x, counts, ends, outliers, places, raw, self.jobs, self.facts, self.lattices, self.radius, BLOCK=BLOCK, **EXACT
            )
        return outliers, places, raw

    def predict(self, x: Any, recon: Any, codes: Any) -> None:
        """Codes all passes; the anchors are in place."""
        for step in range(1, self.steps):
            kernels.predict[(triton.cdiv(int(self.lengths[:, step].max()), BLOCK), len(self.runs))](
                x, recon, codes, self.jobs, self.facts, self.lattices, step, self.radius, BLOCK=BLOCK, **EXACT
            )

    def tally(self, codes: Any) -> Any:
        """Returns how often each code occurs, (runs, codes) as int32."""
        bins = max(WINDOW, triton.next_power_of_2(2 * self.radius))
        counts = torch.zeros((len(self.runs), bins), dtype=torch.int32, device=self.device)
        grid = (triton.cdiv(int(self.sizes.max()), COUNTED[0] * COUNTED[1]), len(self.runs))
        low = max(0, self.radius - WINDOW // 2)
        kernels.tally[grid](codes, counts, self.jobs, low, bins, WINDOW=WINDOW, BLOCK=COUNTED[0], ROUNDS=COUNTED[1], num_warps=8)
        return counts

    def stored(self, codes: Any) -> tuple[Any, Any, Any]:
        """Returns the points without a code per tile of codes, their sums up to each tile, and the sum up to the end of each run."""
        counts = torch.zeros(self.tiles, dtype=torch.int32, device=self.device)
        kernels.count_stored[(triton.cdiv(int(self.sizes.max()), BLOCK), len(self.runs))](codes, counts, self.jobs, BLOCK=BLOCK)
        ends = counts.cumsum(0)
        last = np.cumsum(-(-self.sizes // BLOCK)) - 1
        return counts, ends, ends[torch.from_numpy(last).to(self.device)]

    def restore(self, recon: Any, codes: Any, raw: Any, counts: Any, ends: Any) -> None:
        """Restores all passes; the anchors are in place."""
        for step in range(1, self.steps):
            kernels.restore[self._grid(step)](
                recon, codes, raw, counts, ends, self.jobs, self.facts, self.lattices, step, self.radius, BLOCK=BLOCK, **EXACT
            )

    def take_stored(self, x: Any, codes: Any, raw: Any, counts: Any, ends: Any) -> None:
        """Collects the bits of the points without a code, run after run, in the order of their codes."""
        for step in range(1, self.steps):
            kernels.exchange[self._grid(step)](x, codes, raw, counts, ends, self.jobs, self.lattices, step, 1, OUT=True, BLOCK=BLOCK)

    def put_stored(self, recon: Any, codes: Any, raw: Any, counts: Any, ends: Any) -> None:
        """Puts them back as they are, also those that are not finite."""
        for step in range(1, self.steps):
            kernels.exchange[self._grid(step)](recon, codes, raw, counts, ends, self.jobs, self.lattices, step, 2, OUT=False, BLOCK=BLOCK)

    def _grid(self, step: int) -> tuple[int, int]:
        # A pass may begin in the middle of a tile of codes.
        first, length = self.firsts[:, step], self.lengths[:, step]
        return int((-(-(first + length) // BLOCK) - first // BLOCK).max()), len(self.runs)
