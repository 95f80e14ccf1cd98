"""Counts the lines of a program's text that change when it goes to another backend."""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
from collections.abc import Sequence
from functools import lru_cache


@lru_cache(maxsize=256)
def statements(module: str, program: str) -> tuple[str, ...]:
    """The lines of a program without comments, docstrings and layout."""
    tree = ast.parse(inspect.getsource(getattr(importlib.import_module(module), program)).strip())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return tuple(ast.unparse(tree).splitlines())


def changed(module: str, other: str, program: str) -> int:
    """The number of lines of `program` that differ between the two modules: replaced, added or removed."""
    ours, theirs = statements(module, program), statements(other, program)
    matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
    return sum(max(b - a, d - c) for what, a, b, c, d in matcher.get_opcodes() if what != "equal")


def lines_changed(module: str, others: Sequence[str], program: str) -> int:
    """The fewest lines that change on the way to any of the other texts; 0 if the same text serves another backend."""
    return min((changed(module, other, program) for other in others), default=0)
