"""Finds the splines, the order and the level bounds that suit a field, by the entropy of the codes of a small sample.

The sample has blocks of 33×9×9 points (65×65, 1025 in fewer dimensions), 0.5 % of the field, which are spread evenly and coded as a batch.
One parameter is tuned after another: order of axes, linear or cubic for each level, α with the loosest β, then β; a full product of all
would cost more than it gains (our design).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .stage import Context

if TYPE_CHECKING:
    from .interpolation import Interp, Plan

BLOCKS = {1: (1, 1, 1025), 2: (1, 65, 65), 3: (9, 9, 33)}
SHARE = 0.005
LEAST_BLOCKS = 4
ALPHAS = (1.0, 1.25, 1.5, 1.75, 2.0)
BETAS = (1.0, 2.0, 3.0, 4.0)


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


def tuned(stage: Interp, ctx: Context, data: np.ndarray, bound: np.ndarray, plan: Plan) -> Plan:
    """Returns the plan with the fewest bits on the sample."""
    from .interpolation import STRIDES, passes, sample_bits, where

    blocks = sample_blocks(ctx, data)
    sample = np.ascontiguousarray(blocks).reshape(-1)
    small = Context((blocks.shape[0], blocks.shape[1], blocks.shape[2], blocks.shape[3]), data.dtype)
    # Anchors cost the same under every plan, so they are put in place and not counted.
    start = np.zeros(sample.size, sample.dtype)
    anchors = stage.lattice(small, sample)
    with np.errstate(all="ignore"):
        known = (2 * float(bound[0]) * np.rint(anchors * (0.5 / float(bound[0])))).astype(sample.dtype)
    stage.lattice(small, start)[...] = np.where(np.isfinite(known), known, 0)
    shape, codes = np.array(small.shape), np.zeros(sample.size, np.uint16)

    def bits(plan: Plan) -> float:
        every = list(passes(small, plan, anchors.size))
        if not every:
            return 0.0
        bounds = np.array([plan.bound(float(bound[0]), one.level) for one in every])
        linear = np.array([bool(plan.linear >> one.level & 1) for one in every])
        return float(sample_bits(sample, start.copy(), codes, shape, np.stack([where(one) for one in every]), bounds, linear, stage.radius))

    best, least = plan, bits(plan)

    def better(*others: Plan) -> None:
        nonlocal best, least
        for other in others:
            found = bits(other)
            if found < least:
                best, least = other, found

    if ctx.dimensions > 1:
        better(replace(best, order=1))
    for level in range(1, min(3, STRIDES[ctx.dimensions].bit_length() - 1) + 1):
        better(replace(best, linear=best.linear ^ 1 << level))
    if ctx.mode != "pw_rel":
        better(*(replace(best, alpha=alpha, beta=BETAS[-1]) for alpha in ALPHAS[1:]))
        better(*(replace(best, beta=beta) for beta in BETAS[1:-1] if best.alpha > 1))
    return best
