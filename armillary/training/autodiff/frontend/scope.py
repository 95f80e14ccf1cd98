"""What the names of a function stand for while it is lowered."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..program.affine import Affine
from .source import Source
from .values import Value

#: What constructs are called in messages.
NAMED = {
    ast.Try: "try", ast.With: "with", ast.Lambda: "lambda", ast.ListComp: "list comprehension", ast.Call: "call", ast.Break: "break",
    ast.Continue: "continue", ast.Global: "global", ast.FunctionDef: "nested function", ast.ClassDef: "class", ast.Yield: "yield",
    ast.Import: "import", ast.ImportFrom: "import", ast.Delete: "del", ast.Assert: "assert", ast.Raise: "raise", ast.IfExp: "if expression",
    ast.Dict: "dictionary", ast.Set: "set", ast.GeneratorExp: "generator", ast.Starred: "star", ast.NamedExpr: ":=",
    ast.Attribute: "attribute",
}  # fmt: skip


@dataclass(frozen=True)
class DType:
    """A type of NumPy that a kernel names."""

    name: str


@dataclass(frozen=True)
class Function:
    """A function of the kernel's module, or one of NumPy by its name."""

    source: Source | None
    numpy: str = ""
    #: The value whose method it is.
    owner: Value | None = None


@dataclass
class Scope:
    """One function while it is lowered: what its names stand for."""

    source: Source
    names: dict[str, Any] = field(default_factory=dict)
    #: Names that keep one place in memory, by the array; None until it is known.
    kept: dict[str, str | None] = field(default_factory=dict)
    live: dict[int, frozenset[str]] = field(default_factory=dict)


class Unknown:
    """What a name stands for when its value cannot be known any more."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Again(Exception):
    """A name that began as an integer turned out to be real: the function has to be lowered again."""


def said(shape: Sequence[Affine]) -> str:
    """A shape in words."""
    return "(" + ", ".join(map(str, shape)) + ")"
