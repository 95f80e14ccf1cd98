"""Multiplication by secret numbers: fixed windows of four bits, no branch on a digit, and every table read in full.

What a multiplication takes does not depend on the secret as far as the compiler and the processor keep it so; nobody has audited that.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from armillary.kernels import kernel, part
from armillary.kernels.wide import hidden

from .field import ONE, ZERO, picked
from .points import (
    IDENTITY,
    READY_IDENTITY,
    added,
    added_affine,
    doubled,
    doubled_often,
    keep_point,
    made_ready,
    opposite,
    opposite_affine,
    picked_affine,
    point_at,
    ready_at,
)  # fmt: skip

WINDOWS = 64
#: Rows of room that one multiplication needs: eight multiples of the point.
ROOM = 8
_FOUR, _FIFTEEN, _EIGHT, _BIT, _NOTHING, _TOP = (np.uint64(one) for one in (4, 15, 8, 1, 0, 63))


@part
def _recode(words, i, digits):
    """A scalar as 64 digits from −8 to 8, each as (size, sign) in a row of two words."""
    carry = _NOTHING
    for k in range(WINDOWS):
        raw = (words[i, k >> 4] >> (_FOUR * np.uint64(k & 15)) & _FIFTEEN) + carry
        carry = hidden((raw + _EIGHT) >> _FOUR) if k < WINDOWS - 1 else _NOTHING
        # raw − 16·carry is negative exactly where there is a carry, except for 16 − 16.
        size = raw ^ ((raw ^ (_FOUR * _FOUR - raw)) & (_NOTHING - carry))
        digits[k, 0] = size
        digits[k, 1] = carry


@part
def _equal(a, b):
    unlike = a ^ b
    return _BIT - (hidden(unlike | (_NOTHING - unlike)) >> _TOP)


@part
def _chosen(table, size, sign):
    """± size times the point of a table of projective ready points, all rows of which are read."""
    a, b, z, t = ONE, ONE, ONE, ZERO
    for k in range(ROOM):
        one, wanted = point_at(table, k), _equal(np.uint64(k + 1), size)
        a, b = picked(a, one[0], wanted), picked(b, one[1], wanted)
        z, t = picked(z, one[2], wanted), picked(t, one[3], wanted)
    found = (a, b, z, t)
    other = opposite(found)
    return picked(a, other[0], sign), picked(b, other[1], sign), z, picked(t, other[3], sign)


@part
def _chosen_affine(table, size, sign):
    found = READY_IDENTITY
    for k in range(ROOM):
        found = picked_affine(found, ready_at(table, k), _equal(np.uint64(k + 1), size))
    return picked_affine(found, opposite_affine(found), sign)


@kernel
def fill_multiples(p, table):
    """1P to 8P as projective ready points in the rows of a table."""
    ready = made_ready(p)
    for k in range(ROOM):
        keep_point(table, k, made_ready(p))
        p = added(p, ready)


@kernel
def multiple(p, words, table, digits):
    """s·P for the scalar in the first row of `words`."""
    _recode(words, 0, digits)
    fill_multiples(p, table)
    total = IDENTITY
    for w in range(WINDOWS - 1, -1, -1):
        total = doubled_often(total, 4)
        total = added(total, _chosen(table, digits[w, 0], digits[w, 1]))
    return total


@kernel
def base_multiple(words, i, base, digits):
    """s·G for row i of `words`; `base` holds 1G to 8G affine and ready."""
    _recode(words, i, digits)
    total = IDENTITY
    for w in range(WINDOWS - 1, -1, -1):
        total = doubled_often(total, 4)
        total = added_affine(total, _chosen_affine(base, digits[w, 0], digits[w, 1]))
    return total


@kernel
def sum_of_multiples(p, words, shifts, i, base, table, digits, shift_digits):
    """k·P + r·G for the scalar k in the first row of `words` and r in row i of `shifts`, on one chain of doublings."""
    _recode(words, 0, digits)
    _recode(shifts, i, shift_digits)
    fill_multiples(p, table)
    total = IDENTITY
    for w in range(WINDOWS - 1, -1, -1):
        total = doubled_often(total, 4)
        total = added(total, _chosen(table, digits[w, 0], digits[w, 1]))
        total = added_affine(total, _chosen_affine(base, shift_digits[w, 0], shift_digits[w, 1]))
    return total


@part
def point_of_ready(q):
    """The point of an affine ready one, by adding it to nothing."""
    return added_affine(IDENTITY, q)


@kernel
def shift_all(ready, words, shifts, base, table, digits, shift_digits, points):
    """Tᵢ = k·Pᵢ + rᵢ·G for all rows, as points."""
    for i in range(len(ready)):
        found = sum_of_multiples(point_of_ready(ready_at(ready, i)), words, shifts, i, base, table, digits, shift_digits)
        keep_point(points, i, found)


@kernel
def repeat_shifted(ready, doublings, points):
    """2^doublings · P for each affine ready point, as points."""
    for i in range(len(ready)):
        p = point_of_ready(ready_at(ready, i))
        for _ in range(doublings):
            p = doubled(p)
        keep_point(points, i, p)
