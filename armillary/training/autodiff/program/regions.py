"""A program as a tree of regions: sequences of statements, loops and branches, over named arrays.

A statement is atomic: it reads everything before it writes anything, as NumPy's assignments do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from .affine import Affine, Range, number, variable
from .expressions import Expr, Load, loads

#: Numbers of statements that are in no program yet, beyond those that a program gives its own.
_serial = itertools.count(1 << 32)


@dataclass(frozen=True)
class Array:
    """A named array of a program; a scalar has no dimensions."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    #: An argument of the program, rather than something that it makes.
    argument: bool = False

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    @property
    def kind(self) -> str:
        """The kind of its elements: "f", "i" or "b"."""
        return {"f": "f", "b": "b"}.get(np.dtype(self.dtype).kind, "i")


@dataclass(frozen=True)
class Access:
    """The elements of an array that a statement touches: an index over the loops around it and ranges of its own."""

    array: str
    index: tuple[Affine, ...]
    ranges: tuple[Range, ...] = ()


@dataclass(eq=False)
class Statement:
    """The base of what a region may hold; `line` is the line of the source that it comes from."""

    line: int
    serial: int = field(default_factory=lambda: next(_serial), init=False)

    def reads(self) -> list[Access]:
        """What it reads."""
        return []

    def writes(self) -> list[Access]:
        """What it writes."""
        return []


@dataclass(eq=False)
class Map(Statement):
    """`array[index] = value`, or `+=`, for all values of its ranges.

    `order` is "free" where elements do not depend on each other, else "up" or "down": the order in which they may be computed. A statement
    that `joins` the one before it has the same ranges and shares its nest of loops.
    """

    ranges: tuple[Range, ...]
    array: str
    index: tuple[Affine, ...]
    value: Expr
    add: bool = False
    order: str = "free"
    joins: bool = False

    def reads(self) -> list[Access]:
        """Every read in the value and in the index."""
        found = [Access(load.array, load.index, self.ranges) for load in self.loads()]
        return [*found, Access(self.array, self.index, self.ranges)] if self.add else found

    def loads(self) -> list[Load]:
        """The reads as expressions, without that of an accumulation."""
        inner = [load for one in self.index for atom in one.loads for load in loads(atom)]
        return list(dict.fromkeys([*loads(self.value), *inner]))

    def writes(self) -> list[Access]:
        """The element that it assigns."""
        return [Access(self.array, self.index, self.ranges)]


@dataclass(frozen=True)
class Operand:
    """`array[prefix]` as a matrix of this shape, or as a vector where `columns` is 0; perhaps transposed."""

    array: str
    prefix: tuple[Affine, ...]
    rank: int
    rows: int
    columns: int
    transposed: bool = False

    def access(self, shape: Sequence[int]) -> Access:
        """All the elements that it covers."""
        names = [f"_{k}" for k in range(len(shape) - len(self.prefix))]
        ranges = tuple(Range(name, number(0), number(size)) for name, size in zip(names, shape[len(self.prefix) :]))
        return Access(self.array, (*self.prefix, *map(variable, names)), ranges)


@dataclass(eq=False)
class Dot(Statement):
    """`out = a @ b` by BLAS, where `out` is a whole array and each operand lies in memory without gaps."""

    out: str
    a: Operand
    b: Operand
    shapes: dict[str, tuple[int, ...]]

    def reads(self) -> list[Access]:
        """Both operands."""
        return [one.access(self.shapes[one.array]) for one in (self.a, self.b)]

    def writes(self) -> list[Access]:
        """The whole product."""
        shape = self.shapes[self.out]
        return [Operand(self.out, (), len(shape), 0, 0).access(shape)]

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        rows, inner = (self.a.rows, self.a.columns) if self.a.columns else (1, self.a.rows)
        return 2 * rows * inner * (self.b.columns or 1)


@dataclass(eq=False)
class ArgBest(Statement):
    """The first place, along `inner` ranges, at which `value` is greatest (or least), as one integer array per range."""

    ranges: tuple[Range, ...]
    inner: tuple[Range, ...]
    arrays: tuple[str, ...]
    index: tuple[Affine, ...]
    value: Expr
    greatest: bool = True

    def reads(self) -> list[Access]:
        """Every read in the value."""
        return [Access(load.array, load.index, self.ranges + self.inner) for load in self.loads()]

    def loads(self) -> list[Load]:
        """The reads as expressions."""
        return loads(self.value)

    def writes(self) -> list[Access]:
        """The places."""
        return [Access(array, self.index, self.ranges) for array in self.arrays]


