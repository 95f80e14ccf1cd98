"""The field of p = 2²⁵⁵ − 19 elements inside compiled loops: products, square roots, parity and canonical words.

An element is five uint64 *limbs* of 51 bits, least first, which may grow between two carries: `product` and `squared` take limbs below
2⁵⁴ and give limbs below 2⁵¹ + 2¹³; `plus` adds bounds; `minus` takes a subtrahend with limbs below 2⁵³ − 76 and gives limbs that are less
than 2⁵³ above those of the minuend. Nothing here branches on an element or uses one as an index, and masks are hidden from the compiler,
which would make branches of them.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from armillary.kernels import kernel, part
from armillary.kernels.wide import dot, hidden

PRIME = 2**255 - 19
D = 37095705934669439343138083508754565189542113879843219016388785533085940283555
SQRT_MINUS_ONE = 19681161376707505956807079304988542015446066515923890162744021073123829784752
INVSQRT_A_MINUS_D = 54469307008909316920995813868745141605393597292927456921205312896311721017578
SQRT_AD_MINUS_ONE = 25063068953384623474111414158702152701244531502492656460079210482610430750235

_51, _13, _ONE_BIT, _NINETEEN = np.uint64(51), np.uint64(13), np.uint64(1), np.uint64(19)
_MASK = np.uint64((1 << 51) - 1)
_NOTHING = np.uint64(0)
_NO_COLUMN = (_NOTHING, _NOTHING)
#: 4p in limbs: `minus` adds it so that no limb falls below zero.
_FOUR_P, _FOUR_P_ABOVE = np.uint64(4 * (2**51 - 19)), np.uint64(4 * (2**51 - 1))
_SHIFTS = tuple(np.uint64(one) for one in (13, 26, 38, 39, 25, 12, 0, 64 - 13))


def limbs(number: int) -> tuple[np.uint64, ...]:
    """A number modulo p in five limbs, for constants."""
    number %= PRIME
    return tuple(np.uint64(number >> 51 * i & (1 << 51) - 1) for i in range(5))


def number_of(found: tuple[int, ...]) -> int:
    """The number modulo p that five limbs stand for."""
    return sum(int(one) << 51 * i for i, one in enumerate(found)) % PRIME


ZERO, ONE = limbs(0), limbs(1)
CURVE_D, CURVE_2D = limbs(D), limbs(2 * D)
ROOT = limbs(SQRT_MINUS_ONE)


@part
def _over(column):
    """A column of 128 bits without its last 51."""
    return column[0] >> _51 | column[1] << _13, column[1] >> _51


@part
def _carried_round(c0, c1, c2, c3, c4):
    """Limbs from five columns, each of which holds the carry of the one before; 2²⁵⁵ is 19."""
    # The topmost column has no factor of 19 in it, so its carry is below 2⁶⁰ and 19 times the carry fits into a word.
    first = (c0[0] & _MASK) + _NINETEEN * _over(c4)[0]
    return first & _MASK, (c1[0] & _MASK) + (first >> _51), c2[0] & _MASK, c3[0] & _MASK, c4[0] & _MASK


@part
def product(a, b):
    """a·b."""
    b1, b2, b3, b4 = _NINETEEN * b[1], _NINETEEN * b[2], _NINETEEN * b[3], _NINETEEN * b[4]
    c0 = dot(_NO_COLUMN, a, (b[0], b4, b3, b2, b1))
    c1 = dot(_over(c0), a, (b[1], b[0], b4, b3, b2))
    c2 = dot(_over(c1), a, (b[2], b[1], b[0], b4, b3))
    c3 = dot(_over(c2), a, (b[3], b[2], b[1], b[0], b4))
    c4 = dot(_over(c3), a, (b[4], b[3], b[2], b[1], b[0]))
    return _carried_round(c0, c1, c2, c3, c4)


@part
def squared(a):
    """a²."""
    a3, a4 = _NINETEEN * a[3], _NINETEEN * a[4]
    twice0, twice1, twice2, twice3 = a[0] << _ONE_BIT, a[1] << _ONE_BIT, a[2] << _ONE_BIT, a[3] << _ONE_BIT
    c0 = dot(_NO_COLUMN, (a[0], twice1, twice2), (a[0], a4, a3))
    c1 = dot(_over(c0), (twice0, twice2, a[3]), (a[1], a4, a3))
    c2 = dot(_over(c1), (twice0, a[1], twice3), (a[2], a[1], a4))
    c3 = dot(_over(c2), (twice0, twice1, a[4]), (a[3], a[2], a4))
    c4 = dot(_over(c3), (twice0, twice1, a[2]), (a[4], a[3], a[2]))
    return _carried_round(c0, c1, c2, c3, c4)


@part
def plus(a, b):
    """a + b, limb by limb, without a carry."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4]


