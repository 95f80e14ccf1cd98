"""What an expression of a kernel stands for while it is lowered: a shape, and the scalar expression of any element.

Nothing is computed here. Slices, transposes, flips and new axes are views: other indices into the same array. Arithmetic is lazy, so one
assignment becomes one nest of loops however many operations it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..program.affine import Affine, number, variable
from ..program.expressions import Expr, Idx, Load, Num, changed, real

Index = tuple[Affine, ...]


@dataclass(frozen=True)
class View:
    """Elements of an array: the index of each, over the places `$0`, `$1`, … in the view and the loop variables around."""

    array: str
    index: Index

    def at(self, places: Index) -> Index:
        """The index of one element."""
        names = {f"${k}": one for k, one in enumerate(places)}
        return tuple(one.with_names(names) for one in self.index)


@dataclass(frozen=True)
class Value:
    """A scalar (no dimensions) or an array whose elements can be asked for. `dtype` is None for numbers of Python, which adapt."""

    shape: Index
    element: Callable[[Index], Expr]
    dtype: str | None
    view: View | None = None
    #: The truth values by which it was indexed; it then has the shape of what was indexed.
    mask: Value | None = None

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def scalar(self) -> Expr:
        """The expression of a scalar."""
        return self.element(())

    @property
    def integral(self) -> bool:
        """Whether its elements are integers."""
        return self.dtype is not None and np.dtype(self.dtype).kind in "iu"

    @property
    def truth(self) -> bool:
        """Whether its elements are truth values."""
        return self.dtype == "bool"


def of_view(array: str, dtype: str, shape: Sequence[Affine], index: Sequence[Affine]) -> Value:
    """The value of a view."""
    view, kind = View(array, tuple(index)), {"f": "f", "b": "b"}.get(np.dtype(dtype).kind, "i")
    return Value(tuple(shape), lambda places: Load(array, view.at(places), kind), dtype, view)


def whole(array: str, dtype: str, shape: Sequence[Affine]) -> Value:
    """All of an array, or its leading part."""
    return of_view(array, dtype, shape, [variable(f"${k}") for k in range(len(shape))])


def constant(value: float) -> Value:
    """A number of Python."""
    return Value((), lambda _: Num(float(value)), None)


def scalar_of(expr: Expr, dtype: str | None) -> Value:
    """A scalar expression."""
    return Value((), lambda _: expr, dtype)


def filled(shape: Sequence[Affine], value: Expr, dtype: str | None) -> Value:
    """An array of equal elements."""
    return Value(tuple(shape), lambda _: value, dtype)


def of_index(index: Affine) -> Value:
    """An integer as a value."""
    return Value((), lambda _: Idx(index), "int64") if not index.fixed else Value((), lambda _: Num(float(index.constant)), None)


def broadcast(*shapes: Index) -> Index | None:
    """The common shape, or None where there is none."""
    made: list[Affine] = []
    for k in range(1, max(map(len, shapes), default=0) + 1):
        sizes = {shape[-k] for shape in shapes if len(shape) >= k} - {number(1)}
        if len(sizes) > 1:
            return None
        made.append(sizes.pop() if sizes else number(1))
    return tuple(reversed(made))


def places_of(value: Value, places: Index) -> Index:
    """The places in an operand that belong to places in the broadcast result."""
    own = places[len(places) - value.ndim :] if value.ndim else ()
    return tuple(number(0) if size == number(1) else place for size, place in zip(value.shape, own))


def common_dtype(*dtypes: str | None) -> str | None:
    """NumPy's result type of arrays and numbers; None where all are numbers of Python."""
    strong = [np.dtype(one) for one in dtypes if one is not None]
    if not strong:
        return None
    found = np.result_type(*strong)
    return str(found)


def elementwise(make: Callable[..., Expr], *values: Value, dtype: str | None = None) -> Value | None:
    """An operation on every element, broadcast; None where the shapes do not fit."""
    shape = broadcast(*(value.shape for value in values))
    if shape is None:
        return None
    kind = dtype if dtype is not None else common_dtype(*(value.dtype for value in values))
    if dtype is None and kind is not None and np.dtype(kind).kind != "f":
        kind = "float64"
    mask = next((value.mask for value in values if value.mask is not None), None)
    return Value(shape, lambda places: make(*(value.element(places_of(value, places)) for value in values)), kind, None, mask)


def reals(value: Value) -> Value:
    """The value with real elements."""
    if value.integral or value.truth:
        return Value(value.shape, lambda places: real(value.element(places)), "float64", None, value.mask)
    return value


def same(a: Value, b: Value) -> bool:
    """Whether two values have equal elements, by their expressions."""
    if a.shape != b.shape:
        return False
    places = tuple(variable(f"${k}") for k in range(a.ndim))
    return a.element(places) == b.element(places)


def shifted(expr: Expr, change: Callable[[Load], Expr]) -> Expr:
    """The expression with its reads replaced."""
    return changed(expr, change, lambda index: index)
