"""What is known about a value without running anything: a constant, a name of a library, a tensor's shape, a guard."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

#: Alternatives that a value may keep; more of them are unknown.
ALTERNATIVES = 8
#: The longest text and the longest sequence that are propagated.
LONGEST_TEXT, LONGEST_SEQUENCE = 4096, 256


@dataclass(frozen=True)
class Unknown:
    """Nothing is known."""


@dataclass(frozen=True)
class Const:
    """A number, a text, a truth value, None, or a tuple of values."""

    value: Any


@dataclass(frozen=True)
class Prefix:
    """A text of which only the beginning is known."""

    start: str


@dataclass(frozen=True)
class Library:
    """Something of an installed library, by its whole dotted name: torch.randn."""

    name: str


@dataclass(frozen=True)
class Available:
    """Whether there is a GPU (or, with `positive` false, whether there is none)."""

    positive: bool = True


@dataclass(frozen=True)
class Tensor:
    """An array; its shape is known, or None."""

    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Layer:
    """A layer whose work on a tensor is known: linear (in, out), or conv (dimensions, in, out, kernel, stride, padding, groups)."""

    kind: str
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Device:
    """A device object; `name` is its value as text."""

    name: Const | Prefix


@dataclass(frozen=True)
class Method:
    """A method of a known value, before it is called."""

    of: Any
    name: str


@dataclass(frozen=True)
class Local:
    """A function or a class of the project."""

    module: str
    name: str


@dataclass(frozen=True)
class Project:
    """A module of the project."""

    module: str


@dataclass(frozen=True)
class Instance:
    """An object of a class of the project."""

    module: str
    name: str


@dataclass(frozen=True)
class Choice:
    """One of several values."""

    of: tuple[Any, ...]


UNKNOWN = Unknown()
Value = Any


def either(values: Iterable[Value]) -> Value:
    """The value that is one of these."""
    found: list[Value] = []
    for value in values:
        for one in value.of if isinstance(value, Choice) else (value,):
            if one not in found:
                found.append(one)
    if not found or len(found) > ALTERNATIVES:
        return UNKNOWN
    if len(found) == 1:
        return found[0]
    shapes = [one for one in found if isinstance(one, Tensor)]
    if len(shapes) == len(found):
        return Tensor()
    return Choice(tuple(found))


def alternatives(value: Value) -> tuple[Value, ...]:
    """All values that it may be."""
    return value.of if isinstance(value, Choice) else (value,)


def text_of(value: Value) -> str | None:
    """The known beginning of a text or of a device's name, or None."""
    if isinstance(value, Device):
        value = value.name
    if isinstance(value, Prefix):
        return value.start
    return value.value if isinstance(value, Const) and isinstance(value.value, str) else None


def number_of(value: Value) -> int | None:
    """The whole number that it is, or None."""
    found = value.value if isinstance(value, Const) else None
    return int(found) if isinstance(found, int | float) and not isinstance(found, bool) and found == found // 1 else None


def constant(value: Any) -> Value:
    """A constant, if it is short enough to be propagated."""
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return Prefix(value[:LONGEST_TEXT])
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 1 << 64:
        return UNKNOWN
    return Const(value)


def place(node: ast.AST) -> tuple[int, int]:
    """Line and column of a node, both from 1."""
    return getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
