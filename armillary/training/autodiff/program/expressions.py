"""Scalar expressions: what one element of an assignment is computed from, and the derivatives of that.

Nodes are immutable and compare by content, so equal subexpressions are one entry in a dictionary. `kind` is "f" for real numbers, "i" for
integers and "b" for truth values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from .affine import Affine


@dataclass(frozen=True, slots=True)
class Num:
    """A constant: a real number, or a truth value of kind "b"."""

    value: float
    kind: str = "f"


@dataclass(frozen=True, slots=True)
class Idx:
    """The value of a loop index."""

    value: Affine
    kind = "i"


@dataclass(frozen=True, slots=True)
class Load:
    """The element of an array; a scalar is an array without dimensions."""

    array: str
    index: tuple[Affine, ...] = ()
    kind: str = "f"
    #: The value that the assignment itself leaves behind, rather than what was there before.
    after: bool = False

    def with_names(self, values: Mapping[str, Affine]) -> Load:
        """With variables in the index replaced."""
        return Load(self.array, tuple(one.with_names(values) for one in self.index), self.kind, self.after)

    def __str__(self) -> str:
        return f"{self.array}[{', '.join(map(str, self.index))}]" if self.index else self.array


@dataclass(frozen=True, slots=True)
class Op:
    """An operation on expressions."""

    name: str
    args: tuple[Expr, ...]
    kind: str = "f"
    _hash: int = field(default=0, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.name, self.args)))

    def __hash__(self) -> int:
        return self._hash


Expr = Num | Idx | Load | Op

#: Floating-point operations that one evaluation counts as, next to an addition.
FLOPS = {
    "add": 1, "sub": 1, "mul": 1, "neg": 1, "div": 4, "sqrt": 6, "abs": 1, "maximum": 1, "minimum": 1, "where": 1, "pow": 40, "exp": 20,
    "log": 20, "sin": 25, "cos": 25, "tan": 40, "tanh": 30, "sinh": 30, "cosh": 30, "arctan2": 40, "float": 0,
}  # fmt: skip
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not")


def children(expr: Expr) -> tuple[Expr, ...]:
    """The operands."""
    return expr.args if isinstance(expr, Op) else ()


def walk(expr: Expr) -> Iterator[Expr]:
    """Every node, operands first, each once."""
    seen: set[Expr] = set()

    def visit(node: Expr) -> Iterator[Expr]:
        if node in seen:
            return
        seen.add(node)
        for child in children(node):
            yield from visit(child)
        yield node

    yield from visit(expr)


def loads(expr: Expr) -> list[Load]:
    """Every read of an array, those inside indices included, each once."""
    found: dict[Load, None] = {}

    def note(load: Load) -> None:
        for index in load.index:
            for inner in index.loads:
                note(inner)
        found.setdefault(load)

    for node in walk(expr):
        if isinstance(node, Load):
            note(node)
        elif isinstance(node, Idx):
            for inner in node.value.loads:
                note(inner)
    return list(found)


def flops(expr: Expr) -> int:
    """Operations of one evaluation, weighted."""
    return sum(FLOPS.get(node.name, 1) for node in walk(expr) if isinstance(node, Op))


def changed(expr: Expr, change: Callable[[Load], Expr], index: Callable[[Affine], Affine]) -> Expr:
    """With reads and loop indices replaced."""
    kept: dict[Expr, Expr] = {}

    def visit(node: Expr) -> Expr:
        if node not in kept:
            if isinstance(node, Load):
                kept[node] = change(node)
            elif isinstance(node, Idx):
                kept[node] = Idx(index(node.value))
            elif isinstance(node, Op):
                kept[node] = Op(node.name, tuple(visit(one) for one in node.args), node.kind)
            else:
                kept[node] = node
        return kept[node]

    return visit(expr)


def with_names(expr: Expr, values: Mapping[str, Affine]) -> Expr:
    """With loop variables replaced."""
    return changed(expr, lambda load: load.with_names(values), lambda one: one.with_names(values))


def real(expr: Expr) -> Expr:
    """The expression as a real number."""
    if expr.kind == "f":
        return expr
    if isinstance(expr, Num):
        return Num(float(expr.value))
    if isinstance(expr, Idx) and expr.value.fixed:
        return Num(float(expr.value.constant))
    return Op("float", (expr,))


_FOLD: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b, "neg": lambda a: -a,
    "pow": lambda a, b: a**b, "exp": math.exp, "log": math.log, "sqrt": math.sqrt, "sin": math.sin, "cos": math.cos, "tan": math.tan,
    "tanh": math.tanh, "sinh": math.sinh, "cosh": math.cosh, "abs": abs,
}  # fmt: skip


def _is(expr: Expr, value: float) -> bool:
    return isinstance(expr, Num) and expr.value == value


def op(name: str, *args: Expr) -> Expr:
    """A real operation, simplified where an operand is 0 or 1 or all are constants."""
    args = tuple(real(one) for one in args)
    if name in _FOLD and all(isinstance(one, Num) for one in args):
        try:
            folded = _FOLD[name](*(one.value for one in args if isinstance(one, Num)))
            if not isinstance(folded, complex) and math.isfinite(folded):
                return Num(float(folded))
        except (ArithmeticError, ValueError):
            pass
    if name == "add":
        a, b = args
        if _is(a, 0):
            return b
        if _is(b, 0):
            return a
        if isinstance(b, Op) and b.name == "neg":
            return op("sub", a, b.args[0])
    elif name == "sub":
        a, b = args
        if _is(b, 0):
            return a
        if _is(a, 0):
            return op("neg", b)
    elif name == "mul":
        a, b = args
        if _is(a, 0) or _is(b, 0):
            return Num(0.0)
        if _is(a, 1):
            return b
        if _is(b, 1):
            return a
        if isinstance(a, Num) and a.value == -1:
            return op("neg", b)
    elif name == "div" and _is(args[1], 1):
        return args[0]
    elif name == "neg" and isinstance(args[0], Op) and args[0].name == "neg":
        return args[0].args[0]
    elif name == "pow":
        base, power = args
        if isinstance(power, Num):
            if power.value == 1:
                return base
            if power.value == 2:
                return op("mul", base, base)
            if power.value == 3:
                return op("mul", op("mul", base, base), base)
            if power.value == 0.5:
                return op("sqrt", base)
            if power.value == -1:
                return op("div", Num(1.0), base)
            if power.value == 0:
                return Num(1.0)
    return Op(name, args)


def compare(name: str, *args: Expr) -> Expr:
    """A truth value."""
    return Op(name, args, "b")


def where(condition: Expr, a: Expr, b: Expr) -> Expr:
    """`a` where the condition holds, else `b`."""
    a, b = (real(a), real(b)) if "f" in (a.kind, b.kind) else (a, b)
    return Op("where", (condition, a, b), a.kind)


def partials(node: Op, result: Expr) -> tuple[Expr | None, ...]:
    """The derivatives of an operation by its operands, None where there is none. `result` stands for its value.

    Ties of maximum and minimum go to the first operand. `abs` has the derivative 0 at 0.
    """
    a = node.args[0]
    b = node.args[1] if len(node.args) > 1 else a
    one = Num(1.0)
    match node.name:
        case "add":
            return one, one
        case "sub":
            return one, Num(-1.0)
        case "neg":
            return (Num(-1.0),)
        case "mul":
            return b, a
        case "div":
            return op("div", one, b), op("neg", op("div", result, b))
        case "sqrt":
            return (op("div", Num(0.5), result),)
        case "exp":
            return (result,)
        case "log":
            return (op("div", one, a),)
        case "sin":
            return (op("cos", a),)
        case "cos":
            return (op("neg", op("sin", a)),)
        case "tan":
            return (op("add", one, op("mul", result, result)),)
        case "tanh":
            return (op("sub", one, op("mul", result, result)),)
        case "sinh":
            return (op("cosh", a),)
        case "cosh":
            return (op("sinh", a),)
        case "arctan2":
            square = op("add", op("mul", a, a), op("mul", b, b))
            return op("div", b, square), op("neg", op("div", a, square))
        case "abs":
            return (where(compare("gt", a, Num(0.0)), one, where(compare("lt", a, Num(0.0)), Num(-1.0), Num(0.0))),)
        case "maximum":
            return where(compare("ge", a, b), one, Num(0.0)), where(compare("ge", a, b), Num(0.0), one)
        case "minimum":
            return where(compare("le", a, b), one, Num(0.0)), where(compare("le", a, b), Num(0.0), one)
        case "where":
            condition = node.args[0]
            return None, where(condition, one, Num(0.0)), where(condition, Num(0.0), one)
        case "pow":
            by_base = op("mul", b, op("pow", a, op("sub", b, one)))
            return by_base, op("mul", result, op("log", a))
        case "float":
            return (None,)
    raise AssertionError(node.name)


#: Operations whose derivative may be infinite where nothing depends on the result.
SINGULAR = frozenset({"sqrt", "pow", "log"})


def adjoints(expr: Expr, seed: Expr, active: Callable[[Load], bool], result: Load | None) -> list[tuple[Load, Expr]]:
    """What is added to the adjoint of each active read, given the adjoint `seed` of the expression.

    `result` is a read of the expression's value where it is still in memory when the adjoint is computed; None where it is not.
    """
    order = list(walk(expr))
    depends: dict[Expr, bool] = {}
    for node in order:
        if isinstance(node, Load):
            depends[node] = node.kind == "f" and active(node)
        else:
            depends[node] = any(depends[child] for child in children(node)) if not isinstance(node, Idx) else False
    adjoint: dict[Expr, Expr] = {expr: seed}
    found: list[tuple[Load, Expr]] = []
    for node in reversed(order):
        if node not in adjoint or not depends[node]:
            continue
        mine = adjoint[node]
        if isinstance(node, Load):
            found.append((node, mine))
            continue
        assert isinstance(node, Op)
        value: Expr = result if node == expr and result is not None else node
        for place, (child, partial) in enumerate(zip(node.args, partials(node, value))):
            if partial is None or not depends[child]:
                continue
            if node.name == "where":
                part = where(node.args[0], *((mine, Num(0.0)) if place == 1 else (Num(0.0), mine)))
            elif node.name in ("maximum", "minimum"):
                assert isinstance(partial, Op)
                part = where(partial.args[0], *(mine if isinstance(v, Num) and v.value == 1 else Num(0.0) for v in partial.args[1:]))
            elif node.name == "div" and place == 0:
                part = op("div", mine, node.args[1])
            else:
                part = op("mul", mine, partial)
            if node.name in SINGULAR:
                part = where(compare("eq", mine, Num(0.0)), Num(0.0), part)
            adjoint[child] = op("add", adjoint[child], part) if child in adjoint else part
    return found
