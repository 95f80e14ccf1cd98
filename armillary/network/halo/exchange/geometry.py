"""Which block of a local array goes to which neighbour, and where the neighbour's block arrives.

        w                       w
      +---+-------------------+---+
      |   |  received         |   |  w      A local array with its halo of width w. What is sent up along an axis are the last w layers
      +---+-------------------+---+         of the interior; what arrives from there lies in the w layers beyond.
      |   |  sent up          |   |  w
      |   |                   |   |
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from armillary.errors import InputError, unknown

Slices = tuple[slice, ...]
CORNERS = ("none", "diagonal", "phases")


@dataclass(frozen=True)
class Transfer:
    """One block to the neighbour at `offset` (-1, 0 or 1 along each axis), and the block that comes from there."""

    offset: tuple[int, ...]
    send: Slices
    receive: Slices

    @property
    def sent_tag(self) -> int:
        """The tag of what is sent: the direction in which it travels."""
        return direction(self.offset)

    @property
    def received_tag(self) -> int:
        """The tag of what arrives, which travelled the other way."""
        return direction(tuple(-x for x in self.offset))

    @property
    def axis(self) -> int:
        """The first axis along which the neighbour lies."""
        return next(axis for axis, x in enumerate(self.offset) if x)


def direction(offset: Sequence[int]) -> int:
    """Return a number for each direction: the digits of offset + 1 in base 3."""
    found = 0
    for x in offset:
        found = 3 * found + x + 1
    return found


def phases_of(shape: Sequence[int], width: int, corners: str) -> tuple[tuple[Transfer, ...], ...]:
    """Return the transfers of an exchange, in phases that follow each other.

    `shape` is that of the local array with its halo. With corners "none" all faces travel at once. "diagonal" adds edges and corners as
    messages of their own. "phases" goes axis by axis, and each phase takes along what the earlier ones received, so corners arrive too.
    """
    if corners not in CORNERS:
        raise unknown("way to exchange corners", corners, CORNERS)
    axes = len(shape)
    if corners == "diagonal":
        offsets = [o for o in itertools.product((-1, 0, 1), repeat=axes) if any(o)]
        return (tuple(_transfer(o, shape, width, ()) for o in offsets),)
    sides = [[tuple(sign if i == axis else 0 for i in range(axes)) for sign in (-1, 1)] for axis in range(axes)]
    if corners == "none":
        return (tuple(_transfer(o, shape, width, ()) for pair in sides for o in pair),)
    return tuple(tuple(_transfer(o, shape, width, range(axis)) for o in pair) for axis, pair in enumerate(sides))


def _transfer(offset: tuple[int, ...], shape: Sequence[int], width: int, whole: Sequence[int]) -> Transfer:
    send, receive = [], []
    for axis, (x, n) in enumerate(zip(offset, shape)):
        if x == 0:
            both = slice(0, n) if axis in whole else slice(width, n - width)
            send.append(both)
            receive.append(both)
        elif x < 0:
            send.append(slice(width, 2 * width))
            receive.append(slice(0, width))
        else:
            send.append(slice(n - 2 * width, n - width))
            receive.append(slice(n - width, n))
    return Transfer(offset, tuple(send), tuple(receive))


def check_local(shape: Sequence[int], width: int, rank: int) -> None:
    """Refuse a local array that has no interior, or less of it than the halo is wide; the error names rank and dimension."""
    if width < 1:
        raise InputError(f"width: found {width}; expected 1 or more")
    for axis, n in enumerate(shape):
        inside = n - 2 * width
        if inside < 1:
            raise InputError(
                f"rank {rank}, dimension {axis}: found {n} cells with the halo; expected more than {2 * width} for a halo of width {width}"
            )
        if inside < width:
            raise InputError(
                f"rank {rank}, dimension {axis}: found a halo of width {width} around {inside} cells; expected at most their number"
            )


def share(cells: int, parts: int, part: int) -> tuple[int, int]:
    """Return the first cell of a part of a dimension that is dealt out evenly, and the cell after its last."""
    return part * cells // parts, (part + 1) * cells // parts


def balanced(ranks: int, axes: int) -> tuple[int, ...]:
    """Return a decomposition with factors as equal as can be; the last axis gets the largest, so that strided halos travel."""
    found = [1] * axes
    rest = ranks
    factor = 2
    factors = []
    while rest > 1:
        while rest % factor == 0:
            factors.append(factor)
            rest //= factor
        factor += 1
    for one in reversed(factors):
        smallest = min(range(axes - 1, -1, -1), key=lambda axis: found[axis])
        found[smallest] *= one
    return tuple(sorted(found))
