"""The Exponent Span Capacity (ESC) says how far exponents spread along the dot products of A·B.

e(x) = ⌊log₂|x|⌋. With α_i the largest exponent of A's row i and β_j of B's column j, ESC_ij = α_i + β_j − max_k(e(a_ik) + e(b_kj)) + 1: by
how many bits the largest term that is there may lie below the largest one that fixed-point rows and columns must have room for. The exact
span is a (max, +) product, as dear as the product itself. The coarse one looks at blocks of k and never says less than the exact one.
"""

from __future__ import annotations

from typing import Any

from armillary import arrays
from armillary.errors import InputError

#: Stands for the exponent of zero: below any sum of two real exponents, and two of them still fit int32.
NOTHING = -(1 << 28)
#: How much finer the blocks become when zeros hid every term of some dot product.
_FINER = 8


def exponents(x: arrays.Array) -> arrays.Array:
    """Returns ⌊log₂|x|⌋ of finite `x` as int32; `NOTHING` for zeros."""
    xp = arrays.namespace(x)
    mantissa, exponent = arrays.frexp(x)
    return xp.where(mantissa == 0, xp.full_like(exponent, NOTHING), exponent - 1)


def esc(a: arrays.Array, b: arrays.Array, block: int | None = None) -> int:
    """Returns the Exponent Span Capacity of a·b in bits, from blocks of `block` inner indices; `block=1` is exact. 0 where the product is
    zero.

    `a` is m×k and `b` k×n, finite. Costs about 2·m·n·k/block operations; a dot product all of whose terms zeros may have hidden is looked
    at again in finer blocks. By default there are at least 64 blocks of at most 64: in a single block of some dozens of numbers one is
    always small, and the bound says several bits too many.
    """
    checked_block(block)
    return span(exponents(a), exponents(b), block)


def checked_block(block: int | None) -> None:
    """Refuses a size of blocks below 1."""
    if block is not None and block < 1:
        raise InputError(f"block: found {block}; expected at least 1")


def default_block(inner: int) -> int:
    """Returns inner indices per block where nobody says: at least 64 blocks, of at most 64."""
    return max(1, min(64, inner // 64))


def span(ea: arrays.Array, eb: arrays.Array, block: int | None = None) -> int:
    """Returns the span from the exponents of both matrices, as `exponents` gives them."""
    xp = arrays.namespace(ea, eb)
    block = block or default_block(ea.shape[1])
    if 0 in (*ea.shape, *eb.shape):
        return 0
    alpha, beta = xp.max(ea, axis=1), xp.max(eb, axis=0)
    rows, columns = alpha > NOTHING, beta > NOTHING
    ea, alpha, eb, beta = ea[rows], alpha[rows], eb[:, columns], beta[columns]
    widest = 0
    while 0 not in (*ea.shape, *eb.shape):
        inner = _inner(xp, ea, eb, block)
        hidden = inner <= NOTHING // 2
        found = xp.where(hidden, xp.zeros_like(inner), alpha[:, None] + beta[None, :] - inner + 1)
        widest = max(widest, int(xp.max(found)))
        if block == 1:
            break
        rows, columns = xp.any(hidden, axis=1), xp.any(hidden, axis=0)
        ea, alpha, eb, beta = ea[rows], alpha[rows], eb[:, columns], beta[columns]
        block = max(1, block // _FINER)
    return widest


def _inner(xp: Any, ea: arrays.Array, eb: arrays.Array, block: int) -> arrays.Array:
    """Returns a lower bound of the largest exponent among the products of every row and column; about `NOTHING` where zeros hide it."""
    best = xp.full((ea.shape[0], eb.shape[1]), 2 * NOTHING, dtype=xp.int32, device=arrays.device_of(ea))
    for start in range(0, ea.shape[1], block):
        piece_a, piece_b = ea[:, start : start + block], eb[start : start + block]
        high_a, high_b = xp.max(piece_a, axis=1)[:, None], xp.max(piece_b, axis=0)[None, :]
        if block == 1:
            best = xp.maximum(best, high_a + high_b)
            continue
        # The entry that reaches the maximum of one side meets an entry of the other that is no smaller than its minimum.
        low_a, low_b = xp.min(piece_a, axis=1)[:, None], xp.min(piece_b, axis=0)[None, :]
        best = xp.maximum(best, xp.maximum(high_a + low_b, low_a + high_b))
    return best
