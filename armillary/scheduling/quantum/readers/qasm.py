"""OpenQASM 2, and the lines of OpenQASM 3 that map to it, as a `Circuit`.

Registers are laid out one after the other. Gates are broadcast over registers; definitions are inlined, and gates on three and more qubits
expanded, after the number of operations that this gives was counted. Only `qelib1.inc` and `stdgates.inc` may be included, and neither is
opened: their gates are known. Classical control flow is refused.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line
from armillary.files import read_text
from armillary.scheduling.quantum.circuits.circuit import MOST_GATES, MOST_QUBITS, Builder, Circuit

from .standard_gates import DEFINITIONS, GATES

MOST_BYTES = 64 << 20
#: How deep expressions and definitions may nest.
DEEPEST = 100
_TOKEN = re.compile(
    r"(?P<space>[ \t\r]+|//[^\n]*)|(?P<line>\n)|(?P<block>/\*.*?\*/)|(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_π][A-Za-z0-9_]*)|(?P<text>\"[^\"\n]*\")|(?P<mark>->|\*\*|==|[;,(){}\[\]=+\-*/^<>!&|:@.%~#$'?\\])", re.DOTALL,
)  # fmt: skip
_UNSUPPORTED = frozenset({"if", "else", "for", "while", "switch", "def", "extern", "box", "delay", "duration", "stretch", "cal", "defcal",
                          "ctrl", "negctrl", "inv", "pow", "gphase", "input", "output", "let", "return"})  # fmt: skip
_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "sin": math.sin, "cos": math.cos, "tan": math.tan, "exp": math.exp, "ln": math.log, "log": math.log, "sqrt": math.sqrt,
}  # fmt: skip
_PI = {"pi": math.pi, "π": math.pi, "tau": 2 * math.pi, "euler": math.e}
_PLAIN = {"phase": "p", "cphase": "cp"}
#: An expression is kept as a function of the definition's angles.
Expression = Callable[[dict[str, float]], float]


def read_qasm(text: str, name: str = "circuit") -> Circuit:
    """The circuit in a text; `name` is what messages call it."""
    return _Parser(text, name).circuit()


def read_qasm_file(path: str | Path) -> Circuit:
    """The circuit in a file."""
    return read_qasm(read_text(path, limit=MOST_BYTES), str(path))


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int


@dataclass(frozen=True)
class _Use:
    """A gate inside a definition: name, angles as functions of the definition's, and places among its qubits."""

    name: str
    angles: tuple[Expression, ...]
    qubits: tuple[int, ...]


