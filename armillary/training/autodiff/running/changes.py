"""How many statements of a kernel a port changes or adds.

Both are parsed; `jnp` counts as `np`, and docstrings do not count. A statement of the port that the kernel does not have is a change.
Functions that the kernel calls count with it.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path


def changes(kernel: Path, port: Path, name: str) -> int:
    """The number of statements of the port's function, and of the functions it calls, that the kernel's do not have."""
    mine, theirs = (Counter(_statements(path, name)) for path in (kernel, port))
    return sum((theirs - mine).values())


def _statements(path: Path, name: str) -> list[str]:
    functions = {node.name: node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
    found: list[str] = []
    todo, seen = [name], set()
    while todo:
        one = todo.pop()
        if one in seen or one not in functions:
            continue
        seen.add(one)
        for node in ast.walk(functions[one]):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                todo.append(node.id)
            if isinstance(node, ast.stmt) and node is not functions[one] and not _docstring(node):
                found.append(_head(node))
    return found


def _docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _head(node: ast.stmt) -> str:
    """A statement as text, without the statements inside it."""
    text = ast.unparse(node)
    if hasattr(node, "body"):
        text = text.partition("\n")[0]
    return text.replace("jnp.", "np.")
