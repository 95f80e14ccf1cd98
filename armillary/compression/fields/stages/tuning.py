"""Finds the splines, the order, the level bounds and the anchors that suit a field, by the entropy of codes.

Fine levels are judged on a sample of blocks of 33×9×9 points (65×65, 1025 in fewer dimensions), 0.5 % of the field, which are spread
evenly and coded as a batch; the ends of lines on blocks that lie there; coarse levels on all points of the usual lattice of anchors,
which are few. Order and splines are tuned one after another, then level bounds and anchors together, because tight coarse levels pay
only where their points are cheap (our design).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
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
    found = sample_cut(ctx, share, least)
    return whole if found is None else _blocks(whole, found)


@dataclass(frozen=True)
class Cut:
    """Blocks of one size: their extents along z, y, x, and the first place of each as (batch, z, y, x)."""

    extents: tuple[int, int, int]
    starts: np.ndarray


def sample_cut(ctx: Context, share: float = SHARE, least: int = LEAST_BLOCKS) -> Cut | None:
    """Returns the blocks of the sample, or None where they would be no smaller than the field."""
    z, y, x = (min(b, n) for b, n in zip(BLOCKS[ctx.dimensions], ctx.shape[1:], strict=True))
    count = max(least, int(share * ctx.size / (z * y * x)))
    if count * z * y * x >= ctx.size:
        return None
    # The generalised golden ratio covers any dimension evenly without a random number.
    turn = np.arange(1, count + 1)[:, None] * np.array([0.8191725, 0.6710436, 0.5497005, 0.4503])[None]
    room = np.array([ctx.shape[0], *(n - b + 1 for b, n in zip((z, y, x), ctx.shape[1:], strict=True))])
    return Cut((z, y, x), (turn % 1 * room).astype(np.int64))


def end_cuts(ctx: Context) -> list[Cut]:
    """Returns blocks at the ends of the lines of each axis whose last point is no anchor."""
    from .interpolation import STRIDES

    usual, sizes, cuts = STRIDES[ctx.dimensions], BLOCKS[ctx.dimensions], []
    for axis in range(4 - ctx.dimensions, 4):
        n = ctx.shape[axis]
        if n < 3 or (n - 1) % usual == 0:
            continue
        places, extents = [], []
        for other in (1, 2, 3):
            room = ctx.shape[other] - sizes[other - 1]
            if other == axis:
                places.append([usual * max(0, (n - 1) // usual - 1)])
                extents.append(n - places[-1][0])
            else:
                places.append(sorted({int(room * k / (ENDS - 1)) // usual * usual for k in range(ENDS)}) if room > 0 else [0])
                extents.append(min(ctx.shape[other], sizes[other - 1]))
        starts = list(itertools.product(sorted({0, ctx.shape[0] // 2}), *places))
        cuts.append(Cut((extents[0], extents[1], extents[2]), np.array(starts, np.int64)))
    return cuts


def _blocks(whole: np.ndarray, cut: Cut) -> np.ndarray:
    dz, dy, dx = cut.extents
    return np.stack([whole[b, z : z + dz, y : y + dy, x : x + dx] for b, z, y, x in cut.starts])


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
    eps, whole = float(bound[0]), data.reshape(ctx.shape)
    blocks = sample_blocks(ctx, data)
    trial = _Trial(stage, blocks, eps)
    best, least = with_splines(ctx, plan, trial.bits)
    ends = [_Trial(stage, _blocks(whole, cut), eps) for cut in end_cuts(ctx)]
    best = with_ends(best, [(end.bits(best), end.bits(replace(best, extrapolate=1))) for end in ends])
    coarse = _Coarse(stage, ctx, data, bound, best)
    plans = level_plans(ctx, best, eps) if coarse.factors else []
    with ThreadPoolExecutor(max(1, ctx.threads)) as pool:
        fine = list(pool.map(trial.bits, *zip(*plans, strict=True))) if plans else []
    return with_anchors(ctx, best, least, data.size / blocks.size, eps, list(zip(plans, fine, strict=True)), coarse.bits, coarse.factors)


def with_splines(ctx: Context, plan: Plan, bits: Callable[[Plan], float], margin: float = MARGIN) -> tuple[Plan, float]:
    """Returns the plan with the order and the splines that take the fewest bits of the sample, and those bits."""
    from .interpolation import STRIDES

    best, least = plan, bits(plan)

    def better(other: Plan) -> None:
        nonlocal best, least
        found = bits(other)
        if found < margin * least:
            best, least = other, found

    if ctx.dimensions > 1:
        better(replace(best, order=1))
    for level in tuned_levels(STRIDES[ctx.dimensions]):
        better(replace(best, linear=best.linear ^ 1 << level))
    return best, least


def tuned_levels(usual: int) -> range:
    """Returns the levels whose splines are tuned where anchors are `usual` points apart."""
    return range(1, min(3, usual.bit_length() - 1) + 1)


def with_ends(plan: Plan, bits: Sequence[tuple[float, float]], margin: float = MARGIN) -> Plan:
    """Returns the plan that extrapolates where this takes fewer bits at the ends of lines; `bits` are those of copies and the others."""
    copied = extended = 0.0
    for one, other in bits:
        copied += one
        extended += other
    return replace(plan, extrapolate=int(extended < margin * copied))


def level_plans(ctx: Context, plan: Plan, eps: float) -> list[tuple[Plan, float]]:
    """Returns the plan with each pair of α and β that is tried, and the bound of its anchors."""
    from .interpolation import STRIDES

    plans = [replace(plan, alpha=alpha, beta=beta) for alpha, beta in ((1.0, 1.0), *(LEVELS if ctx.mode != "pw_rel" else ()))]
    return [(found, found.bound(eps, STRIDES[ctx.dimensions].bit_length() + 1)) for found in plans]


def coarse_factors(ctx: Context, extents: Sequence[int]) -> list[int]:
    """Returns how much further apart the anchors may be, where the usual ones are `extents` along z, y, x."""
    from .interpolation import MOST_POWER, STRIDES

    most = min(4 * max(extents), (1 << MOST_POWER) // STRIDES[ctx.dimensions])
    return [factor for factor in FACTORS if factor < most]


def with_anchors(
    ctx: Context,
    best: Plan,
    least: float,
    scale: float,
    eps: float,
    fine: Sequence[tuple[tuple[Plan, float], float]],
    coarse: Callable[[float, int], float],
    factors: Sequence[int],
    margin: float = MARGIN,
) -> Plan:
    """Returns the plan with the level bounds and anchors that take the fewest bits.

    `least` are the bits of the sample by `best`, which is 1/`scale` of the field; `fine` those of each of `level_plans`; `coarse(ε, f)`
    those of the usual anchors where others are f times as far apart (0: by Lorenzo's predictor).
    """
    from .interpolation import STRIDES

    if not factors:
        return best
    least = scale * least + coarse(eps, 0)
    for (found, own), bits in fine:
        for factor in factors:
            far = scale * bits + coarse(own, factor)
            if far < margin * least:
                best, least = replace(found, stride=factor * STRIDES[ctx.dimensions]), far
    return best


class _Coarse:
    """Counts the bits of the points that are anchors by the usual distance, for anchors that are further apart."""

    def __init__(self, stage: Interp, ctx: Context, data: np.ndarray, bound: np.ndarray, plan: Plan) -> None:
        from .interpolation import lattice

        known = np.ascontiguousarray(lattice(ctx, data, plan))
        self._stage, self._bound, self._plan, self._known = stage, bound, plan, known.reshape(-1)
        self._ctx = Context((known.shape[0], known.shape[1], known.shape[2], known.shape[3]), data.dtype, threads=ctx.threads)
        self._found: dict[tuple[float, int], float] = {}
        self.factors = coarse_factors(ctx, known.shape[1:])

    def bits(self, eps: float, factor: int) -> float:
        if (eps, factor) not in self._found:
            limits = self._bound.copy()
            limits[0] = eps
            sections = self._stage.coded(self._ctx, self._known, limits, coarse_plan(self._plan, factor))
            counts = np.unique(sections["codes"], return_counts=True)[1]
            stored = sum(sections[name].nbytes for name in ("raw", "anchor_outliers", "anchor_raw"))
            self._found[eps, factor] = coarse_bits(counts, stored)
        return self._found[eps, factor]


def coarse_plan(plan: Plan, factor: int) -> Plan:
    """Returns the plan by which the usual anchors are coded where others are `factor` times as far apart."""
    return replace(plan, alpha=1.0, beta=1.0, linear=0, stride=factor or 1)


def coarse_bits(counts: np.ndarray, stored: int) -> float:
    """Returns the entropy of codes that occur so often, in bits, and the bits of `stored` bytes."""
    return 8.0 * stored - float((counts * np.log2(counts / counts.sum())).sum())
