"""Lines of Python, and how expressions and loops are written in them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..program.affine import Affine, Range
from ..program.expressions import Expr, Idx, Load, Num, Op, children, walk
from ..program.regions import Program

SYMBOL = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
          "and": "and", "or": "or", "floordiv": "//", "mod": "%"}  # fmt: skip
CALL = {"sqrt": "math.sqrt", "exp": "exp", "log": "math.log", "sin": "math.sin", "cos": "math.cos", "tan": "math.tan",
        "tanh": "math.tanh", "sinh": "math.sinh", "cosh": "math.cosh", "arctan2": "math.atan2", "abs": "abs", "float": "float"}  # fmt: skip
#: Operations whose result is float32 if all operands are.
_KEEPS_SINGLE = frozenset({"add", "sub", "mul", "div", "neg", "maximum", "minimum", "exp", "sqrt"})
#: How a read is written: the name of the array that holds it, and its index there.
Resolve = Callable[[Load], str]


@dataclass
class Text:
    """Lines of Python."""

    lines: list[str] = field(default_factory=list)
    depth: int = 1

    def line(self, text: str) -> None:
        """Adds a line."""
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Adds a block; an empty one passes."""
        self.line(head)
        before = len(self.lines)
        self.depth += 1
        yield
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1


class Printer:
    """Writes expressions and loops for one program."""

    def __init__(self, program: Program) -> None:
        self.program, self.arrays = program, program.arrays
        self.text = Text()
        self._fresh = 0

    def fresh(self, hint: str) -> str:
        """A name that is not in use."""
        self._fresh += 1
        return f"{hint}{self._fresh}"

    def affine(self, index: Affine, resolve: Resolve) -> str:
        """An integer expression."""
        said = ""
        for atom, times in index.terms:
            name = f"i_{atom}" if isinstance(atom, str) else f"int({resolve(atom)})"
            term = name if abs(times) == 1 else f"{abs(times)}*{name}"
            said += (" - " if times < 0 else " + " if said else "") + term
        if not said:
            return str(index.constant)
        return said.strip() if not index.constant else f"{said.strip()} {'+' if index.constant > 0 else '-'} {abs(index.constant)}"

    def at(self, name: str, index: Sequence[Affine], resolve: Resolve) -> str:
        """An element."""
        return f"{name}[{', '.join(self.affine(one, resolve) for one in index)}]" if index else name

    def in_place(self, load: Load) -> str:
        """A read of memory as it is."""
        return self.at(f"v_{load.array}", load.index, self.in_place)

    def expressions(self, wanted: Sequence[Expr], resolve: Resolve, known: dict[Expr, str] | None = None) -> list[str]:
        """Writes what several expressions share, and returns the text of each."""
        uses: Counter[Expr] = Counter()
        order: dict[Expr, None] = {}
        for expr in wanted:
            uses[expr] += 1
            for node in walk(expr):
                if node not in order:
                    order.setdefault(node)
                    uses.update(children(node))
        names: dict[Expr, str] = dict(known or {})
        for node in order:
            if node in names:
                continue
            said = self._node(node, names, resolve)
            trivial = isinstance(node, Num | Idx) or (isinstance(node, Load) and not node.index)
            if uses[node] > 1 and not trivial:
                name = self.fresh("q")
                self.text.line(f"{name} = {said}")
                said = name
            names[node] = said
        return [names[expr] for expr in wanted]

    def _node(self, node: Expr, names: dict[Expr, str], resolve: Resolve) -> str:
        if isinstance(node, Num):
            if node.kind == "b":
                return str(bool(node.value))
            return (
                repr(float(node.value))
                if math.isfinite(node.value)
                else f"np.{'nan' if math.isnan(node.value) else 'inf'}"
                if node.value > 0 or math.isnan(node.value)
                else "-np.inf"
            )
        if isinstance(node, Idx):
            return f"({self.affine(node.value, resolve)})"
        if isinstance(node, Load):
            return resolve(node)
        args = [names[child] for child in node.args]
        match node.name:
            case "neg":
                return f"(-{args[0]})"
            case "not":
                return f"(not {args[0]})"
            case "where":
                return f"({args[1]} if {args[0]} else {args[2]})"
            case "maximum":
                return f"({args[0]} if {args[0]} >= {args[1]} else {args[1]})"
            case "minimum":
                return f"({args[0]} if {args[0]} <= {args[1]} else {args[1]})"
        if node.name in SYMBOL:
            return f"({args[0]} {SYMBOL[node.name]} {args[1]})"
        if node.name == "exp" and self._is_single(node.args[0]):
            return f"exp32({args[0]})"
        return f"{CALL[node.name]}({', '.join(args)})"

    def _is_single(self, expr: Expr) -> bool:
        """Whether compiled code computes an expression in float32: a constant, a whole number or a local scalar may make it float64."""
        return all(
            node.index and self.arrays[node.array].dtype == "float32"
            if isinstance(node, Load)
            else isinstance(node, Op) and node.name in _KEEPS_SINGLE
            for node in walk(expr)
        )

    def head(self, range_: Range, resolve: Resolve, *, backwards: bool = False) -> str:
        """The head of a loop."""
        low, high, step = self.affine(range_.low, resolve), self.affine(range_.high, resolve), range_.step
        name = f"i_{range_.name}"
        if not backwards:
            return f"for {name} in range({low}, {high}):" if step == 1 else f"for {name} in range({low}, {high}, {step}):"
        if abs(step) == 1:
            return f"for {name} in range({high} - {step}, {low} - {step}, {-step}):"
        count = self.count(range_, resolve)
        return f"for {name} in range({low} + ({count} - 1) * {step}, {low} - {1 if step > 0 else -1}, {-step}):"

    def count(self, range_: Range, resolve: Resolve) -> str:
        """The number of passes of a loop, not below 0."""
        low, high, step = self.affine(range_.low, resolve), self.affine(range_.high, resolve), range_.step
        if range_.low.fixed and range_.high.fixed:
            return str(len(range(range_.low.constant, range_.high.constant, step)))
        if step > 0:
            return f"max(0, (({high}) - ({low}) + {step - 1}) // {step})"
        return f"max(0, (({low}) - ({high}) + {-step - 1}) // {-step})"

    @contextmanager
    def nest(self, ranges: Iterable[Range], resolve: Resolve, *, backwards: bool = False) -> Iterator[None]:
        """Loops inside each other."""
        before = self.text.depth
        for one in ranges:
            self.text.line(self.head(one, resolve, backwards=backwards))
            self.text.depth += 1
        here = len(self.text.lines)
        yield
        if len(self.text.lines) == here:
            self.text.line("pass")
        self.text.depth = before

    def ordered(self, ranges: tuple[Range, ...], accesses: Sequence[tuple[tuple[Affine, ...], int]]) -> list[Range]:
        """The ranges with the one innermost that walks through memory in steps of one; `accesses` are (index, weight)."""
        if len(ranges) < 2:
            return list(ranges)
        # A range stays inside those that its bounds name.
        bound = {name for one in ranges for end in (one.low, one.high) for name in end.names()}

        def score(one: Range) -> tuple[float, int]:
            total = 0.0
            for index, weight in accesses:
                inside_ = [k for k, at in enumerate(index) if one.name in set(at.names())]
                if inside_ == [len(index) - 1] and abs(index[-1].coefficient(one.name)) == 1:
                    total += weight
                elif inside_:
                    total -= weight
            return total, ranges.index(one)

        free = [one for one in ranges if one.name not in bound]
        inner = max(free, key=score) if free else ranges[-1]
        return [one for one in ranges if one is not inner] + [inner]


def nothing(kind: str) -> str:
    """A scalar of a kind, to begin with."""
    return {"f": "0.0", "b": "False"}.get(kind, "0")


def unit_stride(index: Sequence[Affine], inner: Range) -> bool:
    """Whether an index walks through memory in steps of one along a range, which no other part of it mentions."""
    others = {name for one in index[:-1] for name in one.names()}
    return bool(index) and index[-1].coefficient(inner.name) == 1 and not index[-1].loads and inner.name not in others


def names_in(load: Load) -> set[str]:
    """The loop variables in the index of a read."""
    return {name for one in load.index for name in one.names()}
