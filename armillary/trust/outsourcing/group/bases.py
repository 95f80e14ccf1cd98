"""The fixed points of multi-scalar multiplications, and scalars: made, read from bytes, and checked before any loop follows them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line

from .element import ENCODED_BYTES, Element
from .encoding import decode_all, encode_all, map_all
from .points import POINT, READY, to_affine
from .scalars import ORDER, first_large, reduced_words

Words = npt.NDArray[np.uint64]
Scalars = npt.NDArray[np.uint64]

#: Terms that a sum may have.
MOST_TERMS = 1 << 24


class Bases:
    """P₁ … Pₙ, encoded (`words`, n × 4) and decoded (`ready`, n × 15): 152 bytes per base."""

    def __init__(self, words: Words, ready: Words) -> None:
        self.words, self.ready = read_only(words), read_only(ready)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, *, where: str = "bases") -> Bases:
        """Bases from concatenated encodings; the first that is not canonical is named."""
        words = words_of_bytes(data, where)
        ready: Any = np.empty((len(words), READY), np.uint64)
        wrong = decode_all(words, ready)
        if wrong >= 0:
            said = words[wrong].astype("<u8").tobytes().hex()
            raise InputError(f"base {wrong}: found {said}; expected the canonical encoding of an element of ristretto255", where=where)
        return cls(words, ready)

    @classmethod
    def from_encodings(cls, encodings: Sequence[bytes]) -> Bases:
        """Bases from encodings of 32 bytes each."""
        for i, one in enumerate(encodings):
            if len(one) != ENCODED_BYTES:
                raise InputError(f"base {i}: found {len(one)} bytes; expected {ENCODED_BYTES}")
        return cls.from_bytes(b"".join(encodings))

    @classmethod
    def from_elements(cls, elements: Sequence[Element]) -> Bases:
        """Bases from elements."""
        return cls.from_bytes(b"".join(map(bytes, elements)))

    @classmethod
    def from_label(cls, label: str, count: int) -> Bases:
        """Generators of which nobody knows a relation: BLAKE2b-512 over the label and the index, mapped to the group as RFC 9496 does.

        The first m of n are the m of the same label.
        """
        if not 0 <= count <= MOST_TERMS:
            raise InputError(f"found {count:,} bases; expected at most {MOST_TERMS:,}")
        kept = _labelled(label)
        if len(kept[0]) < count:
            kept[0] = _from_label(label, count)
        return kept[0].first(count)

    @classmethod
    def load(cls, path: str | Path) -> Bases:
        """Bases, or the public shifted ones, from a file of `.r255`, JSON or CSV."""
        from armillary.trust.outsourcing.readers.containers import read_bases

        return read_bases(path)

    def save(self, path: str | Path) -> None:
        """Writes the concatenated encodings (`.r255`), as libsodium and curve25519-dalek have them."""
        try:
            Path(path).write_bytes(bytes(self))
        except OSError as error:
            raise InputError(f"cannot be written ({error.strerror})", where=str(path)) from None

    def first(self, count: int) -> Bases:
        """The first `count` bases, without a copy."""
        return Bases(self.words[:count], self.ready[:count])

    def replaced(self, index: int, element: Element) -> Bases:
        """The same bases with another one at `index`, or one more where `index` is their number."""
        if not 0 <= index <= len(self):
            raise InputError(f"found index {index}; expected 0 to {len(self)}")
        one = Bases.from_bytes(bytes(element))
        parts = [(getattr(self, name)[:index], getattr(one, name), getattr(self, name)[index + 1 :]) for name in ("words", "ready")]
        return Bases(*(np.concatenate(part) for part in parts))

    def element(self, index: int) -> Element:
        """One base."""
        return Element.from_bytes(self.words[index].astype("<u8").tobytes())

    def digest(self) -> bytes:
        """BLAKE2b-256 over all encodings."""
        return hashlib.blake2b(bytes(self), digest_size=32).digest()

    def __bytes__(self) -> bytes:
        return self.words.astype("<u8").tobytes()

    def __len__(self) -> int:
        return len(self.words)


def as_bases(points: Bases | Sequence[bytes]) -> Bases:
    """Bases, decoded if they are encodings."""
    return points if isinstance(points, Bases) else Bases.from_encodings(points)


def as_scalars(scalars: Any, *, where: str = "scalars") -> Scalars:
    """(n, 4) words of scalars below q, from integers, bytes or words; the first that is not below q is named."""
    if isinstance(scalars, bytes | bytearray | memoryview):
        words = words_of_bytes(scalars, where)
    elif isinstance(scalars, np.ndarray):
        if scalars.dtype != np.uint64 or scalars.ndim != 2 or scalars.shape[1] != 4:
            raise InputError(f"found an array of {scalars.dtype} with shape {scalars.shape}; expected (n, 4) of uint64", where=where)
        words = np.ascontiguousarray(scalars)
    else:
        for i, one in enumerate(scalars):
            if not 0 <= int(one) < ORDER:
                raise InputError(f"scalar {i}: found {one_line(str(one), 90)}; expected 0 to q − 1", where=where)
        words = words_of_bytes(b"".join(int(one).to_bytes(ENCODED_BYTES, "little") for one in scalars), where)
    wrong = first_large(words)
    if wrong >= 0:
        raise InputError(f"scalar {wrong}: found {words[wrong].astype('<u8').tobytes().hex()}; expected a number below q", where=where)
    return read_only(words)


def read_only(array: Words) -> Words:
    """A view that cannot be written: a loop is compiled once for these, and not once more for arrays that can be."""
    view = array.view()
    view.flags.writeable = False
    return view


def integers(scalars: Scalars) -> list[int]:
    """Scalars as integers."""
    data = scalars.astype("<u8").tobytes()
    return [int.from_bytes(data[i : i + ENCODED_BYTES], "little") for i in range(0, len(data), ENCODED_BYTES)]


def check_lengths(bases: Bases, x: Scalars) -> None:
    """Raises InputError unless there is one scalar per base."""
    if len(x) != len(bases):
        raise InputError(f"found {len(x):,} scalars for {len(bases):,} bases; expected one per base")


def words_of_bytes(data: bytes | bytearray | memoryview, where: str) -> Words:
    """Rows of 32 bytes as (n, 4) words."""
    size = len(data)
    if size % ENCODED_BYTES:
        raise InputError(f"found {size:,} bytes; expected a multiple of {ENCODED_BYTES}", where=where)
    if size // ENCODED_BYTES > MOST_TERMS:
        raise InputError(f"found {size // ENCODED_BYTES:,} rows of {ENCODED_BYTES} bytes; expected at most {MOST_TERMS:,}", where=where)
    return np.frombuffer(data, "<u8").astype(np.uint64, copy=False).reshape(-1, 4)


def random_scalars(rng: np.random.Generator, count: int) -> Scalars:
    """Uniformly random scalars from a study's stream: for work, never for secrets."""
    return reduced_words(rng.integers(0, 1 << 64, (count, 8), dtype=np.uint64))


@functools.lru_cache(maxsize=2)
def _labelled(label: str) -> list[Bases]:
    return [_from_label(label, 0)]


def _from_label(label: str, count: int) -> Bases:
    prefix = hashlib.blake2b(b"armillary ristretto255 bases " + label.encode()).digest()
    data = b"".join(hashlib.blake2b(prefix + i.to_bytes(8, "little")).digest() for i in range(count))
    points: Any = np.empty((count, POINT), np.uint64)
    words: Any = np.empty((count, 4), np.uint64)
    ready: Any = np.empty((count, READY), np.uint64)
    map_all(np.frombuffer(data, "<u8").astype(np.uint64, copy=False).reshape(count, 8), points)
    encode_all(points, words)
    # The encoding stands for a coset; the point that it decodes to is another of its four, which makes no difference to any sum.
    to_affine(points, np.empty((count, 5), np.uint64), ready)
    return Bases(words, ready)
