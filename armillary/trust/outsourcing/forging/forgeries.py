"""Forged answers, each made by what a server can see: the bases, the shifted bases, the query, and answers to other queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.trust.outsourcing.group.bases import Scalars, integers, random_scalars
from armillary.trust.outsourcing.group.element import ENCODED_BYTES, Element, times_generator
from armillary.trust.outsourcing.group.field import PRIME
from armillary.trust.outsourcing.group.scalars import ORDER

if TYPE_CHECKING:
    import numpy as np

Elements = Sequence[Element]


@dataclass(frozen=True)
class Scene:
    """What a cheating server has at hand while it answers one query."""

    #: The elements of the right answer.
    right: Elements
    #: The query, and an honest answer to any other one.
    x: Scalars
    answer: Callable[[Scalars], bytes]
    #: The right answer by a server whose shifted bases belong to another client.
    stranger: bytes
    rng: np.random.Generator

    def difference(self) -> Element:
        """A random element, which is not the neutral one."""
        return times_generator(1 + self.scalar() % (ORDER - 1))

    def scalar(self) -> int:
        """A random scalar."""
        return integers(random_scalars(self.rng, 1))[0]


def _joined(elements: Elements) -> bytes:
    return b"".join(map(bytes, elements))


def _first_changed(scene: Scene) -> bytes:
    return _joined([scene.right[0] + scene.difference(), *scene.right[1:]])


def _last_changed(scene: Scene) -> bytes:
    return _joined([*scene.right[:-1], scene.right[-1] + scene.difference()])


def _all_changed(scene: Scene) -> bytes:
    more = scene.difference()
    return _joined([one + more for one in scene.right])


def _guessed_multiplier(scene: Scene) -> bytes:
    """The best that a server can do: add D to A, and k'·D to B for a guess k' of the client's multiplier."""
    more = scene.difference()
    return _joined([scene.right[0] + more, *(one + more * scene.scalar() for one in scene.right[1:])])


def _nothing(scene: Scene) -> bytes:
    return bytes(ENCODED_BYTES * len(scene.right))


def _turned(scene: Scene) -> bytes:
    """The answer's elements in the opposite order, or the opposite of its only one."""
    return _joined(scene.right[::-1]) if len(scene.right) > 1 else _negated(scene)


def _negated(scene: Scene) -> bytes:
    return _joined([Element.identity() - one for one in scene.right])


def _doubled(scene: Scene) -> bytes:
    return _joined([one + one for one in scene.right])


def _neighbour(scene: Scene) -> bytes:
    """The right answer to a query that differs in one scalar."""
    numbers, at = integers(scene.x), int(scene.rng.integers(len(scene.x)))
    numbers[at] = (numbers[at] + 1) % ORDER
    from armillary.trust.outsourcing.group.bases import as_scalars

    return scene.answer(as_scalars(numbers))


def _another(scene: Scene) -> bytes:
    return scene.answer(random_scalars(scene.rng, len(scene.x)))


def _stranger(scene: Scene) -> bytes:
    return scene.stranger if len(scene.right) > 1 else _first_changed(scene)


def _top_bit(scene: Scene) -> bytes:
    """The right answer with the unused bit of an encoding set, which a careless decoder drops."""
    data = bytearray(_joined(scene.right))
    data[ENCODED_BYTES * int(scene.rng.integers(len(scene.right))) + ENCODED_BYTES - 1] |= 0x80
    return bytes(data)


def _odd(scene: Scene) -> bytes:
    """The right answer with p − s in place of s, which stands for the same element and is not canonical."""
    data = _joined(scene.right)
    least = int.from_bytes(data[:ENCODED_BYTES], "little")
    return (PRIME - least).to_bytes(ENCODED_BYTES, "little") + data[ENCODED_BYTES:]


def _random_bytes(scene: Scene) -> bytes:
    return scene.rng.bytes(ENCODED_BYTES * len(scene.right))


def _truncated(scene: Scene) -> bytes:
    return _joined(scene.right)[: -1 - int(scene.rng.integers(ENCODED_BYTES))]


def _longer(scene: Scene) -> bytes:
    return _joined(scene.right) + b"\0"


#: Forgeries by name; none of them is a right answer, unless the query is nothing but zeros.
FORGERIES: dict[str, Callable[[Scene], bytes]] = {
    "first-changed": _first_changed,
    "last-changed": _last_changed,
    "all-changed": _all_changed,
    "guessed-multiplier": _guessed_multiplier,
    "nothing": _nothing,
    "turned": _turned,
    "negated": _negated,
    "doubled": _doubled,
    "neighbour": _neighbour,
    "another-query": _another,
    "another-key": _stranger,
    "top-bit": _top_bit,
    "odd": _odd,
    "random-bytes": _random_bytes,
    "truncated": _truncated,
    "longer": _longer,
}
#: Forgeries that need a sum of their own, and so take longest.
DEAR = frozenset({"neighbour", "another-query"})
