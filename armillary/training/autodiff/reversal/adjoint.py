"""The adjoint of every critical statement: which adjoints it adds to, by how much, and which values of the forward pass that takes.

The adjoint of `x[f] = e(a, b)` is t = x̄[f]; x̄[f] = 0; ā += t·∂e/∂a; b̄ += t·∂e/∂b. An accumulation leaves x̄[f] as it is. Where a
derivative can be written with the result (a quotient, a square root, an exponential) and the result stays in memory, the operands are not
needed. Values that enter linearly are not needed either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..program.affine import Range
from ..program.dependence import Dependence
from ..program.expressions import Expr, Load, Op, adjoints, loads
from ..program.regions import Access, ArgBest, Branch, Check, Dot, Loop, Map, Program, Statement, While
from .activity import Activity

#: The adjoint of what a statement assigns.
SEED = Load("$seed")
RESULT_HELPS = frozenset({"div", "sqrt", "exp", "tan", "tanh", "pow"})


@dataclass(frozen=True)
class Adjoint:
    """What the adjoint of an assignment does: (read, what is added to its adjoint) for each active read."""

    parts: tuple[tuple[Load, Expr], ...]
    #: The values of the forward pass that it takes, apart from its own result.
    needs: tuple[Load, ...]


@dataclass
class Reversed:
    """The adjoints of a program, and the values that each statement needs when it is reversed."""

    activity: Activity
    adjoints: dict[int, Adjoint]
    #: Every (statement, read) whose value the reverse pass needs.
    needs: dict[int, tuple[Load, ...]]

    @property
    def statements(self) -> int:
        """The number of statements that have an adjoint."""
        return len(self.activity.critical)


def reverse(program: Program, found: Activity, dependence: Dependence) -> Reversed:
    """Differentiates every critical statement, and gathers what control and indices need."""
    made = Reversed(found, {}, {})
    for statement in program.statements():
        if statement.serial in found.critical and isinstance(statement, Map):
            made.adjoints[statement.serial] = _adjoint(statement, found, dependence)
    live = _live(program.root, found)
    for statement in program.statements():
        needs = tuple(dict.fromkeys(_needs(statement, made, live)))
        if needs:
            made.needs[statement.serial] = needs
    return made


def _adjoint(statement: Map, found: Activity, dependence: Dependence) -> Adjoint:
    helps = not statement.add and isinstance(statement.value, Op) and statement.value.name in RESULT_HELPS
    stays = helps and dependence.intact(statement, Access(statement.array, statement.index, statement.ranges), after=True)
    result = Load(statement.array, statement.index, "f", after=True) if stays else None
    parts = adjoints(statement.value, SEED, lambda load: found.active(statement, load), result)
    needs: dict[Load, None] = {}
    for load, part in parts:
        for one in loads(part):
            if one != SEED and not one.after:
                needs.setdefault(one)
        _note_indices(load, needs)
    _note_indices(Load(statement.array, statement.index), needs)
    return Adjoint(tuple(parts), tuple(needs))


def _note_indices(load: Load, needs: dict[Load, None]) -> None:
    for index in load.index:
        for atom in index.loads:
            for one in loads(atom):
                needs.setdefault(one)


def _live(body: list[Statement], found: Activity) -> set[int]:
    """The statements that have anything to do in reverse: critical and clearing ones, and the loops and branches around them."""
    live: set[int] = set()

    def visit(statement: Statement) -> bool:
        inner = [statement.body] if isinstance(statement, Loop | While) else []
        if isinstance(statement, Branch):
            inner = [statement.then, statement.otherwise]
        any_inside = [visit(one) for part in inner for one in part]
        if statement.serial in found.critical or statement.serial in found.clearing or any(any_inside):
            live.add(statement.serial)
            return True
        return False

    for one in body:
        visit(one)
    return live


def live_statements(program: Program, found: Activity) -> set[int]:
    """The statements that the reverse pass visits."""
    return _live(program.root, found)


def _needs(statement: Statement, made: Reversed, live: set[int]) -> Iterator[Load]:
    if statement.serial not in live:
        return
    if statement.serial in made.adjoints:
        yield from made.adjoints[statement.serial].needs
    elif isinstance(statement, Map):  # It clears an adjoint, whose index it has to know.
        needs: dict[Load, None] = {}
        _note_indices(Load(statement.array, statement.index), needs)
        for one in statement.ranges:
            for atom in (*one.low.loads, *one.high.loads):
                yield from loads(atom)
        yield from needs
    elif isinstance(statement, Dot) and statement.serial in made.activity.critical:
        for place in operand_needs(statement, made.activity):
            yield operand_load(statement, place)
    elif isinstance(statement, Loop | Branch):
        yield from statement.loads()
    if isinstance(statement, Map) and statement.serial in made.adjoints:
        for one in statement.ranges:
            for atom in (*one.low.loads, *one.high.loads):
                yield from loads(atom)


def operand_load(statement: Dot, place: int) -> Load:
    """An operand of a product as a read over ranges of its own."""
    operand = (statement.a, statement.b)[place]
    return Load(operand.array, operand.access(statement.shapes[operand.array]).index)


def own_ranges(statement: Statement, load: Load) -> tuple[Range, ...]:
    """The ranges of a statement over which a read in it runs."""
    if isinstance(statement, Map):
        return statement.ranges
    if isinstance(statement, ArgBest):
        return statement.ranges + statement.inner
    if isinstance(statement, Check):
        return statement.ranges
    if isinstance(statement, Dot):
        for operand in (statement.a, statement.b):
            access = operand.access(statement.shapes[operand.array])
            if access.array == load.array and access.index == load.index:
                return access.ranges
    return ()


def operand_needs(statement: Dot, found: Activity) -> list[int]:
    """Which operands of a product the reverse pass needs: 0 for the left one, 1 for the right one."""
    varied = found.varied[statement.serial]
    return [k for k, other in ((0, statement.b), (1, statement.a)) if other.array in varied]
