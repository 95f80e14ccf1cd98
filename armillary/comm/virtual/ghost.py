"""Ghosts: buffers without contents, of which only the size travels, so that gigabyte messages of many ranks fit in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from armillary.errors import InputError


class Ghost:
    """A stand-in for an array of `nbytes` bytes of `dtype` where only its size matters.

    It can be cut, joined and combined like an array, and every result is a ghost again. Virtual ranks take it with `payload="ghost"`.
    """

    __slots__ = ("dtype", "nbytes", "shape", "size")

    def __init__(self, nbytes: int, dtype: Any = np.uint8) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        each = self.dtype.itemsize
        if isinstance(nbytes, bool) or not isinstance(nbytes, int | np.integer) or nbytes < 0 or not each or nbytes % each:
            raise InputError(f"Ghost: found {nbytes!r} bytes of {self.dtype}; expected a multiple of {each}, 0 or more")
        self.nbytes = int(nbytes)
        self.size: int = self.nbytes // each
        self.shape: tuple[int, ...] = (self.size,)

    @classmethod
    def shaped(cls, shape: Any, dtype: Any = np.uint8) -> Ghost:
        """Return a ghost of an array of this shape."""
        sides = (int(shape),) if isinstance(shape, int | np.integer) else tuple(int(n) for n in shape)
        kind = np.dtype(dtype)
        ghost = cls(math.prod(sides) * kind.itemsize, kind)
        ghost.shape = sides
        return ghost

    def __repr__(self) -> str:
        return f"Ghost({self.nbytes}, {self.dtype.name!r})"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a ghost without dimensions has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Ghost]:
        row = self[0] if len(self) else self
        return (row for _ in range(len(self)))

    def __getitem__(self, index: Any) -> Ghost:
        if isinstance(index, slice) and self.shape:
            return Ghost.shaped((len(range(*index.indices(self.shape[0]))), *self.shape[1:]), self.dtype)
        if isinstance(index, int | np.integer) and self.shape:
            if not -self.shape[0] <= index < self.shape[0]:
                raise IndexError(f"index {index} is out of bounds of a ghost of shape {self.shape}")
            return Ghost.shaped(self.shape[1:], self.dtype)
        if index is Ellipsis:
            return self
        # A broadcast scalar gives the shape that an array would give, without its memory.
        return Ghost.shaped(np.broadcast_to(np.zeros((), np.bool_), self.shape)[index].shape, self.dtype)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Keep nothing."""

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def T(self) -> Ghost:
        """The ghost with its dimensions in reverse order."""
        return Ghost.shaped(self.shape[::-1], self.dtype)

    def copy(self) -> Ghost:
        """Return the ghost itself, because nothing in it can change."""
        return self

    def reshape(self, *shape: Any) -> Ghost:
        """Return a ghost of the same elements in another shape; one length may be -1."""
        sides = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        sides = tuple(int(n) for n in sides)
        if len(sides) == 1 and sides[0] == -1 and len(self.shape) == 1:
            return self
        if sides.count(-1) == 1:
            rest = math.prod(n for n in sides if n != -1)
            sides = tuple(self.size // max(rest, 1) if n == -1 else n for n in sides)
        if math.prod(sides) != self.size:
            raise InputError(f"Ghost: found {self.size} elements; expected as many as shape {sides} has")
        return Ghost.shaped(sides, self.dtype)

    def astype(self, dtype: Any, **how: Any) -> Ghost:
        """Return a ghost with as many elements of another type."""
        return Ghost.shaped(self.shape, dtype)

    def view(self, dtype: Any) -> Ghost:
        """Return a one-dimensional ghost of the same bytes as another type."""
        return Ghost(self.nbytes, dtype)

    def __array__(self, *args: Any, **named: Any) -> Any:
        raise InputError("Ghost: found one where contents are needed; expected an array, because only virtual ranks take ghosts")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        if method not in ("__call__", "reduce", "accumulate"):
            return NotImplemented
        shapes = [np.broadcast_to(np.zeros((), np.bool_), np.shape(x) if not isinstance(x, Ghost) else x.shape) for x in inputs]
        kinds = [x.dtype for x in inputs if isinstance(x, Ghost)]
        if method == "reduce":
            shape = np.add.reduce(shapes[0], **{k: v for k, v in named.items() if k in ("axis", "keepdims")}).shape
        else:
            shape = np.broadcast_shapes(*(s.shape for s in shapes))
        return Ghost.shaped(shape, np.result_type(*kinds))

    def __array_function__(self, function: Any, types: Any, args: Any, named: Any) -> Any:
        stand_in = _FUNCTIONS.get(function)
        return NotImplemented if stand_in is None else stand_in(*args, **named)


def _like(prototype: Ghost, dtype: Any = None, order: Any = None, subok: Any = None, shape: Any = None) -> Ghost:
    return Ghost.shaped(prototype.shape if shape is None else shape, prototype.dtype if dtype is None else dtype)


def _concatenate(parts: Sequence[Any], axis: int = 0) -> Ghost:
    first = parts[0]
    along = sum(part.shape[axis] for part in parts)
    return Ghost.shaped((*first.shape[:axis], along, *first.shape[axis + 1 :]), first.dtype)


def _stack(parts: Sequence[Any], axis: int = 0) -> Ghost:
    shape = list(parts[0].shape)
    shape.insert(axis, len(parts))
    return Ghost.shaped(shape, parts[0].dtype)


def _array_split(ghost: Ghost, cuts: Any, axis: int = 0) -> list[Ghost]:
    if isinstance(cuts, int | np.integer):
        each, more = divmod(len(ghost), int(cuts))
        return [ghost[: each + (i < more)] for i in range(int(cuts))]
    borders = [0, *(int(n) for n in cuts), len(ghost)]
    return [ghost[a:b] for a, b in pairwise(borders)]


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.empty_like: _like,
    np.zeros_like: _like,
    np.ones_like: _like,
    np.concatenate: _concatenate,
    np.stack: _stack,
    np.array_split: _array_split,
    np.split: _array_split,
    np.shape: lambda ghost: ghost.shape,
    np.copy: lambda ghost, **how: ghost,
}
