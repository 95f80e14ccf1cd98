"""Data handles name pieces of data, so that tasks can declare what they access.

A handle that holds an array is changed in place by the tasks that write it. A handle that holds anything else is replaced: the task that
writes it returns its new value (or a tuple if it writes several such handles).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError
from armillary.tasks.regions import EVERYTHING, Box, box_of, elements

if TYPE_CHECKING:
    from collections.abc import Callable

#: Larger sizes are not exact as JSON numbers, and no machine has them.
MOST_BYTES = 2**53


class Data:
    """A named piece of data; `handle[0:4, ::2]` names a part of it. Made by `Graph.data`."""

    __slots__ = ("home", "id", "name", "nbytes", "shape", "value")

    def __init__(self, id: int, name: str, value: Any, nbytes: int | None, shape: tuple[int, ...] | None, home: str | None) -> None:
        self.id = id
        self.name = name
        #: The data itself, which tasks change during a run. None in graphs that only run in simulated time.
        self.value = value
        if shape is None and value is not None and is_array(value):
            shape = tuple(int(n) for n in value.shape)
        self.shape = shape
        if nbytes is None:
            nbytes = int(getattr(value, "nbytes", 0)) if is_array(value) else 0
        if not 0 <= nbytes <= MOST_BYTES:
            raise InputError(f"found {nbytes} bytes; expected 0 to 2**53", where=f"data {name}")
        #: The bytes of all of it, which determine the cost of moving it.
        self.nbytes = nbytes
        #: The node where it is at the start of a simulated run; None means the first node.
        self.home = home

    def __getitem__(self, index: Any) -> Piece:
        return Piece(self, box_of(index, self.shape, f"data {self.name}"), index)

    def __repr__(self) -> str:
        return f"Data({self.name!r})"

    @property
    def in_place(self) -> bool:
        """Whether tasks change its value in place, because it is an array."""
        return is_array(self.value)


@dataclass(frozen=True)
class Piece:
    """A part of a handle: its box, and the index that gives it."""

    data: Data
    box: Box
    index: Any = None

    @property
    def nbytes(self) -> int:
        """The bytes of the part, by its share of the elements if the shape is known."""
        if not self.box or self.data.shape is None:
            return self.data.nbytes
        return int(self.data.nbytes * elements(self.box) / max(1, int(np.prod(self.data.shape, dtype=np.int64))))

    def of(self, value: Any) -> Any:
        """This part of `value`, as a view."""
        return value if self.index is None else value[self.index]


@dataclass(frozen=True)
class Reduction:
    """A part of an array that tasks accumulate into, each in a private copy that starts as `neutral`.

    The next task that touches it otherwise sees `combine(combine(before, first), second)…`, in the order of submission.
    """

    piece: Data | Piece
    combine: Callable[[Any, Any], Any] = operator.add
    neutral: float = 0.0


def is_array(value: Any) -> bool:
    """True for NumPy, CuPy and PyTorch arrays and for objects that behave like them."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "__setitem__")


def copy_of(array: Any) -> Any:
    """A copy of a NumPy, CuPy or PyTorch array."""
    return array.clone() if hasattr(array, "clone") else array.copy()


def piece_of(thing: Any, where: str) -> Piece:
    """A handle, or a part of one, as a part."""
    if isinstance(thing, Piece):
        return thing
    if isinstance(thing, Data):
        return Piece(thing, EVERYTHING)
    raise InputError(f"found an access of type {type(thing).__name__}; expected a data handle or a part of one", where=where)
