"""The program while it is built: its arrays, the region that statements go to, and assignments to elements.

An assignment is one nest of loops over scalar assignments. Where it would overwrite elements that it still has to read, it runs in the
other direction, or by way of a copy.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from armillary.errors import InputError

from ..program.affine import Affine, Range, extremes, number, variable
from ..program.dependence import bounds, infeasible, row_of
from ..program.expressions import Expr, Idx, Load, Num, Op, loads, op, real
from ..program.regions import ArgBest, Array, Map, Statement
from .scope import Scope, said
from .source import Source
from .values import Index, Value, filled, places_of, reals, whole

MOST_STATEMENTS = 20_000
MOST_ELEMENTS = 1 << 34


class Building:
    """The state of one lowering, and what adds to the program."""

    def __init__(self, source: Source, promoted: set[str]) -> None:
        self.source = source
        self.arrays: dict[str, Array] = {}
        self.root: list[Statement] = []
        self.body = self.root
        self.ranges: list[Range] = []
        self.calls: list[str] = []
        self.scope = Scope(source)
        self.node: ast.AST = source.tree
        self._promoted = promoted
        self._fresh = itertools.count()
        self._count = 0
        self.scopes = [self.scope]
        #: Copies that stand for a view: array to the base, which must not change while the copy is in use.
        self.stand_ins: dict[str, str] = {}
        #: What is wrong with an array, or with a name of a scope, that must not be read any more.
        self._stale_arrays: dict[str, str] = {}
        self._stale_names: dict[tuple[int, str], str] = {}

    def refuse(self, message: str, node: ast.AST | None = None) -> NoReturn:
        """Raises an error at a node, or at the current one."""
        raise InputError(message, where=self.scope.source.where(node if node is not None and hasattr(node, "lineno") else self.node))

    def fresh(self, hint: str) -> str:
        """A name that nothing has yet."""
        while (name := f"{hint}_{next(self._fresh)}") in self.arrays:
            pass
        return name

    @property
    def line(self) -> int:
        """The line of the current statement."""
        return getattr(self.node, "lineno", 0) + self.scope.source.offset

    def emit(self, statement: Statement) -> None:
        """Adds a statement to the region that is being built."""
        self._count += 1
        if self._count > MOST_STATEMENTS:
            self.refuse(f"the kernel has more than {MOST_STATEMENTS} statements when its calls are inlined")
        self.body.append(statement)

    def array(self, hint: str, shape: Sequence[Affine], dtype: str | None) -> Value:
        """A new array, large enough for a shape that may depend on loop variables."""
        name = self.fresh(hint)
        sizes = []
        for size in shape:
            _, most = extremes(size, tuple(self.ranges))
            if most is None or not most.fixed:
                self.refuse("an array whose shape depends on data is not supported")
            sizes.append(max(most.constant, 0))
        if int(np.prod(sizes, dtype=object)) > MOST_ELEMENTS:
            self.refuse(f"found an array of {' × '.join(map(str, sizes))} elements; expected fewer than {MOST_ELEMENTS}")
        self.arrays[name] = Array(name, tuple(sizes), dtype or "float64")
        return whole(name, dtype or "float64", shape)

    @contextmanager
    def inside(self, body: list[Statement], *ranges: Range) -> Iterator[None]:
        """Builds another region for a while."""
        before, self.body = self.body, body
        self.ranges.extend(ranges)
        try:
            yield
        finally:
            self.body = before
            del self.ranges[len(self.ranges) - len(ranges) :]

    def proved(self, index: Affine, ranges: Sequence[Range] = ()) -> bool:
        """Whether an integer is never negative here."""
        if index.fixed:
            return index.constant >= 0
        around = (*self.ranges, *ranges)
        low, _ = extremes(index, around)
        if low is not None and low.fixed and low.constant >= 0:
            return True
        return infeasible([*bounds(around, {}, ""), row_of(-index - 1, {}, "")])

    def held(self, value: Value, hint: str = "t") -> Value:
        """The value as something that later writes do not change, unless it is a view of an array that exists."""
        if value.mask is not None:
            self.refuse("an array that was indexed by truth values can only be assigned to the same places")
        if value.ndim and value.view is not None:
            return value
        if not value.ndim and not loads(value.scalar):
            return value
        return self.materialise(value, hint)

    def _fresh_read(self, value: Value) -> None:
        if value.view is not None and value.view.array in self._stale_arrays:
            self.refuse(self._stale_arrays[value.view.array])

    def assign(self, target: Value, value: Value, *, add: bool = False) -> None:
        """`target[...] = value`, or `+=`, element by element, as if all of the right side were computed first."""
        assert target.view is not None
        if len(value.shape) > len(target.shape):
            extra = value.shape[: len(value.shape) - len(target.shape)]
            if any(size != number(1) for size in extra):
                self.refuse(f"found the shape {said(value.shape)} on the right; expected {said(target.shape)}")
            inner = value
            value = Value(value.shape[len(extra) :], lambda places: inner.element((*(number(0) for _ in extra), *places)), value.dtype)
        for size, mine in zip(reversed(value.shape), reversed(target.shape)):
            if size not in (mine, number(1)):
                self.refuse(f"found the shape {said(value.shape)} on the right; expected {said(target.shape)}")
        ranges = tuple(Range(self.fresh("e"), number(0), size) for size in target.shape)
        places = tuple(variable(one.name) for one in ranges)
        index = target.view.at(places)
        expr = value.element(places_of(value, places))
        if self.arrays[target.view.array].kind == "f":
            expr = real(expr)
        elif expr.kind == "f" and self.arrays[target.view.array].kind != "f":
            self.refuse("real numbers cannot be assigned to an array of integers")
        self._map(Map(self.line, ranges, target.view.array, index, expr, add))

    def _map(self, made: Map) -> None:
        """Adds an assignment, by way of a copy where it would overwrite what it still has to read."""
        if not made.add and isinstance(made.value, Op) and made.value.name in ("add", "sub"):
            own = Load(made.array, made.index, "f")
            (left, right), kind = made.value.args, made.value.name
            if left == own and own not in loads(right):
                made = Map(made.line, made.ranges, made.array, made.index, right if kind == "add" else op("neg", right), True)
            elif kind == "add" and right == own and own not in loads(left):
                made = Map(made.line, made.ranges, made.array, made.index, left, True)
        own_reads = [load for load in made.loads() if load.array == made.array and load.index != made.index]
        scatters = any(one.loads for one in made.index)
        if not own_reads:
            made.order = "up" if scatters else "free"
            self.emit(made)
            return
        for order in ("free", "up", "down"):
            if not scatters and all(self._safe(made, load, order) for load in own_reads):
                made.order = order
                self.emit(made)
                return
        shape = tuple(one.high for one in made.ranges)
        copy = self.array("t", shape, self.arrays[made.array].dtype)
        assert copy.view is not None
        places = tuple(variable(one.name) for one in made.ranges)
        self.emit(Map(made.line, made.ranges, copy.view.array, places, made.value))
        names = {one.name: variable(self.fresh("e")) for one in made.ranges}
        ranges = tuple(Range(str(names[one.name]), one.low, one.high) for one in made.ranges)
        index = tuple(one.with_names(names) for one in made.index)
        source = Load(copy.view.array, tuple(names[one.name] for one in made.ranges), self.arrays[made.array].kind)
        self.emit(Map(made.line, ranges, made.array, index, source, made.add, "up" if scatters else "free"))

    def _safe(self, made: Map, load: Load, order: str) -> bool:
        """Whether no element is written before it is read: in any order, going up, or going down."""
        if any(one.loads for one in load.index):
            return False
        rename = {one.name: f"{one.name}'" for one in made.ranges}
        rows = bounds((*self.ranges, *made.ranges), {}, "") + bounds(made.ranges, rename, "")
        for mine, other in zip(load.index, made.index):
            ahead, behind = row_of(mine, {}, ""), row_of(other, rename, "")
            rows.append({key: ahead.get(key, 0) - behind.get(key, 0) for key in {*ahead, *behind}})
            rows.append({key: behind.get(key, 0) - ahead.get(key, 0) for key in {*ahead, *behind}})
        if order == "free":
            return infeasible(rows)
        for level, one in enumerate(made.ranges):
            system = list(rows)
            for equal in made.ranges[:level]:
                system.append({equal.name: 1, f"{equal.name}'": -1})
                system.append({equal.name: -1, f"{equal.name}'": 1})
            sign = 1 if order == "up" else -1
            system.append({one.name: sign, f"{one.name}'": -sign, "": -1})
            if not infeasible(system):
                return False
        return True

    def materialise(self, value: Value, hint: str, *, dtype: str | None = None) -> Value:
        """A new array, or scalar, with this content."""
        if value.mask is not None:
            self.refuse("an array that was indexed by truth values can only be assigned to the same places")
        made = self.array(hint, value.shape, dtype or value.dtype)
        self.assign(made, value)
        return made

    def best(self, value: Value, axes: tuple[int, ...], greatest: bool) -> Value:
        """The greatest or least element along axes; its derivative belongs to the first of equals."""
        outer = [k for k in range(value.ndim) if k not in axes]
        ranges = tuple(Range(self.fresh("e"), number(0), value.shape[k]) for k in outer)
        inner = tuple(Range(self.fresh("r"), number(0), value.shape[k]) for k in axes)
        names = dict(zip((*outer, *axes), (*ranges, *inner)))
        if any(one.high.fixed and one.high.constant < 1 for one in inner):
            self.refuse("the greatest element of nothing is not defined")
        expr = value.element(tuple(variable(names[k].name) for k in range(value.ndim)))
        shape = tuple(value.shape[k] for k in outer)
        arrays = [self.array("arg", shape, "int64") for _ in axes]
        places = tuple(variable(one.name) for one in ranges)
        self.emit(ArgBest(self.line, ranges, inner, tuple(one.view.array for one in arrays if one.view), places, expr, greatest))

        def element(at: Index) -> Expr:
            index: dict[int, Affine] = dict(zip(outer, at))
            for k, array in zip(axes, arrays):
                load = array.element(at)
                assert isinstance(load, Load)
                index[k] = Affine(((load, 1),))
            return value.element(tuple(index[k] for k in range(value.ndim)))

        return self.materialise(Value(shape, element, value.dtype), "best")

    def total(self, value: Value, axes: tuple[int, ...]) -> Value:
        """The sum along axes."""
        value = reals(value)
        outer = [k for k in range(value.ndim) if k not in axes]
        shape = tuple(value.shape[k] for k in outer)
        made = self.array("sum", shape, value.dtype)
        assert made.view is not None
        self.assign(made, filled(shape, Num(0.0), value.dtype))
        ranges = tuple(Range(self.fresh("e"), number(0), size) for size in value.shape)
        places = tuple(variable(one.name) for one in ranges)
        index = tuple(places[k] for k in outer)
        self.emit(Map(self.line, ranges, made.view.array, index, real(value.element(places)), True))
        return made

    def integer(self, node: ast.expr) -> Affine:
        """An expression that has to be an integer."""
        return self.as_integer(self.evaluate(node), node)

    def as_integer(self, found: Any, node: ast.AST | None = None) -> Affine:
        """A value as an index; what is not linear in loop variables is kept in a scalar."""
        if isinstance(found, Affine):
            return found
        if isinstance(found, Value) and found.ndim == 0 and found.integral:
            expr = found.scalar
            if isinstance(expr, Idx):
                return expr.value
            if not isinstance(expr, Load) or found.view is None:
                held = self.materialise(found, "index", dtype="int64")
                expr = held.scalar
            assert isinstance(expr, Load)
            return Affine(((expr, 1),))
        return self.refuse("expected an integer of loop variables and sizes", node)

    # -- Filled in by the layers above --------------------------------------------------------------------------------------------------

    def evaluate(self, node: ast.expr) -> Any:
        """What an expression stands for."""
        raise NotImplementedError

    def call(self, node: ast.Call) -> Any:
        """What a call stands for."""
        raise NotImplementedError
