"""Constants that are computed, tests that are known, and tests for a GPU."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from armillary.errors import one_line

from .values import UNKNOWN, Available, Const, Library, Prefix, Value, alternatives, constant, text_of

#: Calls that end the program.
EXITS = frozenset({"sys.exit", "os._exit", "os.abort", "builtins.exit", "builtins.quit"})
#: How names of devices, backends and array libraries with a GPU begin.
GPU_TEXTS = ("cuda", "gpu", "cupy")


def truth_of(value: Value) -> bool | None:
    """Whether a test is known to hold."""
    if isinstance(value, Library) and value.name in ("typing.TYPE_CHECKING", "typing_extensions.TYPE_CHECKING"):
        return False
    return bool(value.value) if isinstance(value, Const) else None


def is_cuda(value: Value) -> bool:
    """Whether it is the name of a CUDA device, whichever of its values it has."""
    texts = [text_of(one) for one in alternatives(value)]
    return all(text is not None and (text == "cuda" or text.startswith("cuda:")) for text in texts)


def shown(value: Value) -> str:
    return one_line(text_of(alternatives(value)[0]) or "cuda", 40)


def paired(targets: ast.Tuple, values: ast.Tuple) -> bool:
    """Whether every target of an assignment has a value of its own."""
    starred = any(isinstance(one, ast.Starred) for one in (*targets.elts, *values.elts))
    return len(targets.elts) == len(values.elts) and not starred


def exits(body: Sequence[ast.stmt]) -> bool:
    last = body[-1]
    called = last.value.func if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) else None
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        return f"{called.value.id}.{called.attr}" in EXITS
    return isinstance(called, ast.Name) and f"builtins.{called.id}" in EXITS


def count_test(op: ast.cmpop, known: Available, other: Value, *, swapped: bool) -> Value:
    """count > 0, count >= 1, count != 0 and their opposites; a comparison with True or False counts too."""
    value = other.value if isinstance(other, Const) else None
    if isinstance(value, bool):
        same = isinstance(op, ast.Eq | ast.Is)
        return Available(known.positive == (value == same))
    if isinstance(op, ast.Eq | ast.In) and isinstance(value, str):
        return Available(known.positive) if value.lower().startswith(GPU_TEXTS) else Available(not known.positive)
    if isinstance(op, ast.NotEq) and isinstance(value, str):
        return Available(not known.positive) if value.lower().startswith(GPU_TEXTS) else Available(known.positive)
    if not isinstance(value, int):
        return UNKNOWN
    kind = {ast.Gt: "gt", ast.GtE: "ge", ast.Lt: "lt", ast.LtE: "le", ast.Eq: "eq", ast.NotEq: "ne"}.get(type(op), "")
    if swapped:
        kind = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge"}.get(kind, kind)
    if (kind == "gt" and value >= 0) or (kind == "ge" and value >= 1) or (kind == "ne" and value == 0) or (kind == "eq" and value >= 1):
        return Available(known.positive)
    if (kind == "eq" and value == 0) or (kind == "lt" and value == 1) or (kind == "le" and value == 0):
        return Available(not known.positive)
    return UNKNOWN


def compared(op: ast.cmpop, left: Any, right: Any) -> Value:
    try:
        if isinstance(op, ast.Eq | ast.NotEq):
            return Const((left == right) == isinstance(op, ast.Eq))
        if isinstance(op, ast.In | ast.NotIn):
            return Const((left in right) == isinstance(op, ast.In))
        if isinstance(op, ast.Is | ast.IsNot) and (left is None or right is None):
            return Const((left is right) == isinstance(op, ast.Is))
        if isinstance(op, ast.Lt | ast.Gt | ast.LtE | ast.GtE):
            return Const({ast.Lt: left < right, ast.Gt: left > right, ast.LtE: left <= right, ast.GtE: left >= right}[type(op)])
    except TypeError:
        pass
    return UNKNOWN


def folded(op: ast.operator, left: Any, right: Any) -> Value:
    """Arithmetic on constants, within bounds."""
    numbers = type(left) in (int, float, bool) and type(right) in (int, float, bool)
    try:
        if isinstance(op, ast.Add) and (numbers or (type(left) is type(right) and isinstance(left, str | tuple))):
            if not numbers and len(left) + len(right) > 4096:
                return Prefix(left[:200]) if isinstance(left, str) else UNKNOWN
            return constant(left + right)
        if isinstance(op, ast.Mod) and isinstance(left, str):
            return Const(left % right) if len(left) < 200 and "*" not in left and not any(c.isdigit() for c in left) else UNKNOWN
        if isinstance(op, ast.Mult) and isinstance(left, str) and isinstance(right, int) and 0 <= len(left) * right <= 4096:
            return constant(left * right)
        if not numbers:
            return UNKNOWN
        if isinstance(op, ast.Sub):
            return constant(left - right)
        if isinstance(op, ast.Mult):
            return constant(left * right)
        if isinstance(op, ast.FloorDiv):
            return constant(left // right)
        if isinstance(op, ast.Div):
            return constant(left / right)
        if isinstance(op, ast.Mod):
            return constant(left % right)
        if isinstance(op, ast.Pow) and abs(left) <= 1 << 32 and 0 <= right <= 64:
            return constant(left**right)
        if isinstance(op, ast.LShift) and isinstance(left, int) and isinstance(right, int) and abs(left) <= 1 << 32 and 0 <= right <= 32:
            return constant(left << right)
    except (ArithmeticError, TypeError, ValueError):
        pass
    return UNKNOWN