@dataclass(frozen=True)
class _Definition:
    angles: tuple[str, ...]
    qubits: int
    #: None for an opaque gate, which is kept as it is.
    body: tuple[_Use, ...] | None
    #: The number of operations that one use gives.
    size: int


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._tokens = _tokens(text, name)
        self._next: _Token | None = None
        self._line = 1
        #: Register to (first qubit or bit, size).
        self.qubits: dict[str, tuple[int, int]] = {}
        self.bits: dict[str, tuple[int, int]] = {}
        self.definitions: dict[str, _Definition] = {}
        self.included = False
        self.version = 2
        self.operations: list[tuple[str, tuple[float, ...], tuple[int, ...]]] = []
        #: Operations after definitions are inlined, and qubits in all.
        self.count = self._total = 0

    # Tokens

    def _peek(self) -> _Token | None:
        if self._next is None:
            self._next = next(self._tokens, None)
        return self._next

    def _take(self) -> _Token:
        token = self._peek()
        if token is None:
            raise self._error("found the end of the text; expected more")
        self._next, self._line = None, token.line
        return token

    def _accept(self, text: str) -> bool:
        token = self._peek()
        if token is not None and token.text == text and token.kind != "text":
            self._take()
            return True
        return False

    def _expect(self, text: str) -> None:
        token = self._take()
        if token.text != text:
            raise self._error(f'found "{one_line(token.text, 30)}"; expected "{text}"')

    def _name(self, what: str = "a name") -> str:
        token = self._take()
        if token.kind != "name":
            raise self._error(f'found "{one_line(token.text, 30)}"; expected {what}')
        return token.text

    def _whole(self) -> int:
        token = self._take()
        if token.kind != "number" or not token.text.isdecimal() or len(token.text) > 9:
            raise self._error(f'found "{one_line(token.text, 30)}"; expected a whole number below 10⁹')
        return int(token.text)

    def _error(self, message: str, line: int = 0) -> InputError:
        return InputError(message, where=f"{self.name}:{line or self._line}")

    # Statements

    def circuit(self) -> Circuit:
        """Reads everything."""
        while self._peek() is not None:
            self._statement()
        total = self._total
        if not total:
            raise InputError("found no qubits; expected OpenQASM with qreg or qubit", where=self.name)
        made = Builder(self.name.rpartition("/")[2], total)
        for name, angles, qubits in self.operations:
            if name in ("barrier", "measure", "reset") or (name in GATES and name not in self.definitions):
                made.add(name, *qubits, angles=angles)
            else:
                self._inline(made, name, angles, qubits, 0)
        return made.done()

    def _statement(self) -> None:
        token = self._take()
        word = token.text
        if word == ";":
            return
        if token.kind != "name":
            raise self._error(f'found "{one_line(word, 30)}"; expected a statement of OpenQASM')
        if word in _UNSUPPORTED:
            raise self._error(f'found "{word}"; classical control flow and modifiers are not supported')
        reads = {"OPENQASM": self._header, "include": self._include, "gate": self._define, "opaque": self._opaque, "measure": self._measure,
                 "barrier": self._barrier, "reset": self._reset}  # fmt: skip
        if word in reads:
            reads[word]()
        elif word in ("qreg", "creg", "qubit", "bit"):
            self._register(word)
        elif word in self.bits:
            self._assigned(word)
        else:
            self._call(word)

    def _header(self) -> None:
        version = self._take().text
        if version.partition(".")[0] not in ("2", "3"):
            raise self._error(f"found OPENQASM {one_line(version, 20)}; expected 2.0 or 3.0")
        self.version = int(version[0])
        self._expect(";")

    def _include(self) -> None:
        token = self._take()
        if token.text not in ('"qelib1.inc"', '"stdgates.inc"'):
            raise self._error(f'found include {one_line(token.text, 60)}; expected "qelib1.inc" or "stdgates.inc"')
        self.included = True
        self._expect(";")

    def _register(self, word: str) -> None:
        new = word in ("qubit", "bit")
        size = 1
        if new and self._accept("["):
            size = self._whole()
            self._expect("]")
        name = self._name("the name of a register")
        if not new:
            self._expect("[")
            size = self._whole()
            self._expect("]")
        if name in self.qubits or name in self.bits:
            raise self._error(f'found "{name}" again; expected each register once')
        table = self.qubits if word in ("qreg", "qubit") else self.bits
        first = sum(many for _, many in table.values())
        if size < 1 or first + size > (MOST_QUBITS if table is self.qubits else MOST_GATES):
            raise self._error(f"found a register of {size:,}; expected at least 1, and at most {MOST_QUBITS:,} qubits in all")
        table[name] = (first, size)
        self._total += size if table is self.qubits else 0
        if word == "bit" and self._accept("="):
            self._expect("measure")
            self._measured(self._qubits(), (first, size))
        self._expect(";")

    def _qubits(self) -> list[int]:
        """One operand: a qubit, or all qubits of a register."""
        return self._operand(self.qubits, "a qubit")

    def _operand(self, table: dict[str, tuple[int, int]], what: str) -> list[int]:
        name = self._name(what)
        if name not in table:
            raise self._error(f'found "{one_line(name, 30)}"; expected {what} of a register that was declared')
        first, size = table[name]
        if not self._accept("["):
            return list(range(first, first + size))
        at = self._whole()
        self._expect("]")
        if at >= size:
            raise self._error(f"found {name}[{at}]; expected an index from 0 to {size - 1}")
        return [first + at]

    def _measure(self) -> None:
        qubits = self._qubits()
        if self._accept("->"):
            bits = self._operand(self.bits, "a bit")
            if len(bits) != len(qubits):
                raise self._error(f"found {len(qubits)} qubits measured into {len(bits)} bits; expected equally many")
        elif self.version == 2:
            raise self._error('found a measurement without "->"; expected the bit that it goes to')
        self._expect(";")
        self._measured(qubits)

    def _assigned(self, word: str) -> None:
        first, size = self.bits[word]
        if self._accept("["):
            at = self._whole()
            self._expect("]")
            if at >= size:
                raise self._error(f"found {word}[{at}]; expected an index from 0 to {size - 1}")
            first, size = first + at, 1
        self._expect("=")
        self._expect("measure")
        self._measured(self._qubits(), (first, size))
        self._expect(";")

    def _measured(self, qubits: list[int], bits: tuple[int, int] | None = None) -> None:
        if bits is not None and len(qubits) != bits[1]:
            raise self._error(f"found {len(qubits)} qubits measured into {bits[1]} bits; expected equally many")
        self._counted(len(qubits))
        self.operations += [("measure", (), (q,)) for q in qubits]

    def _reset(self) -> None:
        qubits = self._qubits()
        self._expect(";")
        self._counted(len(qubits))
        self.operations += [("reset", (), (q,)) for q in qubits]

    def _barrier(self) -> None:
        qubits: list[int] = []
        if not self._accept(";"):
            qubits += self._qubits()
            while self._accept(","):
                qubits += self._qubits()
            self._expect(";")
        else:
            qubits = list(range(self._total))
        # A barrier over q qubits stores q numbers, so it counts as so many operations.
        self._counted(max(1, len(qubits)))
        unique = tuple(dict.fromkeys(qubits))
        if unique:
            self.operations.append(("barrier", (), unique))

    def _call(self, word: str) -> None:
        line = self._line
        angles = tuple(self._finite(one({}), line) for one in self._angles(()))
        operands = [self._qubits()]
        while self._accept(","):
            operands.append(self._qubits())
        self._expect(";")
        name = _PLAIN.get(word, word)
        expected = self._shape(name, line)
        if (len(angles), len(operands)) != expected:
            found = f"found {word} with {len(angles)} angles and {len(operands)} qubits"
            raise self._error(f"{found}; expected {expected[0]} and {expected[1]}", line)
        many = max(len(one) for one in operands)
        if any(len(one) not in (1, many) for one in operands):
            raise self._error(f"found registers of {' and '.join(str(len(one)) for one in operands)} qubits; expected equal sizes", line)
        self._counted(many * self._size(name))
        for i in range(many):
            qubits = tuple(one[i if len(one) > 1 else 0] for one in operands)
            if len(set(qubits)) < len(qubits):
                raise self._error(f"found {word} on one qubit twice; expected different qubits", line)
            self.operations.append((name, angles, qubits))

    # Definitions

    def _define(self) -> None:
        name = self._name("the name of a gate")
        if name in self.definitions or name in ("U", "CX") or (self.included and (name in GATES or name in _standard())):
            raise self._error(f'found gate "{name}" again; expected each gate once')
        parameters = self._parameters()
        qubits = [self._name("the name of a qubit")]
        while self._accept(","):
            qubits.append(self._name("the name of a qubit"))
        if len(set(qubits)) < len(qubits) or len(set(parameters)) < len(parameters) or len(qubits) > 64:
            raise self._error(f'gate "{name}": expected at most 64 different names')
        self._expect("{")
        body: list[_Use] = []
        while not self._accept("}"):
            use = self._body(name, parameters, qubits)
            if use is not None:
                body.append(use)
        size = sum(len(use.qubits) if use.name == "barrier" else self._size(use.name) for use in body)
        # A small text can double its size with every definition.
        self.definitions[name] = _Definition(parameters, len(qubits), tuple(body), min(size, MOST_GATES + 1))

    def _body(self, name: str, parameters: tuple[str, ...], qubits: list[str]) -> _Use | None:
        word, line = self._name("a gate"), self._line
        if word in _UNSUPPORTED or word in ("measure", "reset"):
            raise self._error(f'found "{word}" in gate "{name}"; expected gates and barriers')
        if word == name:
            raise self._error(f'gate "{name}" uses itself; recursive definitions are not supported')
        angles = () if word == "barrier" else self._angles(parameters)
        places = []
        while True:
            operand = self._name("a qubit of the definition")
            if operand not in qubits:
                raise self._error(f'found "{one_line(operand, 30)}"; expected one of {", ".join(qubits[:8])}')
            places.append(qubits.index(operand))
            if not self._accept(","):
                break
        self._expect(";")
        word = _PLAIN.get(word, word)
        if word == "barrier":
            return _Use("barrier", (), tuple(dict.fromkeys(places)))
        if (len(angles), len(places)) != (shape := self._shape(word, line)):
            raise self._error(f"found {word} with {len(angles)} angles and {len(places)} qubits; expected {shape[0]} and {shape[1]}", line)
        if len(set(places)) < len(places):
            raise self._error(f"found {word} on one qubit twice; expected different qubits", line)
        return _Use(word, tuple(angles), tuple(places))

    def _opaque(self) -> None:
        name = self._name("the name of a gate")
        parameters = self._parameters()
        many = 1
        self._name("the name of a qubit")
        while self._accept(","):
            self._name("the name of a qubit")
            many += 1
        self._expect(";")
        if many > 2:
            raise self._error(f'opaque gate "{name}" on {many} qubits; expected one or two, since it cannot be expanded')
        self.definitions[name] = _Definition(parameters, many, None, 1)

    def _parameters(self) -> tuple[str, ...]:
        found: list[str] = []
        if self._accept("("):
            while not self._accept(")"):
                found.append(self._name("the name of an angle"))
                if not self._accept(","):
                    self._expect(")")
                    break
        return tuple(found)

    def _of(self, name: str) -> _Definition:
        return self.definitions.get(name) or _standard()[name]

    def _shape(self, name: str, line: int) -> tuple[int, int]:
        if name in self.definitions:
            return len(self.definitions[name].angles), self.definitions[name].qubits
        if name in GATES and (self.included or name in ("U", "CX")):
            return GATES[name]
        if self.included and name in _standard():
            return len(_standard()[name].angles), _standard()[name].qubits
        more = ' (is include "qelib1.inc" missing?)' if name in GATES or name in _standard() else ""
        raise self._error(f'found the gate "{one_line(name, 30)}"; expected one that is defined{more}', line)

    def _size(self, name: str) -> int:
        return 1 if name in GATES and name not in self.definitions else self._of(name).size

    def _counted(self, more: int) -> None:
        self.count += more
        if self.count > MOST_GATES:
            raise self._error(f"found at least {self.count:,} operations after definitions are inlined; expected at most {MOST_GATES:,}")

    def _inline(self, made: Any, name: str, angles: Sequence[float], qubits: Sequence[int], deep: int) -> None:
        definition = self._of(name)
        if definition.body is None:
            made.add(name, *qubits, angles=angles)
            return
        if deep > DEEPEST:
            raise InputError(f"found definitions nested more than {DEEPEST} deep", where=self.name)
        given = dict(zip(definition.angles, angles))
        for use in definition.body:
            on = [qubits[place] for place in use.qubits]
            values = [self._finite(one(given), self._line) for one in use.angles]
            if use.name == "barrier" or (use.name in GATES and use.name not in self.definitions):
                made.add(use.name, *on, angles=values)
            else:
                self._inline(made, use.name, values, on, deep + 1)

    # Angles

    def _finite(self, value: float, line: int) -> float:
        if not isinstance(value, float) or not math.isfinite(value):
            raise self._error("found an angle that is not a finite number", line)
        return value

    def _angles(self, known: tuple[str, ...]) -> tuple[Expression, ...]:
        found: list[Expression] = []
        if self._accept("("):
            while not self._accept(")"):
                found.append(self._sum(known, 0))
                if not self._accept(","):
                    self._expect(")")
                    break
        return tuple(found)

    def _sum(self, known: tuple[str, ...], deep: int) -> Expression:
        if deep > DEEPEST:
            raise self._error(f"found an expression nested more than {DEEPEST} deep")
        found = [(1, self._product(known, deep))]
        while True:
            if self._accept("+"):
                found.append((1, self._product(known, deep)))
            elif self._accept("-"):
                found.append((-1, self._product(known, deep)))
            else:
                break
        return found[0][1] if len(found) == 1 else lambda given: float(sum(sign * one(given) for sign, one in found))

    def _product(self, known: tuple[str, ...], deep: int) -> Expression:
        found = [(True, self._signed(known, deep))]
        while True:
            if self._accept("*"):
                found.append((True, self._signed(known, deep)))
            elif self._accept("/"):
                found.append((False, self._signed(known, deep)))
            else:
                break

        def value(given: dict[str, float]) -> float:
            total = found[0][1](given)
            for times, one in found[1:]:
                by = one(given)
                total = total * by if times else (total / by if by else math.nan)
            return total

        return found[0][1] if len(found) == 1 else value

    def _signed(self, known: tuple[str, ...], deep: int) -> Expression:
        if self._accept("-"):
            inner = self._signed(known, self._deeper(deep))
            return lambda given: -inner(given)
        if self._accept("+"):
            return self._signed(known, self._deeper(deep))
        low = self._atom(known, deep)
        if self._accept("^") or self._accept("**"):
            high = self._signed(known, self._deeper(deep))
            return lambda given: _power(low(given), high(given))
        return low

    def _deeper(self, deep: int) -> int:
        if deep >= DEEPEST:
            raise self._error(f"found an expression nested more than {DEEPEST} deep")
        return deep + 1

    def _atom(self, known: tuple[str, ...], deep: int) -> Expression:
        token = self._take()
        if token.kind == "number":
            number = float(token.text)
            return lambda given: number
        if token.text == "(":
            inner = self._sum(known, deep + 1)
            self._expect(")")
            return inner
        if token.text in known:
            return lambda given: given[token.text]
        if token.text in _PI:
            return lambda given: _PI[token.text]
        if token.text in _FUNCTIONS:
            self._expect("(")
            argument = self._sum(known, deep + 1)
            self._expect(")")
            return lambda given: _applied(_FUNCTIONS[token.text], argument(given))
        raise self._error(f'found "{one_line(token.text, 30)}"; expected a number, pi, an angle of the gate, or a function')


