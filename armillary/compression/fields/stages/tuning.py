"""Finds the splines, the order, the level bounds and the anchors that suit a field, by the entropy of codes.

Fine levels are judged on a sample of blocks of 33×9×9 points (65×65, 1025 in fewer dimensions), 0.5 % of the field, which are spread
evenly and coded as a batch; the ends of lines on blocks that lie there; coarse levels on all points of the usual lattice of anchors,
which are few. Order and splines are tuned one after another, then level bounds and anchors together, because tight coarse levels pay
only where their points are cheap (our design).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .stage import Context

if TYPE_CHECKING:
    from .interpolation import Interp, Plan

BLOCKS = {1: (1, 1, 1025), 2: (1, 65, 65), 3: (9, 9, 33)}
SHARE = 0.005
LEAST_BLOCKS = 16
#: α and β that are tried.
LEVELS = ((1.25, 2.0), (1.5, 2.0), (1.5, 4.0), (2.0, 4.0))
#: How much further apart anchors may be than usual.
FACTORS = (4, 16, 64)
#: A plan must be better by this factor to be taken, so that what comes back is likely to get the same one.
MARGIN = 0.99
#: Blocks along each axis at the ends of lines.
ENDS = 4


def sample_blocks(ctx: Context, data: np.ndarray, share: float = SHARE, least: int = LEAST_BLOCKS) -> np.ndarray:
    """Returns blocks of the field as (blocks, z, y, x), spread by a low-discrepancy sequence, or the field itself where it is small."""
    whole = data.reshape(ctx.shape)
    block = tuple(min(b, n) for b, n in zip(BLOCKS[ctx.dimensions], ctx.shape[1:], strict=True))
    size = int(np.prod(block))
    count = max(least, int(share * data.size / size))
    if count * size >= data.size:
        return whole
    # The generalised golden ratio covers any dimension evenly without a random number.
    turn = np.arange(1, count + 1)[:, None] * np.array([0.8191725, 0.6710436, 0.5497005, 0.4503])[None]
    room = np.array([ctx.shape[0], *(n - b + 1 for b, n in zip(block, ctx.shape[1:], strict=True))])
    starts = (turn % 1 * room).astype(np.int64)
    return np.stack([whole[b, z : z + block[0], y : y + block[1], x : x + block[2]] for b, z, y, x in starts])


class _Trial:
    """Counts the bits of blocks under a plan, without those of the anchors, which are put in place within a bound of their own."""

    def __init__(self, stage: Interp, blocks: np.ndarray, eps: float) -> None:
        self._stage, self._eps = stage, eps
        self._sample = np.ascontiguousarray(blocks).reshape(-1)
        self._ctx = Context((blocks.shape[0], blocks.shape[1], blocks.shape[2], blocks.shape[3]), blocks.dtype)

    def bits(self, plan: Plan, of_anchors: float | None = None) -> float:
        from .interpolation import lattice, passes, sample_bits, where

        own = of_anchors or self._eps
        start = np.zeros(self._sample.size, self._sample.dtype)
        anchors = lattice(self._ctx, self._sample, plan)
        with np.errstate(all="ignore"):
            known = (2 * own * np.rint(anchors * (0.5 / own))).astype(self._sample.dtype)
        lattice(self._ctx, start, plan)[...] = np.where(np.isfinite(known), known, 0)
        every = list(passes(self._ctx, plan, anchors.size))
        if not every:
            return 0.0
        bounds = np.array([plan.bound(self._eps, one.level) for one in every])
        splines = np.array([plan.splines(one.level) for one in every])
        places, shape = np.stack([where(one) for one in every]), np.array(self._ctx.shape)
        codes = np.zeros(self._sample.size, np.uint16)
        return float(sample_bits(self._sample, start, codes, shape, places, bounds, splines, self._stage.radius))


def tuned(stage: Interp, ctx: Context, data: np.ndarray, bound: np.ndarray, plan: Plan) -> Plan:
    """Returns the plan with the fewest bits: those of the sample for the fine levels, and those of all anchors for the coarse ones."""
    from .interpolation import STRIDES

    eps, usual = float(bound[0]), STRIDES[ctx.dimensions]
    blocks = sample_blocks(ctx, data)
    trial = _Trial(stage, blocks, eps)
    best, least = plan, trial.bits(plan)

    def better(*others: Plan) -> None:
        nonlocal best, least
        for other in others:
            found = trial.bits(other)
            if found < MARGIN * least:
                best, least = other, found

    if ctx.dimensions > 1:
        better(replace(best, order=1))
    for level in range(1, min(3, usual.bit_length() - 1) + 1):
        better(replace(best, linear=best.linear ^ 1 << level))
    best = replace(best, extrapolate=_extrapolates(stage, ctx, data, eps, best))
    coarse = _Coarse(stage, ctx, data, bound, best)
    scale = data.size / blocks.size
    least = scale * least + coarse.bits(eps, 0)
    levels = [(1.0, 1.0)]
    if ctx.mode != "pw_rel":
        levels += LEVELS
    plans = [replace(best, alpha=alpha, beta=beta) for alpha, beta in levels] if coarse.factors else []
    bounds = [found.bound(eps, usual.bit_length() + 1) for found in plans]
    with ThreadPoolExecutor(max(1, ctx.threads)) as pool:
        fine = list(pool.map(trial.bits, plans, bounds))
    for found, own, bits in zip(plans, bounds, fine, strict=True):
        for factor in coarse.factors:
            far = scale * bits + coarse.bits(own, factor)
            if far < MARGIN * least:
                best, least = replace(found, stride=factor * usual), far
    return best


def _extrapolates(stage: Interp, ctx: Context, data: np.ndarray, eps: float, plan: Plan) -> int:
    """Returns 1 where extrapolating at the ends of the field's lines takes fewer bits than copying, on blocks at those ends."""
    from .interpolation import STRIDES

    usual, whole = STRIDES[ctx.dimensions], data.reshape(ctx.shape)
    sizes = BLOCKS[ctx.dimensions]
    copied = extended = 0.0
    for axis in range(4 - ctx.dimensions, 4):
        n = ctx.shape[axis]
        if n < 3 or (n - 1) % usual == 0:
            continue
        places = []
        for other in (1, 2, 3):
            room = ctx.shape[other] - sizes[other - 1]
            if other == axis:
                places.append([usual * max(0, (n - 1) // usual - 1)])
            else:
                places.append(sorted({int(room * k / (ENDS - 1)) // usual * usual for k in range(ENDS)}) if room > 0 else [0])
        cuts = [
            whole[b, z : z + (n if axis == 1 else sizes[0]), y : y + (n if axis == 2 else sizes[1]), x : x + (n if axis == 3 else sizes[2])]
            for b in sorted({0, ctx.shape[0] // 2}) for z in places[0] for y in places[1] for x in places[2]
        ]  # fmt: skip
        trial = _Trial(stage, np.stack(cuts), eps)
        copied += trial.bits(plan)
        extended += trial.bits(replace(plan, extrapolate=1))
    return int(extended < MARGIN * copied)


class _Coarse:
    """Counts the bits of the points that are anchors by the usual distance, for anchors that are further apart."""

    def __init__(self, stage: Interp, ctx: Context, data: np.ndarray, bound: np.ndarray, plan: Plan) -> None:
        from .interpolation import MOST_POWER, STRIDES, lattice

        known = np.ascontiguousarray(lattice(ctx, data, plan))
        self._stage, self._bound, self._plan, self._known = stage, bound, plan, known.reshape(-1)
        self._ctx = Context((known.shape[0], known.shape[1], known.shape[2], known.shape[3]), data.dtype, threads=ctx.threads)
        self._found: dict[tuple[float, int], float] = {}
        most = min(4 * max(known.shape[1:]), (1 << MOST_POWER) // STRIDES[ctx.dimensions])
        self.factors = [factor for factor in FACTORS if factor < most]

    def bits(self, eps: float, factor: int) -> float:
        if (eps, factor) not in self._found:
            limits = self._bound.copy()
            limits[0] = eps
            plan = replace(self._plan, alpha=1.0, beta=1.0, linear=0, stride=factor or 1)
            sections = self._stage.coded(self._ctx, self._known, limits, plan)
            counts = np.unique(sections["codes"], return_counts=True)[1]
            stored = sum(sections[name].nbytes for name in ("raw", "anchor_outliers", "anchor_raw"))
            self._found[eps, factor] = 8.0 * stored - float((counts * np.log2(counts / counts.sum())).sum())
        return self._found[eps, factor]
