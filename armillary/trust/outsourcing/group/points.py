"""Points of edwards25519 inside compiled loops, with formulas that hold for every pair of points.

A point is (X, Y, Z, T) with x = X/Z, y = Y/Z and T = XY/Z. One that is added many times is kept *ready*: affine as (y + x, y − x, 2dxy),
or projective as (Y + X, Y − X, Z, 2dT). A point in an array is 20 words, an affine ready one 15.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from armillary.kernels import kernel, part

from .field import CURVE_2D, ONE, ZERO, carried, inverse, minus, picked, plus, product, same, squared

IDENTITY = (ZERO, ONE, ONE, ZERO)
READY_IDENTITY = (ONE, ONE, ZERO)
POINT, READY = 20, 15


@part
def element(a, i, at):
    """The field element at column `at` of row i."""
    return a[i, at], a[i, at + 1], a[i, at + 2], a[i, at + 3], a[i, at + 4]


@part
def keep(a, i, at, found):
    """Writes a field element to column `at` of row i."""
    a[i, at] = found[0]
    a[i, at + 1] = found[1]
    a[i, at + 2] = found[2]
    a[i, at + 3] = found[3]
    a[i, at + 4] = found[4]


@part
def point_at(a, i):
    """The point in row i."""
    return element(a, i, 0), element(a, i, 5), element(a, i, 10), element(a, i, 15)


@part
def keep_point(a, i, p):
    """Writes a point to row i."""
    keep(a, i, 0, p[0])
    keep(a, i, 5, p[1])
    keep(a, i, 10, p[2])
    keep(a, i, 15, p[3])


@part
def ready_at(a, i):
    """The affine ready point in row i."""
    return element(a, i, 0), element(a, i, 5), element(a, i, 10)


@part
def keep_ready(a, i, q):
    """Writes an affine ready point to row i."""
    keep(a, i, 0, q[0])
    keep(a, i, 5, q[1])
    keep(a, i, 10, q[2])


@part
def made_ready(p):
    """The projective ready form of a point."""
    return carried(plus(p[1], p[0])), carried(minus(p[1], p[0])), p[2], product(p[3], CURVE_2D)


@part
def affine_ready(x, y):
    """The affine ready form of a point with these coordinates."""
    return carried(plus(y, x)), carried(minus(y, x)), product(product(x, y), CURVE_2D)


@part
def opposite(q):
    """−Q of a projective ready point."""
    return q[1], q[0], q[2], carried(minus(ZERO, q[3]))


@part
def opposite_affine(q):
    """−Q of an affine ready point."""
    return q[1], q[0], carried(minus(ZERO, q[2]))


@part
def _finished(a, b, c, d):
    e, f, g, h = minus(b, a), minus(d, c), plus(d, c), plus(b, a)
    return product(e, f), product(g, h), product(f, g), product(e, h)


@part
def added(p, q):
    """P + Q for a projective ready Q: eight products."""
    z = product(p[2], q[2])
    return _finished(product(minus(p[1], p[0]), q[1]), product(plus(p[1], p[0]), q[0]), product(p[3], q[3]), plus(z, z))


@part
def added_affine(p, q):
    """P + Q for an affine ready Q: seven products."""
    return _finished(product(minus(p[1], p[0]), q[1]), product(plus(p[1], p[0]), q[0]), product(p[3], q[2]), plus(p[2], p[2]))


@part
def taken_affine(p, q):
    """P − Q for an affine ready Q."""
    a, b, c = product(minus(p[1], p[0]), q[0]), product(plus(p[1], p[0]), q[1]), product(p[3], q[2])
    d = plus(p[2], p[2])
    e, f, g, h = minus(b, a), plus(d, c), minus(d, c), plus(b, a)
    return product(e, f), product(g, h), product(f, g), product(e, h)


@part
def doubled(p):
    """2P."""
    a, b, z = squared(p[0]), squared(p[1]), squared(p[2])
    h = plus(a, b)
    e = minus(h, squared(plus(p[0], p[1])))
    g = minus(a, b)
    f = plus(plus(z, z), g)
    return product(e, f), product(g, h), product(f, g), product(e, h)


@kernel
def doubled_often(p, times):
    """2^times · P."""
    for _ in range(times):
        p = doubled(p)
    return p


@part
def picked_affine(a, b, choice):
    """b where choice is 1, of two affine ready points."""
    return picked(a[0], b[0], choice), picked(a[1], b[1], choice), picked(a[2], b[2], choice)


@part
def same_coset(p, q):
    """1 if two points stand for the same element of ristretto255, which takes no encoding."""
    return same(product(p[0], q[1]), product(p[1], q[0])) | same(product(p[1], q[1]), product(p[0], q[0]))


@kernel
def to_affine(points, before, ready):
    """The affine ready forms of points with one inversion; `before` is room for one element per point (Montgomery's trick)."""
    total = ONE
    for i in range(len(points)):
        keep(before, i, 0, total)
        total = product(total, element(points, i, 10))
    left = inverse(total)
    for i in range(len(points) - 1, -1, -1):
        p = point_at(points, i)
        over = product(left, element(before, i, 0))
        left = product(left, p[2])
        keep_ready(ready, i, affine_ready(product(p[0], over), product(p[1], over)))
