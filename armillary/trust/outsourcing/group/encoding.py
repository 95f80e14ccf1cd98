"""Encodings of ristretto255 in 32 bytes, and points from random bytes, as RFC 9496 has them; bytes are four little-endian words."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from armillary.kernels import kernel, part

from .field import (
    CURVE_D,
    INVSQRT_A_MINUS_D,
    ONE,
    ROOT,
    SQRT_AD_MINUS_ONE,
    ZERO,
    D,
    even_of,
    limbs,
    minus,
    negated,
    odd,
    of_words,
    picked,
    plus,
    product,
    root_of_ratio,
    same,
    squared,
    words_of,
)  # fmt: skip
from .points import added, affine_ready, keep_point, keep_ready, made_ready, point_at

_INVSQRT = limbs(INVSQRT_A_MINUS_D)
_ONE_MINUS_D2, _D_MINUS_ONE_2, _SQRT_AD = limbs(1 - D * D), limbs((D - 1) ** 2), limbs(SQRT_AD_MINUS_ONE)
_MINUS_ONE = limbs(-1)
_BIT = np.uint64(1)


@kernel
def decoded(w0, w1, w2, w3):
    """(1 if the four words are an encoding, x, y)."""
    s = of_words(w0, w1, w2, w3)
    least = words_of(s)
    unlike = (least[0] ^ w0) | (least[1] ^ w1) | (least[2] ^ w2) | (least[3] ^ w3)
    good = (unlike == 0) and (w0 & _BIT) == 0
    ss = squared(s)
    u1, u2 = minus(ONE, ss), plus(ONE, ss)
    u22 = squared(u2)
    v = minus(negated(product(CURVE_D, squared(u1))), u22)
    square, root = root_of_ratio(ONE, product(v, u22))
    dx = product(root, u2)
    dy = product(product(root, dx), v)
    twice = plus(s, s)
    x = even_of(product(twice, dx))
    y = product(u1, dy)
    t = product(x, y)
    good = good and square == 1 and odd(t) == 0 and same(y, ZERO) == 0
    return good, x, y


@kernel
def encoded(p):
    """The four words of a point's encoding."""
    u1 = product(plus(p[2], p[1]), minus(p[2], p[1]))
    u2 = product(p[0], p[1])
    _, root = root_of_ratio(ONE, product(u1, squared(u2)))
    d1, d2 = product(root, u1), product(root, u2)
    z = product(product(d1, d2), p[3])
    turn = odd(product(p[3], z))
    x = picked(p[0], product(p[1], ROOT), turn)
    y = picked(p[1], product(p[0], ROOT), turn)
    d = picked(d2, product(d1, _INVSQRT), turn)
    y = picked(y, negated(y), odd(product(x, z)))
    return words_of(even_of(product(d, minus(p[2], y))))


@kernel
def decode_all(words, ready):
    """Decodes (n, 4) words to (n, 15) ready points; the index of the first that is no encoding, or −1."""
    for i in range(len(words)):
        good, x, y = decoded(words[i, 0], words[i, 1], words[i, 2], words[i, 3])
        if not good:
            return i
        keep_ready(ready, i, affine_ready(x, y))
    return -1


@kernel
def encode_all(points, words):
    """Encodes (n, 20) points to (n, 4) words."""
    for i in range(len(points)):
        found = encoded(point_at(points, i))
        for k in range(4):
            words[i, k] = found[k]


@part
def _mapped(t):
    """The map of RFC 9496, section 4.3.4."""
    r = product(ROOT, squared(t))
    u = product(plus(r, ONE), _ONE_MINUS_D2)
    v = product(minus(_MINUS_ONE, product(r, CURVE_D)), plus(r, CURVE_D))
    square, s = root_of_ratio(u, v)
    s = picked(negated(even_of(product(s, t))), s, square)
    c = picked(r, _MINUS_ONE, square)
    n = minus(product(product(c, minus(r, ONE)), _D_MINUS_ONE_2), v)
    w0, w1 = product(plus(s, s), v), product(n, _SQRT_AD)
    ss = squared(s)
    w2, w3 = minus(ONE, ss), plus(ONE, ss)
    return product(w0, w3), product(w2, w1), product(w1, w3), product(w0, w2)


@kernel
def map_all(words, points):
    """Points from (n, 8) words of uniformly random bytes, each the sum of the images of its two halves."""
    for i in range(len(words)):
        first = _mapped(of_words(words[i, 0], words[i, 1], words[i, 2], words[i, 3]))
        other = _mapped(of_words(words[i, 4], words[i, 5], words[i, 6], words[i, 7]))
        keep_point(points, i, added(first, made_ready(other)))
