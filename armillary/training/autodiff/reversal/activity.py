"""The critical part of a program: what depends on the active inputs and influences the output.

Both directions are followed through the text, through loops until nothing changes. A statement is critical if it passes a dependence on an
active input on to something that the output needs; only critical statements have an adjoint. A statement that overwrites an array whose
later content matters, with something that does not depend on the inputs, sets its adjoint to zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..program.expressions import Load
from ..program.regions import Array, Branch, Dot, Loop, Map, Program, Statement, While


@dataclass
class Activity:
    """What is differentiated."""

    #: Serial numbers of the statements that have an adjoint.
    critical: set[int] = field(default_factory=set)
    #: Serial numbers of the statements that set adjoints to zero and do nothing else.
    clearing: set[int] = field(default_factory=set)
    #: The arrays that have an adjoint.
    adjoints: set[str] = field(default_factory=set)
    #: For each statement, the arrays that depend on active inputs when it runs.
    varied: dict[int, frozenset[str]] = field(default_factory=dict)

    def active(self, statement: Statement, load: Load) -> bool:
        """Whether a read in a statement depends on active inputs."""
        return load.array in self.varied[statement.serial]


def covers(statement: Statement, arrays: dict[str, Array]) -> bool:
    """Whether a statement writes every element of its array."""
    if isinstance(statement, Dot):
        return True
    if not isinstance(statement, Map):
        return False
    shape = arrays[statement.array].shape
    sizes = {one.name: one.high.constant for one in statement.ranges if one.high.fixed}
    names = []
    for index, size in zip(statement.index, shape):
        atoms = index.terms
        if len(atoms) != 1 or index.constant or atoms[0][1] != 1 or sizes.get(str(atoms[0][0])) != size:
            if not (size == 1 and index.fixed):
                return False
            continue
        names.append(atoms[0][0])
    return len(names) == len(set(names)) and not statement.add


def activity(program: Program, wrt: Iterable[str], output: str, *, critical: bool = True) -> Activity:
    """The critical part for these inputs and this output; without `critical`, everything that computes with real numbers."""
    found = Activity()
    real = frozenset(array.name for array in program.arrays.values() if array.kind == "f")
    useful: dict[int, frozenset[str]] = {}
    if critical:
        _forward(program.root, frozenset(wrt), found, program.arrays)
        _backward(program.root, frozenset({output}), useful, program.arrays)
    else:
        for statement in program.statements():
            found.varied[statement.serial] = useful[statement.serial] = real
    for statement in program.statements():
        if not isinstance(statement, Map | Dot):
            continue
        array = statement.array if isinstance(statement, Map) else statement.out
        if program.arrays[array].kind != "f" or array not in useful[statement.serial]:
            continue
        read = [name for name in _reads(statement, program.arrays) if name in found.varied[statement.serial]]
        if read:
            found.critical.add(statement.serial)
            found.adjoints |= {array, *read}
        elif not (isinstance(statement, Map) and statement.add):
            found.clearing.add(statement.serial)
    found.adjoints |= {output, *wrt}
    for statement in program.statements():
        if statement.serial in found.clearing:
            array = statement.array if isinstance(statement, Map) else statement.out  # type: ignore[attr-defined]
            if array not in found.adjoints:
                found.clearing.discard(statement.serial)
    return found


def _reads(statement: Map | Dot, arrays: dict[str, Array]) -> set[str]:
    """The real arrays that a statement computes with; what only decides an index or a condition is left out by its kind."""
    if isinstance(statement, Dot):
        return {statement.a.array, statement.b.array}
    return {load.array for load in statement.loads() if arrays[load.array].kind == "f"}


def _forward(body: list[Statement], varied: frozenset[str], found: Activity, arrays: dict[str, Array]) -> frozenset[str]:
    for statement in body:
        found.varied[statement.serial] = found.varied.get(statement.serial, frozenset()) | varied
        if isinstance(statement, Map | Dot):
            array = statement.array if isinstance(statement, Map) else statement.out
            if _reads(statement, arrays) & varied:
                if arrays[array].kind == "f":
                    varied = varied | {array}
            elif covers(statement, arrays):
                varied = varied - {array}
        elif isinstance(statement, Loop | While):
            inner = [statement.body] if isinstance(statement, Loop) else [statement.head, statement.body]
            while True:
                after = varied
                for one in inner:
                    after = _forward(one, after, found, arrays)
                if after <= varied:
                    break
                varied = varied | after
        elif isinstance(statement, Branch):
            varied = _forward(statement.then, varied, found, arrays) | _forward(statement.otherwise, varied, found, arrays)
    return varied


def _backward(body: list[Statement], useful: frozenset[str], found: dict[int, frozenset[str]], arrays: dict[str, Array]) -> frozenset[str]:
    for statement in reversed(body):
        found[statement.serial] = found.get(statement.serial, frozenset()) | useful
        if isinstance(statement, Map | Dot):
            array = statement.array if isinstance(statement, Map) else statement.out
            if array in useful:
                if covers(statement, arrays):
                    useful = useful - {array}
                useful = useful | _reads(statement, arrays)
        elif isinstance(statement, Loop | While):
            inner = [statement.body] if isinstance(statement, Loop) else [statement.head, statement.body]
            while True:
                before = useful
                for one in reversed(inner):
                    before = _backward(one, before, found, arrays)
                if before <= useful:
                    break
                useful = useful | before
        elif isinstance(statement, Branch):
            useful = _backward(statement.then, useful, found, arrays) | _backward(statement.otherwise, useful, found, arrays)
    return useful
