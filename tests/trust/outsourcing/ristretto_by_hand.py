"""ristretto255 in Python's integers and affine coordinates, to compare with: slow, and written from RFC 9496 and the curve's equation alone."""

from __future__ import annotations

P = 2**255 - 19
Q = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
I = pow(2, (P - 1) // 4, P)  # noqa: E741
Point = tuple[int, int]
IDENTITY: Point = (0, 1)
_Y = 4 * pow(5, -1, P) % P


def _root(a: int) -> int | None:
    """The even square root modulo p, or None."""
    for factor in (1, I):
        found = pow(a, (P + 3) // 8, P) * factor % P
        if found * found % P == a % P:
            return found if found % 2 == 0 else P - found
    return None


def _even(a: int) -> int:
    return a % P if a % P % 2 == 0 else -a % P


BASE: Point = (_root((_Y * _Y - 1) * pow(D * _Y * _Y + 1, -1, P)) or 0, _Y)


def add(a: Point, b: Point) -> Point:
    (x1, y1), (x2, y2) = a, b
    t = D * x1 * x2 * y1 * y2 % P
    return (x1 * y2 + x2 * y1) * pow(1 + t, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - t, -1, P) % P


def multiply(scalar: int, a: Point) -> Point:
    found = IDENTITY
    for bit in bin(scalar)[2:]:
        found = add(found, found)
        if bit == "1":
            found = add(found, a)
    return found


def decode(data: bytes) -> Point | None:
    s = int.from_bytes(data, "little")
    if len(data) != 32 or s >= P or s % 2:
        return None
    u1, u2 = (1 - s * s) % P, (1 + s * s) % P
    v = (-D * u1 * u1 - u2 * u2) % P
    root = _root(pow(v * u2 * u2, -1, P) if v * u2 % P else 0)
    if root is None:
        return None
    x = _even(2 * s * root * u2)
    y = u1 * root * root * u2 * v % P
    return None if x * y % P % 2 or y == 0 else (x, y)


def encode(a: Point) -> bytes:
    x, y = a
    u1, u2 = (1 + y) * (1 - y) % P, x * y % P
    product = u1 * u2 * u2 % P
    inverse = pow(product, -1, P) if product else 0
    root = _root(inverse)
    if root is None:
        root = _root(inverse * I)
    assert root is not None
    d1, d2 = root * u1 % P, root * u2 % P
    z = d1 * d2 * x * y % P
    if x * y * z % P % 2:
        minus = _root(pow(-1 - D, -1, P)) or 0
        x, y, d = y * I % P, x * I % P, d1 * minus % P
    else:
        d = d2
    if x * z % P % 2:
        y = -y % P
    return _even(d * (1 - y)).to_bytes(32, "little")


def edwards(data: bytes) -> Point:
    """The point of an Ed25519 public key (RFC 8032)."""
    number = int.from_bytes(data, "little")
    y, odd = number & (1 << 255) - 1, number >> 255
    x = _root((y * y - 1) * pow(D * y * y + 1, -1, P))
    assert x is not None
    return (x if x % 2 == odd else P - x), y
