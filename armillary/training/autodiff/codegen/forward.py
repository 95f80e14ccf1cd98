"""The forward run: statements as nests of loops, inner products and calls of BLAS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..forwarding.counting import executions
from ..program.affine import Affine, Range
from ..program.expressions import Load, Op
from ..program.regions import ArgBest, Branch, Check, Dot, Loop, Map, Operand, Statement, While, inside
from ..reversal.adjoint import operand_load
from .printing import Printer, Resolve, nothing, unit_stride

#: Elements from which an inner product is a call of BLAS.
LONG = 48


class Forward(Printer):
    """Writes statements that run forwards."""

    #: Whether this is the run in which indices are checked.
    checking = True

    @property
    def own(self) -> tuple[str, ...]:
        """The program's own arrays."""
        return tuple(array.name for array in self.arrays.values() if not array.argument and array.shape)

    def scalars(self) -> None:
        """Declares the program's own scalars."""
        for array in self.arrays.values():
            if not array.argument and not array.shape:
                self.text.line(f"v_{array.name} = {nothing(array.kind)}")

    def keeps(self, statement: Statement, keep: frozenset[str] | None) -> bool:
        """Whether a replay that computes these arrays again has anything to do in a statement."""
        if keep is None:
            return True
        for one in inside(statement):
            if any(access.array in keep for access in one.writes()) or (self.checking and isinstance(one, Check)):
                return True
        return False

    def plain(self, body: list[Statement], keep: frozenset[str] | None, resolve: Resolve | None = None, rename: str = "") -> None:
        """Runs statements without recording. `rename` is `array=name` where results go elsewhere."""
        for run in runs([one for one in body if self.keeps(one, keep)]):
            statement = run[0]
            if len(run) > 1:
                self._maps(run, resolve or self.in_place, rename)
                continue
            if isinstance(statement, Loop):
                with self.text.block(self.head(statement.range, resolve or self.in_place)):
                    self.plain(statement.body, keep, resolve, rename)
            elif isinstance(statement, While):
                self._while(statement, keep, lambda: self.plain(statement.body, keep))  # noqa: B023
            elif isinstance(statement, Branch):
                self._branch(statement, resolve or self.in_place, lambda part: self.plain(part, keep, resolve, rename))
            else:
                self.simple(statement, resolve or self.in_place, rename)

    def _while(self, statement: While, keep: frozenset[str] | None, body: Callable[[], None]) -> None:
        self.text.line(f"v_{statement.trips} = 0")
        with self.text.block("while True:"):
            self.plain(statement.head, keep)
            with self.text.block(f"if not v_{statement.condition}:"):
                self.text.line("break")
            body()
            self.text.line(f"v_{statement.trips} += 1")

    def _branch(self, statement: Branch, resolve: Resolve, part: Callable[[list[Statement]], None]) -> None:
        test = self.expressions([statement.condition], resolve)[0]
        with self.text.block(f"if {test}:"):
            part(statement.then)
        if statement.otherwise:
            with self.text.block("else:"):
                part(statement.otherwise)

    def simple(self, statement: Statement, resolve: Resolve, rename: str) -> None:
        """Runs one statement that holds no others."""
        if isinstance(statement, Map):
            self._map(statement, resolve, rename)
        elif isinstance(statement, Dot):
            self._dot(statement, resolve, rename)
        elif isinstance(statement, ArgBest):
            self._best(statement, resolve)
        elif isinstance(statement, Check) and self.checking:
            with self.nest(statement.ranges, resolve):
                index = self.affine(statement.index, resolve)
                with self.text.block(f"if {index} < 0 or {index} {'>' if statement.ends else '>='} {statement.limit}:"):
                    self.text.line(f'raise IndexError("line {statement.line}: an index is outside its array")')

    def _written(self, array: str, rename: str) -> str:
        given, _, name = rename.partition("=")
        return name if rename and given == array else f"v_{array}"

    def _maps(self, run: Sequence[Map], resolve: Resolve, rename: str) -> None:
        """Several assignments in one nest."""
        accesses = [(one.index, 2) for one in run] + [(load.index, 1) for one in run for load in one.loads() if load.index]
        with self.nest(self.ordered(run[0].ranges, accesses), resolve):
            for one in run:
                value = self.expressions([one.value], resolve)[0]
                self.text.line(f"{self.at(self._written(one.array, rename), one.index, resolve)} {'+=' if one.add else '='} {value}")

    def _map(self, statement: Map, resolve: Resolve, rename: str) -> None:
        name = self._written(statement.array, rename)
        reads = [load for load in statement.loads() if load.index]
        if statement.order == "free":
            ranges = self.ordered(statement.ranges, [(statement.index, 2), *((load.index, 1) for load in reads)])
        else:
            ranges = list(statement.ranges)
        backwards = statement.order == "down"
        inner = ranges[-1] if ranges else None
        summed = statement.add and inner is not None and not any(inner.name in set(one.names()) for one in statement.index)
        if not summed or statement.order != "free":
            with self.nest(ranges, resolve, backwards=backwards):
                value = self.expressions([statement.value], resolve)[0]
                self.text.line(f"{self.at(name, statement.index, resolve)} {'+=' if statement.add else '='} {value}")
            return
        assert inner is not None
        with self.nest(ranges[:-1], resolve):
            quick = self._inner_product(statement, inner, resolve)
            if quick is not None:
                self.text.line(f"{self.at(name, statement.index, resolve)} += {quick}")
                return
            total = self.fresh("u")
            self.text.line(f"{total} = 0.0")
            with self.nest([inner], resolve):
                value = self.expressions([statement.value], resolve)[0]
                self.text.line(f"{total} += {value}")
            self.text.line(f"{self.at(name, statement.index, resolve)} += {total}")

    def _inner_product(self, statement: Map, inner: Range, resolve: Resolve) -> str | None:
        """An inner product of two long rows as a call of BLAS, or None."""
        value = statement.value
        if not (isinstance(value, Op) and value.name == "mul" and all(isinstance(one, Load) and one.index for one in value.args)):
            return None
        if not self._long(statement, inner):
            return None
        said = []
        for load in value.args:
            assert isinstance(load, Load)
            base, bracket, _ = resolve(load).partition("[")
            if not unit_stride(load.index, inner) or self.arrays[load.array].dtype != "float64":
                return None
            if not bracket or not base.startswith(("v_", "b_")):
                return None
            said.append(self._row(base, load.index, inner, resolve))
        return f"np.dot({said[0]}, {said[1]})"

    def forwarding_place(self, statement: Statement) -> tuple[Statement, ...] | None:
        """The loops around a statement."""
        if not hasattr(self, "_loops_around"):
            self._loops_around: dict[int, tuple[Statement, ...]] = {}

            def visit(body: list[Statement], around: tuple[Statement, ...]) -> None:
                for one in body:
                    self._loops_around[one.serial] = around
                    if isinstance(one, Loop | While):
                        visit(one.body, (*around, one))
                    elif isinstance(one, Branch):
                        visit(one.then, around)
                        visit(one.otherwise, around)

            visit(self.program.root, ())
        return self._loops_around.get(statement.serial)

    def _best(self, statement: ArgBest, resolve: Resolve) -> None:
        with self.nest(statement.ranges, resolve):
            most, seen = self.fresh("m"), self.fresh("m")
            for array in statement.arrays:
                self.text.line(f"{self.at(f'v_{array}', statement.index, resolve)} = 0")
            self.text.line(f"{most} = 0.0")
            self.text.line(f"{seen} = False")
            with self.nest(statement.inner, resolve):
                value = self.expressions([statement.value], resolve)[0]
                held = self.fresh("m")
                self.text.line(f"{held} = {value}")
                with self.text.block(f"if not {seen} or {held} {'>' if statement.greatest else '<'} {most}:"):
                    self.text.line(f"{most} = {held}")
                    self.text.line(f"{seen} = True")
                    for array, one in zip(statement.arrays, statement.inner):
                        self.text.line(f"{self.at(f'v_{array}', statement.index, resolve)} = i_{one.name}")

    def operand(self, operand: Operand, base: str, prefix: Sequence[str], resolve: Resolve) -> str:
        """An operand of a product, as it is stored: before it is transposed."""
        said = base if not prefix else f"{base}[{', '.join(prefix)}]"
        if operand.rank == (2 if operand.columns else 1):
            return said
        rows, columns = (operand.columns, operand.rows) if operand.transposed else (operand.rows, operand.columns)
        return f"{said}.reshape({rows}, {columns})" if operand.columns else f"{said}.reshape({rows})"

    def _operand(self, operand: Operand, resolve: Resolve, source: str | None = None) -> str:
        said = self.stored_operand(operand, resolve, source)
        return f"{said}.T" if operand.transposed else said

    def stored_operand(self, operand: Operand, resolve: Resolve, source: str | None = None) -> str:
        """The memory of an operand, of the array itself or of another name with the same indices."""
        prefix = [self.affine(one, resolve) for one in operand.prefix]
        return self.operand(operand, source or f"v_{operand.array}", prefix, resolve)

    def _dot(self, statement: Dot, resolve: Resolve, rename: str) -> None:
        a, b = (self._source(statement, k, resolve) for k in (0, 1))
        self.text.line(f"np.dot({a}, {b}, {self._written(statement.out, rename)})")

    def _source(self, statement: Dot, place: int, resolve: Resolve) -> str:
        """An operand's values, wherever `resolve` says that they are."""
        operand = (statement.a, statement.b)[place]
        said = resolve(operand_load(statement, place))
        base = said.partition("[")[0]
        if base.startswith("k_"):
            return self.taped_operand(operand, int(base[2:]), resolve)
        return self._operand(operand, resolve, base)

    def taped_operand(self, operand: Operand, number: int, resolve: Resolve) -> str:
        """An operand on a tape, of which there is none before anything is recorded."""
        raise NotImplementedError

    def _row(self, name: str, index: Sequence[Affine], inner: Range, resolve: Resolve) -> str:
        """The part of a row that an inner loop walks along."""
        low, high = (index[-1].with_names({inner.name: end}) for end in (inner.low, inner.high))
        lead = "".join(f"{self.affine(one, resolve)}, " for one in index[:-1])
        return f"{name}[{lead}{self.affine(low, resolve)}:{self.affine(high, resolve)}]"

    def _long(self, statement: Map, inner: Range) -> bool:
        """Whether an inner loop has enough passes for a call of BLAS."""
        place = self.forwarding_place(statement)
        if place is None:
            return False
        outside = executions([*place, *(Loop(0, one) for one in statement.ranges if one is not inner)])
        return executions([*place, *(Loop(0, one) for one in statement.ranges)]) >= LONG * outside


def runs(body: list[Statement]) -> list[list[Any]]:
    """Neighbours that share a nest of loops, as they stand in a sequence."""
    found: list[list[Any]] = []
    for statement in body:
        if (
            found
            and isinstance(statement, Map)
            and statement.joins
            and isinstance(found[-1][-1], Map)
            and found[-1][0].ranges == statement.ranges
        ):
            found[-1].append(statement)
        else:
            found.append([statement])
    return found