def _power(low: float, high: float) -> float:
    try:
        found = low**high
    except (OverflowError, ZeroDivisionError):
        return math.nan
    return found if isinstance(found, float) else math.nan


def _applied(function: Callable[[float], float], value: float) -> float:
    try:
        return function(value)
    except (ValueError, OverflowError):
        return math.nan


def _tokens(text: str, name: str) -> Iterator[_Token]:
    at, line = 0, 1
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise InputError(f'found "{one_line(text[at : at + 20], 40)}"; expected OpenQASM', where=f"{name}:{line}")
        at, kind = found.end(), found.lastgroup or ""
        if kind not in ("space", "line", "block"):
            yield _Token(kind, found.group(), line)
        line += found.group().count("\n")


@functools.lru_cache(maxsize=1)
def _standard() -> dict[str, _Definition]:
    """The definitions of the gates on three and more qubits."""
    parser = _StandardParser(DEFINITIONS, "qelib1.inc")
    while parser._peek() is not None:
        parser._statement()
    return parser.definitions


class _StandardParser(_Parser):
    """Reads definitions that rest on the plain gates and on each other."""

    def _define(self) -> None:
        self.included = False
        super()._define()

    def _shape(self, name: str, line: int) -> tuple[int, int]:
        if name in self.definitions:
            return len(self.definitions[name].angles), self.definitions[name].qubits
        return GATES[name]

    def _of(self, name: str) -> _Definition:
        return self.definitions[name]
