"""Which names are read later: a loop or a branch has to keep those that it assigns in one place."""

from __future__ import annotations

import ast
from collections.abc import Sequence


def live_after(function: ast.FunctionDef) -> dict[int, frozenset[str]]:
    """For every statement of a function, by `id`, the names that may be read after it before they are assigned again.

    For loops, the names that the next pass reads are under the id of the `body` list.
    """
    found: dict[int, frozenset[str]] = {}

    def sequence(body: Sequence[ast.stmt], out: frozenset[str]) -> frozenset[str]:
        for statement in reversed(body):
            found[id(statement)] = out | found.get(id(statement), frozenset())
            out = one(statement, out)
        return out

    def one(statement: ast.stmt, out: frozenset[str]) -> frozenset[str]:
        if isinstance(statement, ast.Assign):
            return (out - assigned_names(statement)) | reads(statement)
        if isinstance(statement, ast.AugAssign):
            target = {statement.target.id} if isinstance(statement.target, ast.Name) else set()
            return out | reads(statement) | target
        if isinstance(statement, ast.For | ast.While):
            head = reads(statement.iter) if isinstance(statement, ast.For) else reads(statement.test)
            again = out | head
            for _ in range(2):
                again = again | sequence(statement.body, again)
            found[id(statement.body)] = sequence(statement.body, again) | head
            return out | again | head
        if isinstance(statement, ast.If):
            return reads(statement.test) | sequence(statement.body, out) | sequence(statement.orelse, out)
        return out | reads(statement)

    sequence(function.body, frozenset())
    return found


def reads(node: ast.AST) -> frozenset[str]:
    """Every name that is read in a node."""
    return frozenset(one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))


def assigned_names(statement: ast.AST) -> frozenset[str]:
    """The names that a statement assigns as a whole."""
    return frozenset(one.id for one in ast.walk(statement) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))


def assigned_in(body: Sequence[ast.stmt]) -> frozenset[str]:
    """The names that a sequence assigns, inside loops and branches too."""
    return frozenset().union(*(assigned_names(statement) for statement in body))
