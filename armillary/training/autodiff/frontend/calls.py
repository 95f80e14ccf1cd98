"""The functions of NumPy that a kernel may call, each lowered to views, loops or a product of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..program.affine import Affine, Range, number, variable
from ..program.expressions import Idx, Num, compare, op, where
from ..program.regions import Array, Dot, Loop, Operand
from .values import Index, Value, View, broadcast, common_dtype, constant, filled, of_index, of_view, places_of, reals, scalar_of

if TYPE_CHECKING:
    from .expressions import Expressions

TYPES = {
    "float64": "float64",
    "float32": "float32",
    "double": "float64",
    "single": "float32",
    "float_": "float64",
    "int64": "int64",
    "int32": "int32",
}
UNARY = {
    "exp": "exp", "log": "log", "sqrt": "sqrt", "sin": "sin", "cos": "cos", "tan": "tan", "tanh": "tanh", "sinh": "sinh", "cosh": "cosh",
    "abs": "abs", "absolute": "abs", "fabs": "abs", "negative": "neg",
}  # fmt: skip
BINARY = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "power": "pow", "pow": "pow",
    "maximum": "maximum", "minimum": "minimum", "arctan2": "arctan2", "atan2": "arctan2",
}  # fmt: skip
METHODS = frozenset(
    {"copy", "sum", "mean", "max", "min", "prod", "std", "var", "dot", "reshape", "transpose", "astype", "flatten", "ravel"}
)
#: Elements of a product below which loops are as fast as BLAS.
FEW = 64


def call(lower: Expressions, name: str, arguments: list[Any], named: Mapping[str, Any], *, method: bool) -> Any:
    """What a call of NumPy stands for."""
    if name in UNARY and len(arguments) == 1 and not named:
        return lower.together(lambda x: op(UNARY[name], x), reals(_array(lower, arguments[0])))
    if name in BINARY and len(arguments) == 2 and not named:
        return lower.arithmetic(BINARY[name], *(reals(_array(lower, one)) for one in arguments))
    function = FUNCTIONS.get(name)
    if function is None:
        lower.refuse(f"{'method' if method else 'function'} {name} is not supported")
    try:
        return function(lower, *arguments, **named)
    except TypeError as error:
        if "argument" not in str(error):
            raise
        lower.refuse(f"{name}: these arguments are not supported")


def _array(lower: Expressions, given: Any) -> Value:
    if isinstance(given, Affine):
        return of_index(given)
    if isinstance(given, Value):
        return given
    if isinstance(given, tuple):
        return _listed(lower, given)
    return lower.refuse("expected a number or an array")


def _listed(lower: Expressions, items: tuple[Any, ...]) -> Value:
    values = [reals(_array(lower, one)) for one in items]
    if not values or any(one.ndim for one in values):
        lower.refuse("expected a list of numbers")
    made = lower.array("list", (number(len(values)),), common_dtype(*(one.dtype for one in values)))
    assert made.view is not None
    for place, one in enumerate(values):
        lower.assign(of_view(made.view.array, made.dtype or "float64", (), (number(place),)), one)
    return made


def _shape(lower: Expressions, given: Any) -> Index:
    items = given if isinstance(given, tuple) else (given,)
    return tuple(lower.as_integer(one) for one in items)


def _dtype(lower: Expressions, given: Any, default: str | None = "float64") -> str | None:
    if given is None:
        return default
    name = getattr(given, "name", None) or {"float": "float64", "int": "int64"}.get(getattr(given, "numpy", ""))
    if name not in {*TYPES.values()}:
        lower.refuse("expected a dtype of float32, float64 or integers")
    return str(name)


def _axes(lower: Expressions, value: Value, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(value.ndim))
    found = []
    for one in axis if isinstance(axis, tuple) else (axis,):
        place = lower.as_integer(one)
        if not place.fixed or not -value.ndim <= place.constant < value.ndim:
            lower.refuse(f"found the axis {place}; the array has {value.ndim} dimensions")
        found.append(place.constant % value.ndim)
    return tuple(sorted(set(found)))


def _with_ones(value: Value, axes: tuple[int, ...], rank: int) -> Value:
    """The value with axes of length 1 where axes were reduced."""
    kept = [k for k in range(rank) if k not in axes]
    shape = tuple(number(1) if k in axes else value.shape[kept.index(k)] for k in range(rank))
    if value.view is not None:
        names = {f"${n}": variable(f"${k}") for n, k in enumerate(kept)}
        return of_view(value.view.array, value.dtype or "float64", shape, tuple(one.with_names(names) for one in value.view.index))
    return Value(shape, lambda places: value.element(tuple(places[k] for k in kept)), value.dtype)


def _reduced(lower: Expressions, made: Value, axes: tuple[int, ...], rank: int, keepdims: Any) -> Value:
    keep = isinstance(keepdims, Value) and isinstance(keepdims.scalar, Num) and bool(keepdims.scalar.value)
    return _with_ones(made, axes, rank) if keep else made


def _sum(lower: Expressions, a: Any, axis: Any = None, keepdims: Any = None) -> Value:
    value = _array(lower, a)
    axes = _axes(lower, value, axis)
    return _reduced(lower, lower.total(value, axes), axes, value.ndim, keepdims)


def _count(lower: Expressions, value: Value, axes: tuple[int, ...]) -> Value:
    made = 1
    size: Affine | None = None
    for k in axes:
        if value.shape[k].fixed:
            made *= value.shape[k].constant
        elif size is None:
            size = value.shape[k]
        else:
            lower.refuse("a mean over two sizes that depend on loops is not supported")
    return constant(made) if size is None else reals(scalar_of(Idx(size * made), "int64"))


def _mean(lower: Expressions, a: Any, axis: Any = None, keepdims: Any = None) -> Value:
    value = _array(lower, a)
    axes = _axes(lower, value, axis)
    total = _reduced(lower, lower.total(value, axes), axes, value.ndim, keepdims)
    return lower.arithmetic("div", total, _count(lower, value, axes))


def _var(lower: Expressions, a: Any, axis: Any = None, keepdims: Any = None) -> Value:
    value = reals(_array(lower, a))
    axes = _axes(lower, value, axis)
    mean = lower.materialise(
        lower.arithmetic("div", _with_ones(lower.total(value, axes), axes, value.ndim), _count(lower, value, axes)), "mean"
    )
    apart = lower.arithmetic("sub", value, mean)
    total = lower.total(lower.arithmetic("mul", apart, apart), axes)
    return lower.arithmetic("div", _reduced(lower, total, axes, value.ndim, keepdims), _count(lower, value, axes))


def _std(lower: Expressions, a: Any, axis: Any = None, keepdims: Any = None) -> Value:
    return lower.together(lambda x: op("sqrt", x), _var(lower, a, axis, keepdims))


def _best(greatest: bool) -> Callable[..., Value]:
    def best(lower: Expressions, a: Any, *others: Any, axis: Any = None, keepdims: Any = None) -> Value:
        value = _array(lower, a)
        if not value.ndim and others:  # Python's max and min of numbers.
            made = reals(value)
            for other in others:
                made = lower.arithmetic("maximum" if greatest else "minimum", made, reals(_array(lower, other)))
            return made
        if len(others) == 1 and axis is None:
            axis = others[0]
        elif others:
            lower.refuse("these arguments of max or min are not supported")
        value = reals(value)
        axes = _axes(lower, value, axis)
        return _reduced(lower, lower.best(value, axes, greatest), axes, value.ndim, keepdims)

    return best


def _prod(lower: Expressions, a: Any, axis: Any = None, keepdims: Any = None) -> Value:
    """A product, one factor after the other."""
    value = reals(_array(lower, a))
    axes = _axes(lower, value, axis)
    outer = [k for k in range(value.ndim) if k not in axes]
    made = lower.materialise(filled(tuple(value.shape[k] for k in outer), Num(1.0), value.dtype), "prod")
    loops = [Loop(lower.line, Range(lower.fresh("f"), number(0), value.shape[k])) for k in axes]
    body = lower.body
    for loop in loops:
        lower.emit(loop)
        lower.body = loop.body
        lower.ranges.append(loop.range)

    def element(places: Index) -> Any:
        index = dict(zip(outer, places)) | {k: variable(loop.range.name) for k, loop in zip(axes, loops)}
        return value.element(tuple(index[k] for k in range(value.ndim)))

    lower.assign(made, lower.arithmetic("mul", made, Value(made.shape, element, value.dtype)))
    lower.body = body
    del lower.ranges[len(lower.ranges) - len(loops) :]
    return _reduced(lower, made, axes, value.ndim, keepdims)


def _where(lower: Expressions, condition: Any, a: Any, b: Any) -> Value:
    test = _array(lower, condition)
    if not test.truth:
        lower.refuse("where: expected a comparison first")
    values = [reals(_array(lower, one)) for one in (a, b)]
    dtype = common_dtype(*(one.dtype for one in values)) or "float64"
    return lower.together(where, test, *values, dtype=dtype)


def _zeros(value: float) -> Callable[..., Value]:
    def made(lower: Expressions, shape: Any, dtype: Any = None) -> Value:
        return filled(_shape(lower, shape), Num(value), _dtype(lower, dtype))

    return made


def _zeros_like(value: float) -> Callable[..., Value]:
    def made(lower: Expressions, a: Any, dtype: Any = None) -> Value:
        like = _array(lower, a)
        return filled(like.shape, Num(value), _dtype(lower, dtype, like.dtype or "float64"))

    return made


def _empty(lower: Expressions, shape: Any, dtype: Any = None) -> Value:
    return lower.array("empty", _shape(lower, shape), _dtype(lower, dtype))


def _empty_like(lower: Expressions, a: Any, dtype: Any = None) -> Value:
    like = _array(lower, a)
    return lower.array("empty", like.shape, _dtype(lower, dtype, like.dtype or "float64"))


def _full(lower: Expressions, shape: Any, fill_value: Any, dtype: Any = None) -> Value:
    value = reals(_array(lower, fill_value))
    return lower.together(lambda _, x: x, filled(_shape(lower, shape), Num(0.0), _dtype(lower, dtype)), value, dtype=_dtype(lower, dtype))


def _eye(lower: Expressions, N: Any, dtype: Any = None) -> Value:
    size = lower.as_integer(N)
    return Value((size, size), lambda at: where(compare("eq", Idx(at[0]), Idx(at[1])), Num(1.0), Num(0.0)), _dtype(lower, dtype))


def _triangle(upper: bool) -> Callable[..., Value]:
    def made(lower: Expressions, m: Any, k: Any = None) -> Value:
        value, shift = reals(_array(lower, m)), number(0) if k is None else lower.as_integer(k)
        if value.ndim != 2:
            lower.refuse("triu and tril: expected a matrix")
        kind = "ge" if upper else "le"
        return Value(
            value.shape,
            lambda at: where(compare(kind, Idx(at[1] - at[0]), Idx(shift)), value.element(at), Num(0.0)),
            value.dtype or "float64",
        )

    return made


def _copy(lower: Expressions, a: Any) -> Value:
    return lower.materialise(_array(lower, a), "copy")


def _astype(lower: Expressions, a: Any, dtype: Any) -> Value:
    value = _array(lower, a)
    return lower.materialise(reals(value), "cast", dtype=_dtype(lower, dtype))


def _float(lower: Expressions, a: Any) -> Value:
    return reals(_array(lower, a))


def _int(lower: Expressions, a: Any) -> Any:
    if isinstance(a, Affine):
        return a
    value = _array(lower, a)
    if not value.ndim and isinstance(value.scalar, Num):
        return number(int(value.scalar.value))
    return value if value.integral else lower.refuse("int of a real number that is not constant is not supported")


def _len(lower: Expressions, a: Any) -> Any:
    if isinstance(a, tuple):
        return number(len(a))
    value = _array(lower, a)
    return value.shape[0] if value.ndim else lower.refuse("len of a number")


def _arange(lower: Expressions, stop: Any) -> Value:
    size = lower.as_integer(stop)
    return Value((size,), lambda at: Idx(at[0]), "int64")


def transposed(value: Value, order: Sequence[int] | None = None) -> Value:
    """The value with its axes in another order, reversed by default."""
    axes = list(order) if order is not None else list(reversed(range(value.ndim)))
    shape = tuple(value.shape[k] for k in axes)
    if value.view is not None:
        names = {f"${axis}": variable(f"${place}") for place, axis in enumerate(axes)}
        return of_view(value.view.array, value.dtype or "float64", shape, tuple(one.with_names(names) for one in value.view.index))

    def element(places: Index) -> Any:
        index = {axis: places[place] for place, axis in enumerate(axes)}
        return value.element(tuple(index[k] for k in range(value.ndim)))

    return Value(shape, element, value.dtype)


def _transpose(lower: Expressions, a: Any, *axes: Any) -> Value:
    value = _array(lower, a)
    if not axes:
        return transposed(value)
    given = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple) else axes
    order = [lower.as_integer(one).constant for one in given]
    if sorted(order) != list(range(value.ndim)):
        lower.refuse("transpose: expected every axis once")
    return transposed(value, order)


def _flip(lower: Expressions, m: Any, axis: Any = None) -> Value:
    value = _array(lower, m)
    axes = _axes(lower, value, axis)
    names = {f"${k}": value.shape[k] - 1 - variable(f"${k}") for k in axes}
    if value.view is not None:
        return of_view(value.view.array, value.dtype or "float64", value.shape, tuple(one.with_names(names) for one in value.view.index))
    return Value(
        value.shape,
        lambda places: value.element(tuple(value.shape[k] - 1 - p if k in axes else p for k, p in enumerate(places))),
        value.dtype,
    )


def _reshape(lower: Expressions, a: Any, *shape: Any) -> Value:
    value = _array(lower, a)
    given = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
    if any(not one.fixed for one in value.shape):
        lower.refuse("reshape of an array whose shape depends on a loop is not supported")
    sizes = [one.constant for one in value.shape]
    wanted = [lower.as_integer(one).constant for one in given]
    total = math.prod(sizes)
    if wanted.count(-1) == 1:
        rest = -math.prod(wanted)
        wanted[wanted.index(-1)] = total // rest if rest else 0
    if math.prod(wanted) != total or min(wanted, default=1) < 0:
        lower.refuse(f"reshape: found {tuple(wanted)}; expected {total} elements")
    if [size for size in sizes if size != 1] == [size for size in wanted if size != 1]:
        return _with_unit_axes(value, sizes, wanted)
    return _relaid(lower, value, sizes, wanted)


def _with_unit_axes(value: Value, sizes: list[int], wanted: list[int]) -> Value:
    """A reshape that only adds or removes axes of length 1: a view."""
    places = [k for k, size in enumerate(wanted) if size != 1]
    index = [number(0)] * len(sizes)
    for place, k in zip(places, (k for k, size in enumerate(sizes) if size != 1)):
        index[k] = variable(f"${place}")
    shape = tuple(number(size) for size in wanted)
    if value.view is not None:
        return of_view(value.view.array, value.dtype or "float64", shape, value.view.at(tuple(index)))
    return Value(
        shape, lambda at: value.element(tuple(one.with_names({f"${k}": p for k, p in enumerate(at)}) for one in index)), value.dtype
    )


def _relaid(lower: Expressions, value: Value, sizes: list[int], wanted: list[int]) -> Value:
    """A reshape that splits and joins axes: a copy, over the finest axes that both shapes are made of."""
    cuts = sorted(_steps(sizes) | _steps(wanted))
    fine = [cuts[k + 1] // cuts[k] for k in range(len(cuts) - 1)]
    if any(cuts[k + 1] % cuts[k] for k in range(len(cuts) - 1)):  # No common axes: by way of one long axis.
        total = math.prod(sizes)
        return _relaid(lower, _relaid(lower, value, sizes, [total]), [total], wanted)
    made = lower.array("reshaped", [number(size) for size in wanted], value.dtype)
    assert made.view is not None
    names = [variable(f"${len(fine) - 1 - k}") for k in range(len(fine))]  # The place of each fine axis, the fastest first.

    def index_of(shape: list[int]) -> tuple[Affine, ...]:
        index, unit = [], 1
        for size in reversed(shape):
            at = number(0)
            for k, cut in enumerate(cuts[:-1]):
                if unit <= cut < unit * size:
                    at = at + names[k] * (cut // unit)
            index.append(at)
            unit *= size
        return tuple(reversed(index))

    shape = tuple(number(size) for size in reversed(fine))
    source, target = index_of(sizes), index_of(wanted)
    fine_target = of_view(made.view.array, made.dtype or "float64", shape, target)

    def element(places: Index) -> Any:
        at = {f"${k}": p for k, p in enumerate(places)}
        return value.element(tuple(one.with_names(at) for one in source))

    lower.assign(fine_target, Value(shape, element, value.dtype))
    if value.view is not None:
        lower.stand_ins[made.view.array] = value.view.array
    return made


def _steps(shape: list[int]) -> set[int]:
    """The strides of a shape in elements, and its size."""
    found, unit = {1}, 1
    for size in reversed(shape):
        unit *= size
        found.add(unit)
    return found


def _flatten(lower: Expressions, a: Any) -> Value:
    return _reshape(lower, a, number(-1))


def _hstack(lower: Expressions, tup: Any) -> Value:
    parts = [reals(_array(lower, one)) for one in tup] if isinstance(tup, tuple) else lower.refuse("hstack: expected a tuple of arrays")
    axis = 0 if parts[0].ndim == 1 else 1
    return _joined(lower, parts, axis)


def _vstack(lower: Expressions, tup: Any) -> Value:
    parts = [reals(_array(lower, one)) for one in tup] if isinstance(tup, tuple) else lower.refuse("vstack: expected a tuple of arrays")
    return _joined(lower, [_with_ones(one, (0,), 2) if one.ndim == 1 else one for one in parts], 0)


def _concatenate(lower: Expressions, arrays: Any, axis: Any = None) -> Value:
    parts = [reals(_array(lower, one)) for one in arrays] if isinstance(arrays, tuple) else lower.refuse("concatenate: expected a tuple")
    return _joined(lower, parts, 0 if axis is None else _axes(lower, parts[0], axis)[0])


def _joined(lower: Expressions, parts: list[Value], axis: int) -> Value:
    rank = parts[0].ndim
    if any(one.ndim != rank for one in parts) or rank <= axis:
        lower.refuse("expected arrays of equal dimensions to join")
    length = number(0)
    for one in parts:
        length = length + one.shape[axis]
    shape = tuple(length if k == axis else size for k, size in enumerate(parts[0].shape))
    made = lower.array("joined", shape, common_dtype(*(one.dtype for one in parts)))
    assert made.view is not None
    begin = number(0)
    for one in parts:
        index = tuple(variable(f"${k}") + begin if k == axis else variable(f"${k}") for k in range(rank))
        lower.assign(of_view(made.view.array, made.dtype or "float64", one.shape, index), one)
        begin = begin + one.shape[axis]
    return made


def _outer(lower: Expressions, a: Any, b: Any) -> Value:
    x, y = (reals(_array(lower, one)) for one in (a, b))
    if x.ndim != 1 or y.ndim != 1:
        lower.refuse("outer: expected two vectors")
    dtype = common_dtype(x.dtype, y.dtype)
    return Value((x.shape[0], y.shape[0]), lambda at: op("mul", x.element(at[:1]), y.element(at[1:])), dtype)


def _dot(lower: Expressions, a: Any, b: Any) -> Value:
    x, y = _array(lower, a), _array(lower, b)
    return lower.arithmetic("mul", x, y) if not x.ndim or not y.ndim else matmul(lower, x, y)


def matmul(lower: Expressions, a: Value, b: Value) -> Value:
    """`a @ b`: by BLAS where both lie in memory without gaps, by loops otherwise."""
    a, b = reals(a), reals(b)
    if not a.ndim or not b.ndim:
        lower.refuse("@ needs arrays")
    inner, other = a.shape[-1], b.shape[-2] if b.ndim > 1 else b.shape[0]
    if inner != other:
        lower.refuse(f"@: found {inner} columns and {other} rows; expected equal numbers")
    dtype = common_dtype(a.dtype, b.dtype)
    if a.ndim == 1 and b.ndim == 1:
        return lower.total(Value(a.shape, lambda at: op("mul", a.element(at), b.element(at)), dtype), (0,))
    a, b = (one if one.view is not None and one.dtype == dtype else lower.materialise(one, "operand", dtype=dtype) for one in (a, b))
    blas = _blas(lower, a, b, dtype)
    if blas is not None:
        return blas
    return _by_loops(lower, a, b, dtype)


def _by_loops(lower: Expressions, a: Value, b: Value, dtype: str | None) -> Value:
    batch_a, batch_b = a.shape[:-2] if a.ndim > 1 else (), b.shape[:-2] if b.ndim > 1 else ()
    batch = _batch(lower, batch_a, batch_b)
    rows = a.shape[-2:-1] if a.ndim > 1 else ()
    columns = b.shape[-1:] if b.ndim > 1 else ()
    shape = (*batch, *rows, a.shape[-1], *columns)
    leading = Value(batch_a, lambda _: Num(0.0), None), Value(batch_b, lambda _: Num(0.0), None)

    def element(at: Index) -> Any:
        lead, rest = at[: len(batch)], at[len(batch) :]
        row, inner, column = rest[: len(rows)], rest[len(rows) : len(rows) + 1], rest[len(rows) + 1 :]
        left = a.element((*places_of(leading[0], lead), *row, *inner))
        right = b.element((*places_of(leading[1], lead), *inner, *column))
        return op("mul", left, right)

    return lower.total(Value(shape, element, dtype), (len(batch) + len(rows),))


def _batch(lower: Expressions, a: Index, b: Index) -> Index:
    found = broadcast(a, b)
    return found if found is not None else lower.refuse("@: the leading shapes do not go together")


def _blas(lower: Expressions, a: Value, b: Value, dtype: str | None) -> Value | None:
    """A product of matrices without gaps in memory; None where it has to be loops."""
    if any(not size.fixed for size in (*a.shape, *b.shape)) or b.ndim > 2:
        return None
    lead = [size.constant for size in a.shape[:-1]]
    inner, columns = a.shape[-1].constant, b.shape[-1].constant if b.ndim == 2 else 0
    rows = math.prod(lead) if a.ndim > 1 else 0
    if (rows or 1) * inner * (columns or 1) < FEW or not dtype:
        return None
    left, right = (
        _operand(lower.arrays, a.view, a.shape, rows or inner, inner if rows else 0),
        _operand(lower.arrays, b.view, b.shape, b.shape[0].constant, columns),
    )
    if left is None or right is None or (a.ndim > 2 and left.transposed):
        return None
    shape = (*a.shape[:-1], *b.shape[1:])
    flat = [number(rows)] * bool(rows) + [number(columns)] * bool(columns)
    product = lower.array("product", flat, dtype)
    assert product.view is not None
    shapes = {name: lower.arrays[name].shape for name in (product.view.array, left.array, right.array)}
    lower.emit(Dot(lower.line, product.view.array, left, right, shapes))
    if len(lead) <= 1:
        return product
    # Leading axes were joined to one: their places lead to one row.
    row, unit = number(0), 1
    for k in reversed(range(len(lead))):
        row = row + variable(f"${k}") * unit
        unit *= lead[k]
    index = (row, variable(f"${len(lead)}")) if columns else (row,)
    return of_view(product.view.array, dtype, shape, index)


def _operand(arrays: Mapping[str, Array], view: View | None, shape: Index, rows: int, columns: int) -> Operand | None:
    """The view as a matrix or vector without gaps, or None."""
    if view is None:
        return None
    array = arrays[view.array]
    prefix = []
    for k, one in enumerate(view.index):
        if any(name.startswith("$") for name in one.names()):
            break
        if k == len(view.index) - 1 and len(shape) > 0:
            return None
        prefix.append(one)
    rest, sizes = view.index[len(prefix) :], array.shape[len(prefix) :]
    if any(one.loads for one in prefix):
        return None
    # Places of axes that are not of length 1, in the order in which the memory has them.
    places = [k for k, size in enumerate(shape) if size != number(1)]
    wanted = tuple(variable(f"${k}") for k in places)
    real_rest = tuple(one for one, size in zip(rest, sizes) if not (size == 1 and one == number(0)))
    real_sizes = tuple(size for one, size in zip(rest, sizes) if not (size == 1 and one == number(0)))
    straight = real_rest == wanted and real_sizes == tuple(shape[k].constant for k in places)
    if straight:
        return Operand(array.name, tuple(prefix), len(sizes), rows, columns)
    turned = len(shape) == 2 and real_rest == wanted[::-1] and real_sizes == tuple(shape[k].constant for k in places)[::-1]
    return Operand(array.name, tuple(prefix), len(sizes), rows, columns, True) if turned else None


def _elementwise_square(lower: Expressions, a: Any) -> Value:
    value = reals(_array(lower, a))
    return lower.together(lambda x: op("mul", x, x), value)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": _sum, "mean": _mean, "var": _var, "std": _std, "max": _best(True), "amax": _best(True), "min": _best(False),
    "amin": _best(False), "prod": _prod, "where": _where, "zeros": _zeros(0.0), "ones": _zeros(1.0), "zeros_like": _zeros_like(0.0),
    "ones_like": _zeros_like(1.0), "empty": _empty, "ndarray": _empty, "empty_like": _empty_like, "full": _full, "eye": _eye,
    "identity": _eye, "triu": _triangle(True), "tril": _triangle(False), "copy": _copy, "array": _copy, "astype": _astype,
    "float": _float, "int": _int, "len": _len, "arange": _arange, "transpose": _transpose, "flip": _flip, "reshape": _reshape,
    "flatten": _flatten, "ravel": _flatten, "hstack": _hstack, "vstack": _vstack, "concatenate": _concatenate, "outer": _outer,
    "dot": _dot, "matmul": _dot, "square": _elementwise_square,
}  # fmt: skip
