"""A description as a table of instructions, which the checker, the simulator and SPIN's language share.

The generators' source is translated, statement by statement: assignments, `yield` of a step, `yield from` another generator (which is put
in its place), `if`, `while`, `break` and `return`. Everything between two steps on shared memory is local and takes no time.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .steps import MASK, Description

#: Local instructions: `to` and two operands, except that a jump has its target in `to`.
MOVE, PLUS, MINUS, TIMES, SLOT, JUMP, EQUAL, UNEQUAL, LESS, NOT_LESS = range(10)
#: Where a thread is let in, the end of its section, and the end of its release.
ENTER, LEAVE, DONE = 10, 11, 12
#: Steps; those from LOAD to UNTIL are on a word of memory.
REST, LOAD, STORE, XCHG, CAS, ADD, UNLIKE, UNTIL = range(13, 21)
STEPS = {"rest": REST, "load": LOAD, "store": STORE, "xchg": XCHG, "cas": CAS, "add": ADD, "unlike": UNLIKE, "until": UNTIL}
NAMES = {number: name for name, number in STEPS.items()}
PARAMETERS = {
    "rest": ("value",), "load": ("index",), "store": ("index", "value"), "xchg": ("index", "value"), "add": ("index", "value"),
    "cas": ("index", "expected", "value"), "unlike": ("index", "value"), "until": ("index", "value"),
}  # fmt: skip
_BRANCHES = {ast.Eq: EQUAL, ast.NotEq: UNEQUAL, ast.Lt: LESS, ast.GtE: NOT_LESS}
_OPPOSITE = {EQUAL: UNEQUAL, UNEQUAL: EQUAL, LESS: NOT_LESS, NOT_LESS: LESS}
_ARITHMETIC = {ast.Add: PLUS, ast.Sub: MINUS, ast.Mult: TIMES}
#: Operands from here on are constants rather than registers.
CONSTANT = 64
#: Columns of an instruction.
OPERATION, TO, BASE, INDEX, VALUE, EXPECTED, DOORWAY, SIZE = range(8)
#: Registers that every program has.
ID, LOCK, TOKEN = 0, 1, 2


@dataclass(frozen=True)
class Program:
    """Instructions with their memory and registers, for a number of threads and locks."""

    #: One row per instruction; for local ones INDEX and VALUE are the operands.
    code: npt.NDArray[np.int64]
    constants: npt.NDArray[np.int64]
    #: Where the release begins; the acquire begins at 0.
    release: int
    registers: tuple[str, ...]
    #: Registers from this one on hold nothing between an acquire and its release, nor between two episodes.
    passing: int
    regions: dict[str, tuple[int, int]]
    memory: npt.NDArray[np.int64]
    #: First values of each thread's registers.
    own: npt.NDArray[np.int64]
    threads: int
    locks: int
    fifo: bool

    def word(self, number: int) -> str:
        """The name of a word of memory, such as `depart[0]`."""
        for name, (first, size) in self.regions.items():
            if first <= number < first + size:
                return f"{name}[{number - first}]"
        return f"word {number}"

    def text(self, at: int) -> str:
        """An instruction in words."""
        row = self.code[at]
        operation = int(row[OPERATION])
        if operation not in NAMES:
            return {ENTER: "enter", LEAVE: "leave", DONE: "done"}.get(operation, "local")
        region = next((name for name, (first, _) in self.regions.items() if first == row[BASE]), "") if operation != REST else ""
        given = [f"{self._operand(int(row[column]))}" for column in (INDEX, EXPECTED, VALUE) if row[column] >= 0]
        return f"{NAMES[operation]}({', '.join([region, *given] if region else given)})"

    def _operand(self, operand: int) -> str:
        return str(self.constants[operand - CONSTANT]) if operand >= CONSTANT else self.registers[operand]


def program(described: Description, threads: int, locks: int = 1) -> Program:
    """Translates a description for so many threads and locks."""
    return _Translator(described, threads, locks).program()


class _Translator:
    def __init__(self, described: Description, threads: int, locks: int) -> None:
        self.described, self.threads, self.locks = described, threads, locks
        self.regions = described.regions(threads, locks)
        self.rows: list[list[int]] = []
        self.constants: dict[int, int] = {}
        self.registers: dict[str, int] = {"id": ID, "lock": LOCK, "token": TOKEN}
        for name in described.own:
            self._register(f"me.{name}")
        self.passing = len(self.registers)
        self.inlined = 0

    def program(self) -> Program:
        self._body(self.described.acquire, ["lock"], TOKEN)
        self._emit(ENTER)
        self._emit(LEAVE)
        release = len(self.rows) - 1
        self._body(self.described.release, ["lock", "token"], None)
        self._emit(DONE)
        if len(self.registers) > CONSTANT:
            raise TypeError(f"a description has {len(self.registers)} variables; expected at most {CONSTANT}")
        memory = np.zeros(sum(size for _, size in self.regions.values()), np.int64)
        for (name, index), first in self.described.start(self.threads, self.locks).items():
            memory[self.regions[name][0] + index] = first
        own = np.zeros((self.threads, len(self.registers)), np.int64)
        for number in range(self.threads):
            own[number, ID] = number
            for name, given in self.described.own.items():
                own[number, self.registers[f"me.{name}"]] = given(number)
        constants = np.array([value - (1 << 64) if value > MASK >> 1 else value for value in self.constants] or [0], np.int64)
        return Program(
            np.array(self.rows, np.int64), constants, release, tuple(self.registers), self.passing, self.regions, memory, own, self.threads,
            self.locks, self.described.fifo,
        )  # fmt: skip

    def _body(self, function: Callable[..., Any], arguments: list[str], result: int | None) -> None:
        """A generator in this place: its arguments are names of registers, and its result goes to one."""
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise TypeError(f"{function!r} is no function")
        names = {given.arg: self.registers[argument] for given, argument in zip(tree.args.args[1:], arguments)}
        self.inlined += 1
        body = _Body(self, names, inspect.getclosurevars(function), result, f"{self.inlined}")
        body.statements(tree.body)
        for row in body.returns:
            self.rows[row][TO] = len(self.rows)

    def _register(self, name: str) -> int:
        return self.registers.setdefault(name, len(self.registers))

    def _constant(self, value: int) -> int:
        return CONSTANT + self.constants.setdefault(value & MASK, len(self.constants))

    def _emit(
        self, operation: int, to: int = -1, base: int = -1, index: int = -1, value: int = -1, expected: int = -1, doorway: bool = False,
        size: int = 0,
    ) -> int:  # fmt: skip
        self.rows.append([operation, to, base, index, value, expected, int(doorway), size])
        return len(self.rows) - 1


class _Body:
    """The statements of one generator, with its own names."""

    def __init__(self, whole: _Translator, names: dict[str, int], seen: Any, result: int | None, mark: str) -> None:
        self.whole, self.names, self.seen, self.result, self.mark = whole, names, seen, result, mark
        self.returns: list[int] = []
        self.breaks: list[list[int]] = []

    def statements(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        whole = self.whole
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return
        if isinstance(node, ast.Expr):
            self._value(node.value, None)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            self._value(node.value, self._target(node.targets[0]))
        elif isinstance(node, ast.AugAssign):
            self._value(ast.BinOp(node.target, node.op, node.value), self._target(node.target))
        elif isinstance(node, ast.If):
            over = self._branch(node.test, unless=True)
            self.statements(node.body)
            if node.orelse:
                end = whole._emit(JUMP)
                whole.rows[over][TO] = len(whole.rows)
                self.statements(node.orelse)
                over = end
            whole.rows[over][TO] = len(whole.rows)
        elif isinstance(node, ast.While):
            top = len(whole.rows)
            forever = isinstance(node.test, ast.Constant)
            self.breaks.append([] if forever else [self._branch(node.test, unless=True)])
            self.statements(node.body)
            whole._emit(JUMP, top)
            for row in self.breaks.pop():
                whole.rows[row][TO] = len(whole.rows)
        elif isinstance(node, ast.Break):
            self.breaks[-1].append(whole._emit(JUMP))
        elif isinstance(node, ast.Return):
            if node.value is not None and self.result is not None:
                self._value(node.value, self.result)
            self.returns.append(whole._emit(JUMP))
        else:
            raise TypeError(f"line {node.lineno}: a description cannot have {type(node).__name__}")

    def _branch(self, test: ast.expr, unless: bool) -> int:
        if not isinstance(test, ast.Compare) or len(test.ops) != 1 or type(test.ops[0]) not in _BRANCHES:
            raise TypeError("a condition compares two values by ==, !=, < or >=")
        operation = _BRANCHES[type(test.ops[0])]
        left, right = self._operand(test.left), self._operand(test.comparators[0])
        return self.whole._emit(_OPPOSITE[operation] if unless else operation, index=left, value=right)

    def _target(self, node: ast.expr) -> int:
        if isinstance(node, ast.Name):
            if node.id not in self.names:
                self.names[node.id] = self.whole._register(f"{node.id}.{self.mark}")
            return self.names[node.id]
        if isinstance(node, ast.Attribute) and f"me.{node.attr}" in self.whole.registers:
            return self.whole.registers[f"me.{node.attr}"]
        raise TypeError(f"found {ast.unparse(node)}; expected a name, or an attribute of `me` that `own` declares")

    def _value(self, node: ast.expr, to: int | None) -> None:
        """Computes a value into a register; None where nobody needs it."""
        whole = self.whole
        if isinstance(node, ast.Yield) and isinstance(node.value, ast.Call):
            self._step(node.value, -1 if to is None else to)
        elif isinstance(node, ast.YieldFrom) and isinstance(node.value, ast.Call):
            function = self._named(ast.unparse(node.value.func))
            given = [self.names[ast.unparse(argument)] for argument in node.value.args[1:]]
            whole._body(function, [next(name for name, number in whole.registers.items() if number == one) for one in given], to)
        elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and to is not None:
            whole._emit(_ARITHMETIC[type(node.op)], to, index=self._operand(node.left), value=self._operand(node.right))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "slot" and to is not None:
            whole._emit(SLOT, to, index=self._operand(node.args[0]), value=self._operand(node.args[1]))
        elif to is not None:
            whole._emit(MOVE, to, index=self._operand(node))

    def _operand(self, node: ast.expr) -> int:
        whole = self.whole
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return whole._constant(node.value)
        if isinstance(node, ast.Attribute):
            if node.attr == "id":
                return ID
            if node.attr in whole.described.constants:
                return whole._constant(whole.described.constants[node.attr])
            return self._target(node)
        if isinstance(node, ast.Name):
            return self.names[node.id] if node.id in self.names else whole._constant(self._named(node.id))
        between = whole._register(f"between{len(whole.rows)}.{self.mark}")
        self._value(node, between)
        return between

    def _named(self, name: str) -> Any:
        for where in (self.seen.nonlocals, self.seen.globals):
            if name in where:
                return where[name]
        raise TypeError(f'a description uses "{name}", which nothing gives a value')

    def _step(self, call: ast.Call, to: int) -> None:
        kind = ast.unparse(call.func)
        if kind not in STEPS:
            raise TypeError(f"found a yield of {kind}; expected one of {', '.join(STEPS)}")
        arguments = list(call.args)
        base = size = 0
        if kind != "rest":
            region = arguments.pop(0)
            if not isinstance(region, ast.Constant) or region.value not in self.whole.regions:
                raise TypeError(f"found the region {ast.unparse(region)}; expected one of {', '.join(self.whole.regions)}")
            base, size = self.whole.regions[str(region.value)]
            if not arguments:
                arguments = [ast.Constant(0)]
        given = dict(zip(PARAMETERS[kind], (self._operand(argument) for argument in arguments)))
        doorway = any(keyword.arg == "doorway" for keyword in call.keywords)
        self.whole._emit(STEPS[kind], to, base, **given, doorway=doorway, size=size)
