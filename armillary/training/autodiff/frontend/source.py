"""The text of a function and of the functions that it calls, as syntax trees, with the constants of their module.

A function that a person passes is read through `inspect`; a file is read as text. In both cases the text is parsed, and only constants are
taken from the module: numbers, and names for NumPy and its types.
"""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.files import read_text

MOST_SOURCE_BYTES = 1 << 20
#: Numbers of NumPy and math that a kernel may name.
CONSTANTS = {"pi": math.pi, "e": math.e, "inf": math.inf}


@dataclass
class Source:
    """One function: its tree, where it stands, and what its module's names mean."""

    name: str
    tree: ast.FunctionDef
    file: str
    #: Added to the tree's line numbers.
    offset: int = 0
    #: Numbers by name.
    constants: Mapping[str, float | int] = field(default_factory=dict)
    #: Names that stand for the module numpy.
    numpy: frozenset[str] = frozenset({"np", "numpy"})
    #: Finds another function of the module, or None.
    find: Callable[[str], Source | None] = lambda _: None

    def where(self, node: ast.AST) -> str:
        """The file and line of a node."""
        return f"{self.file}:{getattr(node, 'lineno', 0) + self.offset}"


def of_function(function: Callable[..., Any]) -> Source:
    """The source of a Python function."""
    if not isinstance(function, types.FunctionType):
        raise InputError(f"found {type(function).__name__}; expected a Python function")
    if function.__name__ == "<lambda>":
        raise InputError("found a lambda; expected a function that is defined with def")
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError) as error:
        raise InputError(f"the source of {function.__name__} cannot be read ({error})") from None
    found = next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)
    if found is None:
        raise InputError(f"{function.__name__}: expected a function that is defined with def")
    names = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    constants = {name: value for name, value in names.items() if isinstance(value, int | float) and not isinstance(value, bool)}
    numpy = frozenset(name for name, value in names.items() if value is np)

    def find(name: str) -> Source | None:
        other = names.get(name)
        return of_function(other) if isinstance(other, types.FunctionType) else None

    file = Path(inspect.getsourcefile(function) or "source").name
    return Source(function.__name__, found, file, first - 1, constants, numpy, find)


def of_file(path: Path, name: str) -> Source:
    """The source of a function in a file, which is parsed and never imported."""
    return of_text(read_text(path, limit=MOST_SOURCE_BYTES), name, path.name)


def of_text(text: str, name: str, file: str) -> Source:
    """The source of a function in the text of a module."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"is not Python ({error})", where=f"{file}:{getattr(error, 'lineno', None) or 1}") from None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if name not in functions:
        known = ", ".join(functions) or "none"
        raise InputError(f'function "{name}" is missing; found: {known}', where=file)
    constants: dict[str, float | int] = {}
    numpy = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            numpy |= {alias.asname or alias.name for alias in node.names if alias.name == "numpy"}
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = node.value
            sign = 1
            if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
                sign, value = -1, value.operand
            if isinstance(value, ast.Constant) and isinstance(value.value, int | float) and not isinstance(value.value, bool):
                constants[node.targets[0].id] = sign * value.value

    def find(other: str) -> Source | None:
        return Source(other, functions[other], file, 0, constants, frozenset(numpy), find) if other in functions else None

    found = find(name)
    assert found is not None
    return found
