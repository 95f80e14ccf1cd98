"""Writes a program and its gradient as the text of one Python function over arrays, which Numba compiles.

The text is made from the program's regions, never from the user's text. Names of arrays carry a prefix: `v_` for a value, `d_` for an
adjoint, `k_` for a tape, `p_` for the place on it, `b_` for a buffer, `s_` for a snapshot; loop variables carry `i_`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..forwarding.candidates import Candidate, Forwarding
from ..forwarding.needed import needed
from ..forwarding.planning import Model, Plan
from ..program.affine import Affine, Range
from ..program.expressions import Expr, Load, Op, flops, loads, walk
from ..program.fusion import COSTLY
from ..program.regions import Branch, Dot, Loop, Map, Operand, Program, Statement, While, inside
from ..reversal.adjoint import SEED, Reversed, operand_needs
from .forward import Forward, runs
from .printing import Resolve, Text, names_in, unit_stride
from .recording import Recording

#: Operations beyond which the adjoint of an element is computed once, rather than once for each group of targets.
HEAVY = 60


@dataclass(frozen=True)
class Signature:
    """What a generated function takes after its arguments, and what it returns: `own` and `adjoints` are arrays that the caller makes."""

    own: tuple[str, ...]
    adjoints: tuple[str, ...] = ()
    #: The adjoints of scalars, which are returned.
    scalars: tuple[str, ...] = ()


def forward_text(program: Program) -> tuple[str, Signature]:
    """A function that runs the program in place; it returns the output if that is a scalar."""
    writer = Forward(program)
    writer.scalars()
    writer.plain(program.root, None)
    writer.text.line("return 0.0" if program.arrays[program.output].shape else f"return v_{program.output}")
    signature = Signature(writer.own)
    names = [f"v_{name}" for name in (*program.arguments, *signature.own)]
    return f"def forward({', '.join(names)}):\n" + "\n".join(writer.text.lines) + "\n", signature


def gradient_text(
    program: Program, reversed_: Reversed, forwarding: Forwarding, model: Model, plan: Plan, wrt: Sequence[str], *, value: bool
) -> tuple[str, Signature]:
    """A function that runs the program and its reverse; adjoints are added to.

    With `value`, `result` gets the output, which is returned if it is a scalar. Without it, the forward run computes only what the reverse
    run needs. The adjoints of those of `wrt` that are scalars are returned.
    """
    writer = Writer(program, reversed_, forwarding, model, plan)
    text = writer.text
    writer.scalars()
    active = sorted(reversed_.activity.adjoints)
    for name in active:
        if not program.arrays[name].shape:
            text.line(f"d_{name} = 0.0")
    writer.prepare()
    writer.record_root(None if value else needed(program, reversed_, forwarding, model, plan))
    shape = program.arrays[program.output].shape
    text.line(f"value = v_{program.output}" if value and not shape else "value = 0.0")
    if shape:
        if value:
            text.line(f"restore(v_{program.output}.reshape({math.prod(shape)}), 0, result)")
        text.line(f"add(d_{program.output}, seed)")
    else:
        text.line(f"d_{program.output} += seed")
    writer.reverse_root()
    scalars = tuple(name for name in wrt if not program.arrays[name].shape)
    text.line(f"return value, {''.join(f'd_{name}, ' for name in scalars)}")
    signature = Signature(writer.own, tuple(name for name in active if program.arrays[name].shape), scalars)
    names = [f"v_{name}" for name in (*program.arguments, *signature.own)] + [f"d_{name}" for name in signature.adjoints]
    return f"def gradient({''.join(f'{name}, ' for name in names)}result, seed, meter):\n" + "\n".join(text.lines) + "\n", signature


class Writer(Recording):
    """Writes the reverse run."""

    def reverse_root(self) -> None:
        """The reverse run."""
        root = self.program.root
        done: set[int] = set()
        for number, one in self.stored.items():
            if one.body is root:
                self.text.line(f"p_{number} -= {self._length(one)}")
        for run in self._reverse_runs(root):
            parts = [part for part, statement in enumerate(root) if any(statement is one for one in run)]
            for part in reversed(parts):
                self._take(part, early=False)
                if root[part].serial in self.live:
                    self._available(root, root[part], done)
            self._reversed_run([one for one in run if one.serial in self.live])
            for part in reversed(parts):
                self._free(part)

    def reverse(self, body: list[Statement]) -> None:
        """Reverses the statements of a sequence, last first."""
        for number, one in self.stored.items():
            if one.body is body:
                self.text.line(f"p_{number} -= {self._length(one)}")
        done: set[int] = set()
        for run in self._reverse_runs([one for one in body if one.serial in self.live]):
            for statement in reversed(run):
                self._available(body, statement, done)
            self._reversed_run(run)

    def _reverse_runs(self, body: list[Statement]) -> list[list[Statement]]:
        """The statements that share a nest in reverse, last first; parts that have memory of their own stand alone."""
        found: list[list[Statement]] = []
        for run in runs(body):
            single = [[one] for one in run]
            busy = body is self.program.root and any(
                self._sizes(part) or self._buffers(part, end=0) or self._buffers(part, end=1) for part, one in enumerate(body) if one in run
            )
            several = any(isinstance(one, Map) and len(self._split(one)) > 1 for one in run if one.serial in self.reversed.adjoints)
            found += single if busy or several else [list(run)]
        return found[::-1]

    def _reversed_run(self, run: list[Statement]) -> None:
        if len(run) == 1:
            self._reversed(run[0])
        elif run:
            self._adjoints([one for one in run if isinstance(one, Map)])

    def _available(self, body: list[Statement], statement: Statement, done: set[int]) -> None:
        """Computes again what a statement needs and nothing has computed yet in this pass."""
        for one in inside(statement):
            for load in self.reversed.needs.get(one.serial, ()):
                number = self.forwarding.source[one.serial, load]
                if number is not None and number in self.plan.recomputed and self.forwarding.candidates[number].body is body:
                    self._again(number, done)

    def _again(self, number: int, done: set[int]) -> None:
        if number in done:
            return
        done.add(number)
        candidate = self.forwarding.candidates[number]
        for other in candidate.takes:
            if other in self.plan.recomputed:
                self._again(other, done)
        assert candidate.slice is not None
        for place in candidate.slice:
            self._slice_of(candidate, candidate.body[place])

    def _slice_of(self, candidate: Candidate, statement: Statement) -> None:
        """Runs a statement again, into the buffer of a candidate."""
        rename = f"{candidate.array.name}=b_{candidate.number}"
        if isinstance(statement, Loop):
            with self.text.block(self.head(statement.range, self.resolve(statement, candidate))):
                for one in statement.body:
                    self._slice_of(candidate, one)
        elif isinstance(statement, Branch):

            def part(body: list[Statement]) -> None:
                for one in body:
                    self._slice_of(candidate, one)

            self._branch(statement, self.resolve(statement, candidate), part)
        else:
            self.simple(statement, self.resolve(statement, candidate), rename)

    def resolve(self, statement: Statement, again: Candidate | None = None) -> Resolve:
        """How the reads of a statement are written in the reverse run; `again` is a candidate that is being computed again."""

        def found(load: Load) -> str:
            if load == SEED:
                return "t"
            if again is not None and load.array == again.array.name:
                return self.at(f"b_{again.number}", load.index, found)
            known = self.forwarding.source if again is None else self.forwarding.again
            number = None if load.after else known.get((statement.serial, load))
            if number is None:
                return self.at(f"v_{load.array}", load.index, found)
            candidate = self.forwarding.candidates[number]
            if number in self.plan.stored:
                said = self._taped(candidate, load.index, found)
                return f"({said} != 0)" if candidate.array.kind == "b" else said
            return self.at(f"b_{number}", load.index, found)

        return found

    def _reversed(self, statement: Statement) -> None:
        resolve = self.resolve(statement)
        if isinstance(statement, Loop):
            if statement.serial in self.options:
                self._replayed(statement)
            else:
                with self.text.block(self.head(statement.range, resolve, backwards=True)):
                    self.reverse(statement.body)
        elif isinstance(statement, While):
            self.text.line(f"y_{statement.serial} -= 1")
            with self.text.block(f"for {self.fresh('z')} in range(w_{statement.serial}[y_{statement.serial}]):"):
                self.reverse(statement.body)
        elif isinstance(statement, Branch):
            self._branch(statement, resolve, self.reverse)
        elif statement.serial in self.reversed.activity.clearing:
            self._clear(statement, resolve)
        elif isinstance(statement, Map):
            self._adjoint(statement, resolve)
        elif isinstance(statement, Dot):
            self._adjoint_dot(statement, resolve)

    def _replayed(self, loop: Loop) -> None:
        """Reverses a loop segment by segment, a few passes at a time, which are recorded from the segment's snapshot."""
        replay, option = self.options[loop.serial]
        every, at_once, keep = option.every, option.at_once, replay.keep
        count, g, begin, end, first, last, z = (self.fresh(hint) for hint in "cgzzzzz")
        text = self.text
        text.line(f"r_{loop.serial} -= 1")
        self._restore(loop, replay.inputs, "r")
        text.line(f"{count} = {self.count(loop.range, self.resolve(loop))}")
        with text.block(f"for {g} in range(({count} + {every - 1}) // {every} - 1, -1, -1):"):
            text.line(f"n_{loop.serial} -= 1")
            text.line(f"{begin} = {g} * {every}")
            text.line(f"{end} = min({count}, {begin} + {every})")
            with text.block(f"for {first} in range({begin} + ({end} - 1 - {begin}) // {at_once} * {at_once}, {begin} - 1, -{at_once}):"):
                text.line(f"{last} = min({end}, {first} + {at_once})")
                with text.block(f"if {last} < {count}:"):
                    self._restore(loop, replay.state, "n")
                    if at_once < every:
                        with text.block(f"for {z} in range({begin}, {first}):"):
                            self._pass(loop, z)
                            self.plain(loop.body, keep)
                    with text.block(f"for {z} in range({first}, {last}):"):
                        self._pass(loop, z)
                        self.record(loop.body, keep)
                with text.block(f"for {z} in range({last} - 1, {first} - 1, -1):"):
                    self._pass(loop, z)
                    self.reverse(loop.body)

    def _clear(self, statement: Statement, resolve: Resolve) -> None:
        if isinstance(statement, Dot):
            self.text.line(f"d_{statement.out}[:] = 0.0")
            return
        assert isinstance(statement, Map)
        with self.nest(self.ordered(statement.ranges, [(statement.index, 1)]), resolve):
            self.text.line(f"{self.at(f'd_{statement.array}', statement.index, resolve)} = 0.0")

    def _adjoints(self, run: list[Map]) -> None:
        """The adjoints of assignments that share a nest, in one nest, last first."""
        accesses = [one for statement in run for one in self._accesses(statement)]
        ranges = self.ordered(run[0].ranges, accesses)
        sums: list[tuple[str, str]] = []
        with self.nest(ranges[:-1], self.in_place):
            held = self.text
            self.text = inner = Text(depth=held.depth + 1)
            for statement in reversed(run):
                resolve = self.resolve(statement)
                own = self.at(f"d_{statement.array}", statement.index, resolve)
                if statement.serial in self.reversed.activity.clearing:
                    inner.line(f"{own} = 0.0")
                else:
                    sums += self._elements(
                        statement, list(self.reversed.adjoints[statement.serial].parts), ranges[-1], own, resolve, last=True
                    )
            self.text = held
            for name, _ in sums:
                held.line(f"{name} = 0.0")
            held.line(self.head(ranges[-1], self.in_place))
            held.lines += inner.lines
            for name, target in sums:
                held.line(f"{target} += {name}")

    def _accesses(self, statement: Map) -> list[tuple[tuple[Affine, ...], int]]:
        """What the adjoint of an assignment touches, with weights for the order of loops."""
        parts = self.reversed.adjoints[statement.serial].parts if statement.serial in self.reversed.adjoints else ()
        reads = [load for load in loads(statement.value) if load.index]
        found = [(load.index, 2) for load, _ in parts if load.index] + [(load.index, 1) for load in reads] + [(statement.index, 2)]
        return [one for one in found if one[0]]

    def _split(self, statement: Map) -> list[list[tuple[Load, Expr]]]:
        """The groups of an adjoint that stand in loops of their own."""
        parts = self.reversed.adjoints[statement.serial].parts
        if statement.order != "free" or not statement.ranges:
            return [list(parts)]
        return self._groups(statement, parts, self.ordered(statement.ranges, self._accesses(statement))[-1])

    def _adjoint(self, statement: Map, resolve: Resolve) -> None:
        """The adjoint of an assignment: one nest of loops, or one inner loop for each group of targets that do not meet."""
        own = self.at(f"d_{statement.array}", statement.index, resolve)
        ranges = list(statement.ranges)
        if statement.order == "free":
            ranges = self.ordered(statement.ranges, self._accesses(statement))
        groups = self._split(statement)
        inner = ranges[-1] if ranges else None
        with self.nest(ranges[:-1], resolve, backwards=statement.order == "up"):
            for number, group in enumerate(groups):
                self._group(statement, group, inner, own, resolve, last=number == len(groups) - 1)

    def _groups(self, statement: Map, parts: Sequence[tuple[Load, Expr]], inner: Range) -> list[list[tuple[Load, Expr]]]:
        """Parts that add to different places of one array stand in different loops, so that each can be vectorised."""
        groups: list[list[tuple[Load, Expr]]] = []
        same = [one for one in parts if one[0].array == statement.array and one[0].index == statement.index]
        heavy = sum(flops(part) for _, part in parts) > HEAVY or any(
            isinstance(node, Op) and node.name in COSTLY for _, part in parts for node in walk(part)
        )
        # Only what walks through memory in steps of one is vectorised.
        strided = any(load.index and load.index[-1].coefficient(inner.name) == 0 for load, _ in parts if inner.name in names_in(load))
        if heavy or strided:
            return [[one for one in parts if one not in same] + same]
        for one in parts:
            if one in same:
                continue
            for group in groups:
                if all(other.array != one[0].array for other, _ in group):
                    group.append(one)
                    break
            else:
                groups.append([one])
        return [*groups[:-1], [*groups[-1], *same]] if groups else [same]

    def _group(
        self, statement: Map, group: list[tuple[Load, Expr]], inner: Range | None, own: str, resolve: Resolve, *, last: bool
    ) -> None:
        held = self.text
        quick = self._sum_of_products(statement, group, inner, resolve) if inner is not None and statement.add else None
        if quick is not None:
            held.line(quick)
            return
        self.text = body = Text(depth=held.depth + (inner is not None))
        sums = self._elements(statement, group, inner, own, resolve, last=last)
        self.text = held
        for name, _ in sums:
            held.line(f"{name} = 0.0")
        if inner is not None:
            held.line(self.head(inner, resolve, backwards=statement.order == "up"))
        held.lines += body.lines
        for name, target in sums:
            held.line(f"{target} += {name}")

    def _sum_of_products(self, statement: Map, group: list[tuple[Load, Expr]], inner: Range, resolve: Resolve) -> str | None:
        """What a long inner loop adds to one element, as an inner product of the adjoint with a row; None where it is something else."""
        if len(group) != 1 or statement.order != "free" or not unit_stride(statement.index, inner):
            return None
        target, part = group[0]
        if inner.name in names_in(target) or not target.index or target.array == statement.array:
            return None
        if not (isinstance(part, Op) and part.name == "mul" and part.args[0] == SEED and isinstance(part.args[1], Load)):
            return None
        load = part.args[1]
        base = resolve(load).partition("[")[0]
        if not unit_stride(load.index, inner) or not base.startswith(("v_", "b_")) or not self._long(statement, inner):
            return None
        if {self.arrays[one].dtype for one in (statement.array, load.array)} != {"float64"}:
            return None
        rows = [self._row(f"d_{statement.array}", statement.index, inner, resolve), self._row(base, load.index, inner, resolve)]
        return f"{self.at(f'd_{target.array}', target.index, resolve)} += np.dot({rows[0]}, {rows[1]})"

    def _elements(
        self, statement: Map, group: list[tuple[Load, Expr]], inner: Range | None, own: str, resolve: Resolve, *, last: bool
    ) -> list[tuple[str, str]]:
        """The adjoint of one element; returns (name, target) of what the inner loop adds up for a target that it does not move along."""
        text = self.text
        sums: list[tuple[str, str]] = []
        text.line(f"t = {own}")
        if last and not statement.add:
            text.line(f"{own} = 0.0")
        values = self.expressions([part for _, part in group], resolve)
        for (load, _), value in zip(group, values):
            target = self.at(f"d_{load.array}", load.index, resolve)
            if inner is not None and inner.name not in names_in(load) and load.array != statement.array and load.index:
                sums.append((self.fresh("u"), target))
                target = sums[-1][0]
            text.line(f"{target} += {value}")
        return sums

    def _only(self, statement: Dot, operand: Operand) -> bool:
        """Whether nothing else adds to the adjoint of an operand, so that it can be set rather than added to."""
        if operand.prefix or statement.a.array == statement.b.array or not any(one is statement for one in self.program.root):
            return False
        if operand.array == self.program.output:
            return False
        activity = self.reversed.activity
        for one in self.program.statements():
            if one is not statement and one.serial in activity.critical and any(access.array == operand.array for access in one.reads()):
                return False
        return True

    def _adjoint_dot(self, statement: Dot, resolve: Resolve) -> None:
        """d_a += d_out bᵀ and d_b += aᵀ d_out, in the layout in which each operand is stored."""
        needs = operand_needs(statement, self.reversed.activity)
        seed = f"d_{statement.out}"
        a, b = statement.a, statement.b
        varied = self.reversed.activity.varied[statement.serial]
        for operand, place in ((a, 1), (b, 0)):
            if operand.array not in varied:
                continue
            assert place in needs
            values = self._source(statement, place, resolve)
            target = self.stored_operand(operand, resolve, f"d_{operand.array}")
            left, only = operand is a, self._only(statement, operand)
            if not a.columns or not b.columns:  # A matrix and a vector.
                if operand.columns:
                    pair = (seed, values) if left else (values, seed)
                    pair = pair[::-1] if operand.transposed else pair
                    self.text.line(f"{'set' if only else 'add'}_outer({target}, {pair[0]}, {pair[1]})")
                else:
                    product = f"{values}, {seed}" if left else f"{values}.T, {seed}"
                    self.text.line(f"np.dot({product}, {target})" if only else f"add({target}, np.dot({product}))")
            else:
                if left:
                    product = f"{values}, {seed}.T" if operand.transposed else f"{seed}, {values}.T"
                else:
                    product = f"{seed}.T, {values}" if operand.transposed else f"{values}.T, {seed}"
                self.text.line(f"np.dot({product}, {target})" if only else f"add({target}, np.dot({product}))")
        self.text.line(f"{seed}[:] = 0.0")
