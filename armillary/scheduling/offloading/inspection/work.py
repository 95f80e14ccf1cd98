"""The work of library calls on known shapes: elements of new tensors, and floating-point operations of products."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from .libraries import CONSTRUCTORS, KEEPING, LIKE, PRODUCTS, of_arrays
from .values import UNKNOWN, Const, Layer, Tensor, Value, number_of

#: Shapes beyond this are not followed.
MOST_ELEMENTS, MOST_DIMENSIONS = 1 << 62, 32
Shape = tuple[int, ...]


def shape_of(value: Value) -> Shape | None:
    """The shape of a tensor, or None."""
    return value.shape if isinstance(value, Tensor) else None


def sizes_of(values: Sequence[Value]) -> Shape | None:
    """The sizes that these arguments give: numbers, or one tuple of numbers; None where one is unknown."""
    if len(values) == 1 and isinstance(values[0], Const) and isinstance(values[0].value, tuple):
        found = [number_of(Const(one)) for one in values[0].value]
    else:
        found = [number_of(one) for one in values]
    if not found or any(one is None or one < 0 for one in found) or len(found) > MOST_DIMENSIONS:
        return None
    sizes = tuple(one for one in found if one is not None)
    return sizes if math.prod(sizes) <= MOST_ELEMENTS else None


def product(a: Value, b: Value) -> tuple[Tensor, float]:
    """A matrix product: its result and its operations (0 where a shape is unknown)."""
    left, right = shape_of(a), shape_of(b)
    if not left or not right:
        return Tensor(), 0.0
    n = left[-2] if len(left) > 1 else 1
    m = right[-1] if len(right) > 1 else 1
    batch = broadcast(left[:-2], right[:-2])
    if batch is None:
        return Tensor(), 0.0
    shape = (*batch, *([n] if len(left) > 1 else []), *([m] if len(right) > 1 else []))
    return Tensor(shape), 2.0 * math.prod(batch) * n * m * left[-1]


def broadcast(a: Shape, b: Shape) -> Shape | None:
    """The shape of an operation on both, or None where they do not fit."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    padded = (1,) * (len(longer) - len(shorter)) + shorter
    if any(x != y and 1 not in (x, y) for x, y in zip(longer, padded)):
        return None
    return tuple(max(x, y) for x, y in zip(longer, padded))


def elementwise(a: Value, b: Value) -> Tensor:
    """The result of an operation on two values of which at least one is a tensor."""
    left, right = shape_of(a), shape_of(b)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return Tensor(None if left is None or right is None else broadcast(left, right))
    return a if isinstance(a, Tensor) else b if isinstance(b, Tensor) else Tensor()


def called(name: str, arguments: Sequence[Value], keywords: Mapping[str, Value]) -> tuple[Value, float]:
    """(result, operations) of a function of a library of arrays; UNKNOWN where it is none of those that are followed."""
    last = of_arrays(name)
    if last is None:
        return UNKNOWN, 0.0
    if last in CONSTRUCTORS:
        return _constructed(name, last, arguments, keywords), 0.0
    first = arguments[0] if arguments else UNKNOWN
    if last in LIKE:
        return first if isinstance(first, Tensor) else _literal(first), 0.0
    if last in PRODUCTS and len(arguments) >= 2:
        return product(arguments[0], arguments[1])
    if last in ("addmm", "baddbmm") and len(arguments) >= 3:
        return product(arguments[1], arguments[2])
    if last == "linear" and len(arguments) >= 2:
        weight = shape_of(arguments[1])
        return product(first, Tensor(weight[::-1] if weight and len(weight) == 2 else None))
    if last == "einsum" and arguments:
        return _einsum(arguments)
    if last.startswith("conv") and last[-1:] == "d" and len(arguments) >= 2:
        return _convolution(shape_of(first), shape_of(arguments[1]), _pick(keywords, "stride", arguments, 3, 1),
                            _pick(keywords, "padding", arguments, 4, 0))  # fmt: skip
    if last == "scaled_dot_product_attention" and len(arguments) >= 3:
        return attention(*arguments[:3])
    if last in KEEPING:
        return (first, 0.0) if isinstance(first, Tensor) else (Tensor(), 0.0)
    return UNKNOWN, 0.0


