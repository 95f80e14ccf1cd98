"""Neighbouring element-wise statements become one nest of loops.

Two assignments over equal ranges may share a nest if every array that one of them writes is touched by the other at the same element only.
Then each element can be finished before the next, forwards and in reverse. Statements that walk through memory in steps of one are joined
only while they touch few arrays, because the compiler vectorises a loop only if it can tell its arrays apart.
"""

from __future__ import annotations

from .affine import Affine, Range, variable
from .expressions import Op, walk, with_names
from .regions import Map, Statement, bodies

#: Arrays in one loop that the compiler still tells apart.
FEW_ARRAYS = 6
COSTLY = frozenset({"exp", "log", "pow", "sin", "cos", "tan", "tanh", "sinh", "cosh", "arctan2"})


def fuse(body: list[Statement]) -> None:
    """Joins what can be joined, in a sequence and in everything inside it."""
    run: list[Map] = []
    for place, statement in enumerate(body):
        for inner in bodies(statement):
            fuse(inner)
        if not isinstance(statement, Map) or not _alone(statement):
            run = []
            continue
        joined = _joined(run, statement) if run else None
        if joined is None:
            run = [statement]
        else:
            body[place] = joined
            run.append(joined)


def _alone(statement: Map) -> bool:
    """Whether each element of a statement is written once, in any order."""
    if statement.order != "free" or not statement.ranges:
        return False
    used = []
    for index in statement.index:
        names = [atom for atom, _ in index.terms if isinstance(atom, str) and any(atom == one.name for one in statement.ranges)]
        if index.loads or len(names) > 1:
            return False
        used += names
    return sorted(used) == sorted(one.name for one in statement.ranges)


def _joined(run: list[Map], statement: Map) -> Map | None:
    """The statement over the ranges of the run, or None where it cannot share its nest."""
    first = run[0]
    if [(one.low, one.high, one.step) for one in first.ranges] != [(one.low, one.high, one.step) for one in statement.ranges]:
        return None
    names: dict[str, Affine] = {mine.name: variable(other.name) for mine, other in zip(statement.ranges, first.ranges)}
    index = tuple(one.with_names(names) for one in statement.index)
    made = Map(statement.line, first.ranges, statement.array, index, with_names(statement.value, names), statement.add, "free", True)
    accesses = [(one.array, at) for one in (*run, made) for at in [one.index]] + [
        (load.array, load.index) for one in (*run, made) for load in one.loads()
    ]
    for one in (*run, made):
        if any(array == one.array and at != one.index for array, at in accesses):
            return None
    arrays = {array for array, at in accesses if at}
    if len(arrays) > FEW_ARRAYS and _in_steps_of_one([*run, made]) and not _costly([*run, made]):
        return None
    return made


def _in_steps_of_one(run: list[Map]) -> bool:
    """Whether some range walks through the memory of everything that is written in steps of one."""
    return any(all(_unit(one.index, range_) for one in run) for range_ in run[0].ranges)


def _unit(index: tuple[Affine, ...], range_: Range) -> bool:
    return bool(index) and abs(index[-1].coefficient(range_.name)) == 1


def _costly(run: list[Map]) -> bool:
    return any(isinstance(node, Op) and node.name in COSTLY for one in run for node in walk(one.value))