@part
def minus(a, b):
    """a − b + 4p, limb by limb, without a carry."""
    more = _FOUR_P_ABOVE
    return a[0] + _FOUR_P - b[0], a[1] + more - b[1], a[2] + more - b[2], a[3] + more - b[3], a[4] + more - b[4]


@part
def carried(a):
    """The same element with limbs below 2⁵¹ + 2¹⁸, from any limbs."""
    return (
        (a[0] & _MASK) + _NINETEEN * (a[4] >> _51),
        (a[1] & _MASK) + (a[0] >> _51),
        (a[2] & _MASK) + (a[1] >> _51),
        (a[3] & _MASK) + (a[2] >> _51),
        (a[4] & _MASK) + (a[3] >> _51),
    )


@part
def picked(a, b, choice):
    """b where `choice`, a uint64, is 1, and a where it is 0, by masks rather than by a branch."""
    mask = hidden(_NOTHING - choice)
    return (
        a[0] ^ (mask & (a[0] ^ b[0])),
        a[1] ^ (mask & (a[1] ^ b[1])),
        a[2] ^ (mask & (a[2] ^ b[2])),
        a[3] ^ (mask & (a[3] ^ b[3])),
        a[4] ^ (mask & (a[4] ^ b[4])),
    )


@part
def negated(a):
    """−a."""
    return carried(minus(ZERO, carried(a)))


@part
def words_of(a):
    """The four words of the least number that equals a."""
    a = carried(carried(a))
    over = (a[0] + _NINETEEN) >> _51
    over = (a[1] + over) >> _51
    over = (a[2] + over) >> _51
    over = (a[3] + over) >> _51
    over = (a[4] + over) >> _51
    l0 = a[0] + _NINETEEN * over
    l1 = a[1] + (l0 >> _51)
    l2 = a[2] + (l1 >> _51)
    l3 = a[3] + (l2 >> _51)
    l4 = a[4] + (l3 >> _51)
    l0, l1, l2, l3, l4 = l0 & _MASK, l1 & _MASK, l2 & _MASK, l3 & _MASK, l4 & _MASK
    s = _SHIFTS
    return l0 | l1 << _51, l1 >> s[0] | l2 << s[2], l2 >> s[1] | l3 << s[4], l3 >> s[3] | l4 << s[5]


@part
def of_words(w0, w1, w2, w3):
    """The five limbs of a number below 2²⁵⁵ in four words; the topmost bit is dropped."""
    s = _SHIFTS
    return (
        w0 & _MASK,
        (w0 >> _51 | w1 << s[0]) & _MASK,
        (w1 >> s[2] | w2 << s[1]) & _MASK,
        (w2 >> s[4] | w3 << s[3]) & _MASK,
        w3 >> s[5] & _MASK,
    )


@part
def odd(a):
    """1 if the least number that equals a is odd."""
    return words_of(a)[0] & _ONE_BIT


@part
def same(a, b):
    """1 if a and b are equal modulo p."""
    x, y = words_of(a), words_of(b)
    unlike = (x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3])
    return _ONE_BIT - ((unlike | (_NOTHING - unlike)) >> np.uint64(63))


@part
def even_of(a):
    """a or −a, whichever is even."""
    return picked(a, negated(a), odd(a))


@kernel
def _squares(a, count):
    for _ in range(count):
        a = squared(a)
    return a


@kernel
def _powers(a):
    """(a^(2²⁵⁰ − 1), a¹¹)."""
    a2 = squared(a)
    a9 = product(a, _squares(a2, 2))
    a11 = product(a9, a2)
    b5 = product(squared(a11), a9)
    b10 = product(_squares(b5, 5), b5)
    b20 = product(_squares(b10, 10), b10)
    b40 = product(_squares(b20, 20), b20)
    b50 = product(_squares(b40, 10), b10)
    b100 = product(_squares(b50, 50), b50)
    b200 = product(_squares(b100, 100), b100)
    return product(_squares(b200, 50), b50), a11


@kernel
def inverse(a):
    """1/a, and 0 for 0."""
    high, a11 = _powers(a)
    return product(_squares(high, 5), a11)


@kernel
def root_of_ratio(u, v):
    """(1 if u/v is a square, the even root of u/v, or of √−1·u/v where it is none); RFC 9496, section 4.2."""
    v3 = product(squared(v), v)
    v7 = product(squared(v3), v)
    raised = product(u, v7)
    high, _ = _powers(raised)
    # (p − 5)/8 = 4·(2²⁵⁰ − 1) + 1
    r = product(product(u, v3), product(_squares(high, 2), raised))
    check = product(v, squared(r))
    minus_u = negated(u)
    right, flipped, turned = same(check, u), same(check, minus_u), same(check, product(minus_u, ROOT))
    r = picked(r, product(r, ROOT), flipped | turned)
    return right | flipped, even_of(r)
