"""Scalars: whole numbers below the order q = 2²⁵² + 27742317777372353535851937790883648493, as four uint64 words, least first.

What touches secret scalars here does not branch on them.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.kernels import kernel, part
from armillary.kernels.wide import added, dot, hidden, taken, times

Words = npt.NDArray[np.uint64]

ORDER = 2**252 + 27742317777372353535851937790883648493
SCALAR_BYTES = 32
_LOW, _60, _4, _63, _NONE = np.uint64((1 << 60) - 1), np.uint64(60), np.uint64(4), np.uint64(63), np.uint64(0)


def _constant(number: int, words: int) -> tuple[np.uint64, ...]:
    return tuple(np.uint64(number >> 64 * k & (1 << 64) - 1) for k in range(words))


_Q, _DELTA = _constant(ORDER, 4), _constant(ORDER - 2**252, 2)
#: Multiples of q that keep the difference of a fold positive.
_Q_134, _Q_9 = _constant(ORDER << 134, 7), _constant(ORDER << 9, 5)


@part
def _high(low, high):
    """Word k of a number without its last 252 bits, from its words k + 3 and k + 4."""
    return low >> _60 | high << _4


@part
def reduced(w):
    """A number of eight words modulo q.

    2²⁵² is −(q − 2²⁵²), a number of 125 bits, so that each of three folds takes up to 127 bits off; then one q at most is left too much.
    """
    high5 = _high(w[3], w[4]), _high(w[4], w[5]), _high(w[5], w[6]), _high(w[6], w[7]), w[7] >> _60
    a = taken(added((w[0], w[1], w[2], w[3] & _LOW, _NONE, _NONE, _NONE), _Q_134), times(high5, _DELTA))
    high3 = _high(a[3], a[4]), _high(a[4], a[5]), _high(a[5], a[6])
    b = taken(added((a[0], a[1], a[2], a[3] & _LOW, _NONE), _Q_9), times(high3, _DELTA))
    folded = times((_high(b[3], b[4]),), _DELTA)
    c = taken(added((b[0], b[1], b[2], b[3] & _LOW), _Q), (folded[0], folded[1], folded[2], _NONE))
    less = taken(c, _Q)
    keep = hidden(_NONE - (less[3] >> _63))
    return (
        less[0] ^ (keep & (less[0] ^ c[0])),
        less[1] ^ (keep & (less[1] ^ c[1])),
        less[2] ^ (keep & (less[2] ^ c[2])),
        less[3] ^ (keep & (less[3] ^ c[3])),
    )


@kernel
def inner_into(x, y, total, found):
    """Σ xᵢ·yᵢ + total modulo q in four words: sixteen products of words per term into seven columns of 192 bits, and one reduction.

    A column is enough for 2⁶² terms.
    """
    none = (_NONE, _NONE, _NONE)
    c0, c1, c2, c3, c4, c5, c6 = none, none, none, none, none, none, none
    for i in range(len(x)):
        a0, a1, a2, a3 = x[i, 0], x[i, 1], x[i, 2], x[i, 3]
        b0, b1, b2, b3 = y[i, 0], y[i, 1], y[i, 2], y[i, 3]
        c0 = dot(c0, (a0,), (b0,))
        c1 = dot(c1, (a0, a1), (b1, b0))
        c2 = dot(c2, (a0, a1, a2), (b2, b1, b0))
        c3 = dot(c3, (a0, a1, a2, a3), (b3, b2, b1, b0))
        c4 = dot(c4, (a1, a2, a3), (b3, b2, b1))
        c5 = dot(c5, (a2, a3), (b3, b2))
        c6 = dot(c6, (a3,), (b3,))
    o = _NONE
    # Products of scalars have 506 bits, so the sum of up to 2²⁴ of them has 530, in nine words.
    whole = added((c0[0], c0[1], c0[2], o, o, o, o, o, o), (o, c1[0], c1[1], c1[2], o, o, o, o, o))
    whole = added(whole, (o, o, c2[0], c2[1], c2[2], o, o, o, o))
    whole = added(whole, (o, o, o, c3[0], c3[1], c3[2], o, o, o))
    whole = added(whole, (o, o, o, o, c4[0], c4[1], c4[2], o, o))
    whole = added(whole, (o, o, o, o, o, c5[0], c5[1], c5[2], o))
    whole = added(whole, (o, o, o, o, o, o, c6[0], c6[1], c6[2]))
    top = reduced((whole[4], whole[5], whole[6], whole[7], whole[8], o, o, o))
    # Words 4 to 8 count 2²⁵⁶ each: twice over, the sum is reduced from below.
    shifted = reduced((o, o, o, o, top[0], top[1], top[2], top[3]))
    low = added((whole[0], whole[1], whole[2], whole[3], o, o, o, o), (shifted[0], shifted[1], shifted[2], shifted[3], o, o, o, o))
    low = reduced(added(low, (total[0], total[1], total[2], total[3], o, o, o, o)))
    found[0], found[1], found[2], found[3] = low[0], low[1], low[2], low[3]


@kernel
def _reduce_all(wide, found):
    for i in range(len(wide)):
        found[i, 0], found[i, 1], found[i, 2], found[i, 3] = reduced(
            (wide[i, 0], wide[i, 1], wide[i, 2], wide[i, 3], wide[i, 4], wide[i, 5], wide[i, 6], wide[i, 7])
        )


def reduced_words(wide: Words) -> Words:
    """(n, 8) words, each row modulo q. Uniformly random rows give scalars that are uniform but for 2⁻²⁵⁹."""
    found: Any = np.empty((len(wide), 4), np.uint64)
    _reduce_all(wide, found)
    return found


@kernel
def _first_large(words):
    for i in range(len(words)):
        if taken((words[i, 0], words[i, 1], words[i, 2], words[i, 3], _NONE), (_Q[0], _Q[1], _Q[2], _Q[3], _NONE))[4] == _NONE:
            return i
    return -1


def first_large(words: Words) -> int:
    """The index of the first scalar that is not below q, or −1."""
    return int(_first_large(words))
