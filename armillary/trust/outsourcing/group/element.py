"""One element of ristretto255, as a person handles it: added, compared, multiplied and encoded."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line
from armillary.kernels import kernel

from .encoding import decode_all, encode_all
from .field import limbs
from .multiples import ROOM, WINDOWS, base_multiple, fill_multiples, multiple, point_of_ready, sum_of_multiples
from .points import IDENTITY, POINT, READY, added, keep_point, made_ready, opposite, point_at, ready_at, same_coset, to_affine
from .scalars import ORDER

Words = npt.NDArray[np.uint64]

ENCODED_BYTES = 32
#: The generator's encoding.
GENERATOR = bytes.fromhex("e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76")


class Element:
    """An element of the group, kept as a point (20 words)."""

    __slots__ = ("point",)

    def __init__(self, point: Words) -> None:
        #: X, Y, Z and T in five limbs each.
        self.point = point

    @classmethod
    def identity(cls) -> Element:
        """The neutral element, whose encoding is 32 zero bytes."""
        return cls(np.array([one for part in (limbs(0), limbs(1), limbs(1), limbs(0)) for one in part], np.uint64))

    @classmethod
    def generator(cls) -> Element:
        """The generator of RFC 9496."""
        return cls.from_bytes(GENERATOR)

    @classmethod
    def from_bytes(cls, encoding: bytes) -> Element:
        """The element with this encoding of 32 bytes; one that is not canonical is refused."""
        if len(encoding) != ENCODED_BYTES:
            raise InputError(f"found {len(encoding)} bytes; expected the {ENCODED_BYTES} of an encoding")
        ready: Any = np.empty((1, READY), np.uint64)
        if decode_all(np.frombuffer(encoding, "<u8").reshape(1, 4), ready) >= 0:
            raise InputError(f"found {one_line(encoding.hex(), 70)}; expected the canonical encoding of an element of ristretto255")
        point: Any = np.empty((1, POINT), np.uint64)
        _as_point(ready, point)
        return cls(point[0])

    def __bytes__(self) -> bytes:
        words: Any = np.empty((1, 4), np.uint64)
        encode_all(self.point.reshape(1, POINT), words)
        return words.astype("<u8").tobytes()

    def __add__(self, other: Element) -> Element:
        return Element(_sum(self.point.reshape(1, POINT), other.point.reshape(1, POINT), 0))

    def __sub__(self, other: Element) -> Element:
        return Element(_sum(self.point.reshape(1, POINT), other.point.reshape(1, POINT), 1))

    def __mul__(self, scalar: int | Words) -> Element:
        """s times the element, by a fixed window without branches; a secret scalar should come as words."""
        found: Any = np.empty((1, POINT), np.uint64)
        _multiply(self.point.reshape(1, POINT), scalar_words(scalar), *_room(1), found)
        return Element(found[0])

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Element):
            return NotImplemented
        return bool(_same(self.point.reshape(1, POINT), other.point.reshape(1, POINT)))

    def __hash__(self) -> int:
        return hash(bytes(self))

    def __repr__(self) -> str:
        return f"Element({bytes(self).hex()})"


def scalar_words(scalar: int | Words) -> Words:
    """A scalar as (1, 4) words: one that has four words already, which is below q, or an integer modulo q."""
    if isinstance(scalar, np.ndarray):
        return np.array(scalar, np.uint64).reshape(1, 4)
    return np.frombuffer((scalar % ORDER).to_bytes(ENCODED_BYTES, "little"), "<u8").astype(np.uint64).reshape(1, 4)


def times_generator(scalar: int | Words) -> Element:
    """s·G, by a fixed window without branches."""
    found: Any = np.empty((1, POINT), np.uint64)
    _multiply_base(scalar_words(scalar), base_table(), _room(1)[1], found)
    return Element(found[0])


def linear(scalar: int | Words, element: Element, shift: int | Words) -> Element:
    """s·A + t·G on one chain of doublings, without branches on s and t."""
    found: Any = np.empty((1, POINT), np.uint64)
    table, digits, more = _room(2)
    _linear(element.point.reshape(1, POINT), scalar_words(scalar), scalar_words(shift), base_table(), table, digits, more, found)
    return Element(found[0])


@functools.cache
def base_table() -> Words:
    """1G to 8G, affine and ready: (8, 15)."""
    table: Any = np.empty((ROOM, POINT), np.uint64)
    multiples: Any = np.empty((ROOM, POINT), np.uint64)
    found: Any = np.empty((ROOM, READY), np.uint64)
    generator = Element.generator()
    _powers_of(generator.point.reshape(1, POINT), table, multiples)
    to_affine(multiples, np.empty((ROOM, 5), np.uint64), found)
    found.flags.writeable = False
    return found


def _room(many: int) -> tuple[Any, ...]:
    return np.empty((ROOM, POINT), np.uint64), *(np.empty((WINDOWS, 2), np.uint64) for _ in range(many))


@kernel
def _as_point(ready, point):  # type: ignore[no-untyped-def]
    for i in range(len(ready)):
        keep_point(point, i, point_of_ready(ready_at(ready, i)))


@kernel
def _add_into(a, b, take, found):  # type: ignore[no-untyped-def]
    q = made_ready(point_at(b, 0))
    keep_point(found, 0, added(point_at(a, 0), opposite(q) if take else q))


def _sum(a: Any, b: Any, take: int) -> Words:
    found: Any = np.empty((1, POINT), np.uint64)
    _add_into(a, b, take, found)
    return found[0]


@kernel
def _same(a, b):  # type: ignore[no-untyped-def]
    return same_coset(point_at(a, 0), point_at(b, 0))


@kernel
def _multiply(a, words, table, digits, found):  # type: ignore[no-untyped-def]
    keep_point(found, 0, multiple(point_at(a, 0), words, table, digits))


@kernel
def _multiply_base(words, base, digits, found):  # type: ignore[no-untyped-def]
    keep_point(found, 0, base_multiple(words, 0, base, digits))


@kernel
def _linear(a, words, shifts, base, table, digits, more, found):  # type: ignore[no-untyped-def]
    keep_point(found, 0, sum_of_multiples(point_at(a, 0), words, shifts, 0, base, table, digits, more))


@kernel
def _powers_of(a, table, found):  # type: ignore[no-untyped-def]
    """1P to 8P as points."""
    fill_multiples(point_at(a, 0), table)
    total = IDENTITY
    one = made_ready(point_at(a, 0))
    for k in range(len(found)):
        total = added(total, one)
        keep_point(found, k, total)
