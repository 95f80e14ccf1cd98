"""Reads MPS files, fixed and free, line by line, and names the line and column of whatever is wrong.

Fields are divided by blanks in both forms; names with blanks inside, which the fixed form allows, are recognised by their columns where a
line has too many fields. Integer variables are relaxed and free rows beyond the objective dropped, both with a note. A negative upper
bound on a variable whose lower bound nobody gave makes that −∞, as most solvers do.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import open_file

from ..program.problem import LinearProgram, from_entries

#: No line of a sane file is longer, and a longer one would only fill memory.
_LONGEST = 10_000
_FIELD = re.compile(r"\S+")
#: Where the fields of the fixed form begin and end, counted from 0.
_FIXED = ((1, 3), (4, 12), (14, 22), (24, 36), (39, 47), (49, 61))
_KINDS = ("N", "L", "G", "E")
_WITH_VALUE = ("UP", "LO", "FX", "UI", "LI")
_WITHOUT = ("FR", "MI", "PL", "BV")
_SECTIONS = ("NAME", "OBJSENSE", "OBJSENS", "OBJNAME", "ROWS", "COLUMNS", "RHS", "RANGES", "BOUNDS", "ENDATA")


@dataclass(frozen=True)
class _Word:
    text: str
    #: Counted from 1.
    column: int


@dataclass
class _Model:
    name: str = ""
    sense: int = 1
    objective: str | None = None
    kinds: dict[str, str] = field(default_factory=dict)
    free: set[str] = field(default_factory=set)
    #: Constrained rows and columns, to their numbers.
    rows: dict[str, int] = field(default_factory=dict)
    columns: dict[str, int] = field(default_factory=dict)
    cost: dict[int, float] = field(default_factory=dict)
    entries: tuple[list[int], list[int], list[float]] = field(default_factory=lambda: ([], [], []))
    right: dict[str, float] = field(default_factory=dict)
    ranges: dict[str, float] = field(default_factory=dict)
    lower: dict[int, float] = field(default_factory=dict)
    upper: dict[int, float] = field(default_factory=dict)
    integers: int = 0
    in_integers: bool = False
    constant: float = 0.0
    repeated: int = 0
    seen: set[tuple[int, int]] = field(default_factory=set)
    sets: dict[str, str] = field(default_factory=dict)


def read_mps(path: str | os.PathLike[str]) -> LinearProgram:
    """Reads the program in an MPS file (`.mps`, `.mps.gz`)."""
    with open_file(path) as file:
        return _Reader(str(path)).read(file)


class _Reader:
    def __init__(self, where: str) -> None:
        self._where = where
        self._line = 0
        self._model = _Model()
        self._section = ""

    def read(self, file: Any) -> LinearProgram:
        for words, raw in self._lines(file):
            if not raw[0].isspace() and self._heading(words):
                if self._section == "ENDATA":
                    return self._finish()
                continue
            self._entry(words, raw)
        raise InputError("found the end of the file; expected ENDATA before it", where=f"{self._where}:{self._line}")

    def _lines(self, file: Any) -> Iterator[tuple[list[_Word], str]]:
        while raw := file.readline(_LONGEST + 1):
            self._line += 1
            if len(raw) > _LONGEST:
                raise self._wrong(f"found a line of more than {_LONGEST} characters; expected a shorter one", 1)
            text = raw.decode("latin-1").rstrip("\r\n").expandtabs()
            if text.startswith("*") or not text.strip():
                continue
            yield [_Word(found[0], found.start() + 1) for found in _FIELD.finditer(text)], text

    def _wrong(self, message: str, column: int) -> InputError:
        return InputError(message, where=f"{self._where}:{self._line}:{column}")

    # Sections

    def _heading(self, words: list[_Word]) -> bool:
        """Begins a section and returns true where this line is the heading of one."""
        name = words[0].text.upper()
        if name not in _SECTIONS:
            if self._section in ("", "NAME") or len(words) == 1:
                said = one_line(words[0].text, 40)
                raise self._wrong(f'found the section "{said}"; expected one of {", ".join(_SECTIONS)}', words[0].column)
            # The free form may begin its lines in the first column.
            return False
        self._section = "OBJSENSE" if name == "OBJSENS" else name
        rest = words[1:]
        if self._section == "NAME":
            self._model.name = rest[0].text if rest else ""
        elif self._section == "OBJSENSE" and rest:
            self._sense(rest)
        elif self._section == "OBJNAME" and rest:
            self._model.objective = rest[0].text
        return True

    def _entry(self, words: list[_Word], raw: str) -> None:
        section = self._section
        if section == "OBJSENSE":
            self._sense(words)
        elif section == "OBJNAME":
            self._model.objective = words[0].text
        elif section == "ROWS":
            self._row(self._fields(words, raw, 2, 2))
        elif section == "COLUMNS":
            self._column(self._fields(words, raw, 3, 5))
        elif section == "RHS":
            self._right(self._fields(words, raw, 2, 5), self._model.right, "RHS")
        elif section == "RANGES":
            self._right(self._fields(words, raw, 2, 5), self._model.ranges, "RANGES")
        elif section == "BOUNDS":
            self._bound(self._fields(words, raw, 2, 4))
        else:
            raise self._wrong(f"found an entry; expected one of the sections {', '.join(_SECTIONS)} first", words[0].column)

    def _fields(self, words: list[_Word], raw: str, least: int, most: int) -> list[_Word]:
        if least <= len(words) <= most:
            return words
        by_columns = [_Word(raw[a:b].strip(), a + 1) for a, b in _FIXED if raw[a:b].strip()]
        if least <= len(by_columns) <= most and len(words) > most:
            return by_columns
        raise self._wrong(f"found {len(words)} fields; expected {least}{'' if least == most else f' to {most}'}", words[-1].column)

    def _sense(self, words: list[_Word]) -> None:
        name = words[0].text.upper()
        if name not in ("MAX", "MAXIMIZE", "MAXIMISE", "MIN", "MINIMIZE", "MINIMISE"):
            raise self._wrong(f'found "{one_line(words[0].text, 40)}"; expected MAX or MIN', words[0].column)
        self._model.sense = -1 if name.startswith("MAX") else 1

    def _row(self, words: list[_Word]) -> None:
        kind, name = words[0].text.upper(), words[1].text
        model = self._model
        if kind not in _KINDS:
            raise self._wrong(f'found the kind of row "{one_line(words[0].text, 40)}"; expected {", ".join(_KINDS)}', words[0].column)
        if name in model.kinds:
            raise self._wrong(f'found row "{one_line(name, 40)}" again; expected each once', words[1].column)
        model.kinds[name] = kind
        if kind != "N":
            model.rows[name] = len(model.rows)
        elif model.objective is None:
            model.objective = name
        elif name != model.objective:
            model.free.add(name)

    def _column(self, words: list[_Word]) -> None:
        model = self._model
        if len(words) >= 3 and words[1].text.strip("'").upper() == "MARKER":
            mark = words[2].text.strip("'").upper()
            if mark not in ("INTORG", "INTEND"):
                raise self._wrong(f'found the marker "{one_line(words[2].text, 40)}"; expected INTORG or INTEND', words[2].column)
            model.in_integers = mark == "INTORG"
            return
        if len(words) % 2 == 0:
            raise self._wrong(f"found {len(words)} fields; expected a column and one or two rows with their numbers", words[-1].column)
        name = words[0].text
        column = model.columns.get(name)
        if column is None:
            column = model.columns[name] = len(model.columns)
            model.integers += model.in_integers
        elif column != len(model.columns) - 1:
            raise self._wrong(f'found column "{one_line(name, 40)}" again after others; expected its entries together', words[0].column)
        for row, value in zip(words[1::2], words[2::2]):
            self._coefficient(row, column, self._number(value))

    def _coefficient(self, row: _Word, column: int, value: float) -> None:
        model = self._model
        if row.text == model.objective:
            model.repeated += column in model.cost
            model.cost[column] = model.cost.get(column, 0.0) + value
            return
        if row.text in model.free:
            return
        number = model.rows.get(row.text)
        if number is None:
            raise self._wrong(f'found row "{one_line(row.text, 40)}"; expected one of the ROWS section', row.column)
        if (number, column) in model.seen:
            model.repeated += 1
        model.seen.add((number, column))
        rows, columns, values = model.entries
        rows.append(number)
        columns.append(column)
        values.append(value)

    def _number(self, word: _Word) -> float:
        try:
            value = float(word.text.replace("D", "E").replace("d", "e"))
        except ValueError:
            raise self._wrong(f'found "{one_line(word.text, 40)}"; expected a number', word.column) from None
        if math.isnan(value):
            raise self._wrong("found NaN; expected a number", word.column)
        return value

    def _set(self, section: str, word: _Word | None) -> bool:
        """Says whether this is the first set of the section, which is the one that counts."""
        name = "" if word is None else word.text
        return self._model.sets.setdefault(section, name) == name

    def _right(self, words: list[_Word], into: dict[str, float], section: str) -> None:
        model = self._model
        named = len(words) % 2 == 1
        taken = self._set(section, words[0] if named else None)
        pairs = words[1:] if named else words
        for row, value in zip(pairs[::2], pairs[1::2]):
            number = self._number(value)
            if row.text not in model.kinds:
                raise self._wrong(f'found row "{one_line(row.text, 40)}"; expected one of the ROWS section', row.column)
            if not taken or row.text in model.free:
                continue
            if math.isinf(number):
                raise self._wrong("found an infinite number; expected a finite one", value.column)
            if row.text == model.objective:
                if section == "RANGES":
                    raise self._wrong("found a range of the objective; expected ranges of constraints", row.column)
                # The constant stands on the right-hand side, so that it counts negative.
                model.constant = -number
            else:
                into[row.text] = number

    def _bound(self, words: list[_Word]) -> None:
        model = self._model
        kind = words[0].text.upper()
        if kind not in (*_WITH_VALUE, *_WITHOUT):
            known = ", ".join((*_WITH_VALUE, *_WITHOUT))
            raise self._wrong(f'found the kind of bound "{one_line(words[0].text, 40)}"; expected {known}', words[0].column)
        needs = kind in _WITH_VALUE
        # The fields are type, set, column and number; the set may be missing, and so may the number where the kind needs none.
        rest = words[1:]
        if needs:
            named = len(rest) == 3
            if len(rest) < 2:
                raise self._wrong(f"found {len(words)} fields; expected a column and a number for {kind}", words[-1].column)
        else:
            named = len(rest) == 3 or (len(rest) == 2 and rest[1].text in model.columns)
        taken = self._set("BOUNDS", rest[0] if named else None)
        target = rest[1] if named else rest[0]
        column = model.columns.get(target.text)
        if column is None:
            raise self._wrong(f'found column "{one_line(target.text, 40)}"; expected one of the COLUMNS section', target.column)
        if taken:
            self._limit(kind, column, self._number(rest[-1]) if needs else 0.0)

    def _limit(self, kind: str, column: int, value: float) -> None:
        model = self._model
        if kind in ("UP", "UI"):
            model.upper[column] = value
            if value < 0 and column not in model.lower:
                model.lower[column] = -math.inf
        elif kind in ("LO", "LI"):
            model.lower[column] = value
        elif kind == "FX":
            model.lower[column] = model.upper[column] = value
        elif kind == "FR":
            model.lower[column], model.upper[column] = -math.inf, math.inf
        elif kind == "MI":
            model.lower[column] = -math.inf
        elif kind == "PL":
            model.upper[column] = math.inf
        else:
            model.lower[column], model.upper[column] = 0.0, 1.0
        model.integers += kind in ("UI", "LI", "BV")

    # The program

    def _finish(self) -> LinearProgram:
        model = self._model
        if model.objective is None or model.kinds.get(model.objective) != "N":
            said = "no objective (a row of kind N)" if model.objective is None else f'no row N "{one_line(model.objective, 40)}"'
            raise InputError(f"found {said}; expected one", where=self._where)
        m, n = len(model.rows), len(model.columns)
        low, high = np.empty(m), np.empty(m)
        for name, i in model.rows.items():
            low[i], high[i] = _sides(model.kinds[name], model.right.get(name, 0.0), model.ranges.get(name))
        lower, upper = np.zeros(n), np.full(n, np.inf)
        lower[list(model.lower)], upper[list(model.upper)] = list(model.lower.values()), list(model.upper.values())
        cost = np.zeros(n)
        cost[list(model.cost)] = list(model.cost.values())
        try:
            return LinearProgram(
                model.sense * cost, from_entries(*model.entries, shape=(m, n)), low, high, lower, upper, model.sense * model.constant,
                model.sense, model.name, tuple(model.rows), tuple(model.columns), _notes(model),
            )  # fmt: skip
        except InputError as error:
            raise InputError(error.message, where=self._where) from error


def _sides(kind: str, right: float, span: float | None) -> tuple[float, float]:
    if span is None:
        return {"L": (-np.inf, right), "G": (right, np.inf), "E": (right, right)}[kind]
    if kind == "E":
        return (right, right + span) if span >= 0 else (right + span, right)
    return (right - abs(span), right) if kind == "L" else (right, right + abs(span))


def _notes(model: _Model) -> tuple[str, ...]:
    found = [
        (model.integers, "integer variables, relaxed"),
        (len(model.free), "free rows beyond the objective, dropped"),
        (model.repeated, "repeated entries, added up"),
    ]
    return tuple(f"{count} {what}" for count, what in found if count)