def _constructed(name: str, last: str, arguments: Sequence[Value], keywords: Mapping[str, Value]) -> Value:
    given = next((keywords[key] for key in ("size", "shape") if key in keywords), None)
    if last in ("random", "standard_normal", "normal", "uniform", "randint", "rand", "randn") and given is not None:
        return Tensor(sizes_of([given]))
    if last == "arange":
        numbers = [number_of(one) for one in arguments]
        if numbers and all(one is not None for one in numbers):
            low, high, step = (0, numbers[0], 1) if len(numbers) == 1 else (numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else 1)
            return Tensor((max(0, -(-(high - low) // step)),) if step else None)  # type: ignore[operator]
        return Tensor()
    if last == "eye":
        sizes = sizes_of(list(arguments[:2]))
        return Tensor(sizes * 2 if sizes and len(sizes) == 1 else sizes)
    if name.startswith("jax.random.") or last in ("normal", "uniform", "randint"):
        shapes = [one for one in arguments if isinstance(one, Const) and isinstance(one.value, tuple)]
        return Tensor(sizes_of(shapes[:1]) if shapes else None)
    if last == "full" or (last in ("zeros", "ones", "empty") and arguments and _is_tuple(arguments[0])):
        return Tensor(sizes_of(list(arguments[:1])))
    if last in ("zeros", "ones", "empty", "random", "standard_normal") and not name.startswith("torch."):
        return Tensor(sizes_of(list(arguments[:1])))
    return Tensor(sizes_of([given] if given is not None else list(arguments)))


def _is_tuple(value: Value) -> bool:
    return isinstance(value, Const) and isinstance(value.value, tuple)


def _literal(value: Value) -> Tensor:
    if isinstance(value, Const) and isinstance(value.value, tuple):
        inner = value.value[0] if value.value else None
        return Tensor((len(value.value), *([len(inner)] if isinstance(inner, tuple) else [])))
    return Tensor()


def _pick(keywords: Mapping[str, Value], name: str, arguments: Sequence[Value], place: int, default: int) -> int:
    found = keywords.get(name, arguments[place] if len(arguments) > place else None)
    number = number_of(found) if found is not None else default
    return default if number is None or number < 0 else number


def _einsum(arguments: Sequence[Value]) -> tuple[Tensor, float]:
    equation = arguments[0].value if isinstance(arguments[0], Const) else None
    if not isinstance(equation, str) or "->" not in equation or "." in equation:
        return Tensor(), 0.0
    inputs, _, output = equation.replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for letters, value in zip(inputs.split(","), arguments[1:]):
        shape = shape_of(value)
        if shape is None or len(shape) != len(letters):
            return Tensor(), 0.0
        sizes.update(zip(letters, shape))
    if not set(output) <= set(sizes) or len(sizes) > MOST_DIMENSIONS:
        return Tensor(), 0.0
    return Tensor(tuple(sizes[letter] for letter in output)), 2.0 * math.prod(sizes.values())


def _convolution(x: Shape | None, weight: Shape | None, stride: int, padding: int) -> tuple[Tensor, float]:
    if not x or not weight or len(x) != len(weight) or len(x) < 3 or stride < 1:
        return Tensor(), 0.0
    out = tuple((size + 2 * padding - kernel) // stride + 1 for size, kernel in zip(x[2:], weight[2:]))
    if any(size < 1 for size in out):
        return Tensor(), 0.0
    return Tensor((x[0], weight[0], *out)), 2.0 * x[0] * weight[0] * math.prod(out) * math.prod(weight[1:])


def attention(q: Value, k: Value, v: Value) -> tuple[Tensor, float]:
    """Scaled dot-product attention: two products."""
    queries, keys = shape_of(q), shape_of(k)
    if not queries or not keys or len(queries) < 2 or len(keys) < 2:
        return Tensor(), 0.0
    return Tensor(queries), 4.0 * math.prod(queries) * keys[-2]


def layer(name: str, arguments: Sequence[Value], keywords: Mapping[str, Value]) -> Layer | None:
    """A layer of torch.nn whose work can be counted, or None."""
    last = name.rpartition(".")[2]
    if not name.startswith("torch.nn."):
        return None
    if last == "Linear":
        sizes = sizes_of([keywords.get("in_features", UNKNOWN), keywords.get("out_features", UNKNOWN)] if keywords.get("in_features")
                         else list(arguments[:2]))  # fmt: skip
        return Layer("linear", sizes) if sizes and len(sizes) == 2 else None
    if last in ("Conv1d", "Conv2d", "Conv3d"):
        sizes = sizes_of(list(arguments[:3]))
        if sizes and len(sizes) == 3:
            stride, padding = _pick(keywords, "stride", arguments, 3, 1), _pick(keywords, "padding", arguments, 4, 0)
            return Layer("conv", (int(last[4]), *sizes, stride, padding))
    return None


def applied(made: Layer, x: Value) -> tuple[Tensor, float]:
    """(result, operations) of a layer on a value."""
    shape = shape_of(x)
    if made.kind == "linear":
        return product(x, Tensor(made.sizes)) if shape and shape[-1] == made.sizes[0] else (Tensor(), 0.0)
    dimensions, channels, out, kernel, stride, padding = made.sizes
    weight = (out, channels, *([kernel] * dimensions))
    return _convolution(shape, weight, stride, padding) if shape and len(shape) == dimensions + 2 else (Tensor(), 0.0)