@dataclass(eq=False)
class Check(Statement):
    """An index that only the run can tell to be inside an array: `0 <= index`, and `index < limit` (`<=` where it ends a slice)."""

    ranges: tuple[Range, ...]
    index: Affine
    limit: int
    ends: bool = False

    def reads(self) -> list[Access]:
        """The integer arrays in the index."""
        return [Access(load.array, load.index, self.ranges) for load in self.loads()]

    def loads(self) -> list[Load]:
        """The reads as expressions."""
        return list(dict.fromkeys(load for atom in self.index.loads for load in loads(atom)))


@dataclass(eq=False)
class Loop(Statement):
    """A `for` loop over integers."""

    range: Range
    body: list[Statement] = field(default_factory=list)

    def loads(self) -> list[Load]:
        """Reads of integer arrays in its bounds."""
        ends = (self.range.low, self.range.high)
        return list(dict.fromkeys(load for end in ends for atom in end.loads for load in loads(atom)))

    def reads(self) -> list[Access]:
        """The same as accesses."""
        return [Access(load.array, load.index) for load in self.loads()]


@dataclass(eq=False)
class While(Statement):
    """A `while` loop: `head` computes the scalar `condition` before each pass; the integer scalar `trips` counts the passes."""

    condition: str
    trips: str
    head: list[Statement] = field(default_factory=list)
    body: list[Statement] = field(default_factory=list)


@dataclass(eq=False)
class Branch(Statement):
    """An `if`; the condition is a scalar, or an expression of loop indices alone."""

    condition: Expr
    then: list[Statement] = field(default_factory=list)
    otherwise: list[Statement] = field(default_factory=list)

    def loads(self) -> list[Load]:
        """The scalar that decides, if one does."""
        return loads(self.condition)

    def reads(self) -> list[Access]:
        """The same as an access."""
        return [Access(load.array, load.index) for load in self.loads()]


def bodies(statement: Statement) -> list[list[Statement]]:
    """The sequences inside a statement."""
    if isinstance(statement, Loop):
        return [statement.body]
    if isinstance(statement, While):
        return [statement.head, statement.body]
    if isinstance(statement, Branch):
        return [statement.then, statement.otherwise]
    return []


def inside(statement: Statement) -> Iterator[Statement]:
    """The statement and everything in it, in the order of the text."""
    yield statement
    for body in bodies(statement):
        for one in body:
            yield from inside(one)


def written(statement: Statement) -> set[str]:
    """The arrays that a statement, or anything in it, writes."""
    found = {access.array for one in inside(statement) for access in one.writes()}
    return found | {one.trips for one in inside(statement) if isinstance(one, While)}


@dataclass
class Program:
    """A whole program: its arrays, what it does, and which array is its result."""

    name: str
    arrays: dict[str, Array]
    #: Names of the arguments in order, those that are constants left out.
    arguments: list[str]
    root: list[Statement]
    output: str
    #: All names that the program returns, the first of which is `output` unless an argument was asked for.
    returned: tuple[str, ...] = ()

    def statements(self) -> Iterator[Statement]:
        """Every statement, in the order of the text."""
        for one in self.root:
            yield from inside(one)

    def renumber(self) -> None:
        """Numbers the statements in the order of the text, so that equal programs give equal code, which is compiled once."""
        for number_, one in enumerate(self.statements()):
            one.serial = number_

    @property
    def overwritten(self) -> set[str]:
        """The arguments that it writes to."""
        changed = {name for one in self.root for name in written(one)}
        return {name for name in self.arguments if name in changed}


@dataclass(frozen=True)
class Place:
    """Where a statement stands: (number of the sequence, number in it) from the root down, and the loops on the way.

    The head of a while loop is sequence 0 and its body sequence 1; the two sides of an if are -1 and -2.
    """

    path: tuple[tuple[int, int], ...]
    #: The `Loop` and `While` statements around it, outermost first.
    loops: tuple[Statement, ...]

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The ranges of the loops around it; a while loop has a variable that no index mentions."""
        return tuple(ranges_of(loop) for loop in self.loops)


def ranges_of(loop: Statement) -> Range:
    """The range of a loop."""
    if isinstance(loop, Loop):
        return loop.range
    return Range(f"while{loop.serial}", number(0), number(1 << 40))


def places(root: list[Statement]) -> dict[int, Place]:
    """The place of every statement, by its serial number."""
    found: dict[int, Place] = {}

    def visit(body: list[Statement], which: int, path: tuple[tuple[int, int], ...], loops: tuple[Statement, ...]) -> None:
        for number_, statement in enumerate(body):
            here = (*path, (which, number_))
            found[statement.serial] = Place(here, loops)
            around = (*loops, statement) if isinstance(statement, Loop | While) else loops
            for side, inner in enumerate(bodies(statement)):
                visit(inner, -1 - side if isinstance(statement, Branch) else side, here, around)

    visit(root, 0, (), ())
    return found
