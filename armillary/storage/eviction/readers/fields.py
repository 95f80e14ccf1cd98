"""The fields of delimited text as numbers, without one Python object per row.

One Numba pass finds where the wanted fields of every row begin and end, and one more per column turns them into numbers, codes or
hashes. A field may be in double quotes, and then it may hold the delimiter but no line end. Blanks around it do not count, and blank
lines are skipped. Control characters are refused, because they mark a binary file that was taken for a table.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line
from armillary.kernels import loop

from ...idmap import mix
from .stream import LINE_BYTES

#: A delimiter that no byte equals: the whole line is one field.
NO_DELIMITER = 256
MOST_ID = 2**63 - 1
_NEWLINE = 10
_FINE, _COLUMNS, _LONG, _CONTROL, _OPEN = range(5)


@dataclass(frozen=True)
class Fields:
    """Rows of text with the places of some of their columns; the methods give a column's values or say which line is wrong."""

    path: Path
    text: np.ndarray
    #: The number of the first line of `text`.
    line: int
    #: int32[columns, rows]: where each field begins and ends in `text`.
    begin: np.ndarray
    end: np.ndarray

    def __len__(self) -> int:
        return self.begin.shape[1]

    def after(self, rows: int) -> Fields:
        """The same without the first `rows` rows."""
        return Fields(self.path, self.text, self.line, self.begin[:, rows:], self.end[:, rows:])

    def word(self, row: int, column: int) -> str:
        """The text of one field."""
        return self.text[self.begin[column, row] : self.end[column, row]].tobytes().decode("utf-8", "backslashreplace")

    def whole_numbers(self, column: int, label: str, most: int = MOST_ID) -> np.ndarray:
        """uint64[rows]: whole numbers from 0 to `most`."""
        values = np.empty(len(self), np.uint64)
        self._refuse(_whole_numbers(self.text, self.begin[column], self.end[column], most, values), column, label, _upto(most))
        return values

    def check_numbers(self, column: int, label: str) -> None:
        """An error unless every field is a finite decimal number."""
        self._refuse(_decimal(self.text, self.begin[column], self.end[column]), column, label, "a number")

    def codes(self, column: int, label: str, known: dict[str, int]) -> np.ndarray:
        """uint8[rows]: the code of each word, of at most eight letters; upper and lower case are the same."""
        codes = np.empty(len(self), np.uint8)
        words = np.array([int.from_bytes(word.encode(), "big") for word in known], np.uint64)
        bad = _codes(self.text, self.begin[column], self.end[column], words, np.array(list(known.values()), np.uint8), codes)
        self._refuse(bad, column, label, "one of " + ", ".join(known))
        return codes

    def hashes(self, columns: tuple[int, ...], seeds: tuple[np.uint64, np.uint64]) -> tuple[np.ndarray, np.ndarray]:
        """Two independent uint64[rows] hashes of the text of `columns`, taken together."""
        one, two = np.full(len(self), seeds[0]), np.full(len(self), seeds[1])
        for column in columns:
            _hash(self.text, self.begin[column], self.end[column], one, two)
        return one, two

    def check_filled(self, column: int, label: str) -> None:
        """An error where the field is empty."""
        empty = np.flatnonzero(self.begin[column] == self.end[column])
        self._refuse(int(empty[0]) if len(empty) else -1, column, label, "an id")

    def where(self, row: int) -> str:
        """The file and line of a row."""
        return f"{self.path}:{self.line + _newlines(self.text[: self.begin[:, row].min()])}"

    def _refuse(self, row: int, column: int, label: str, expected: str) -> None:
        if row >= 0:
            found = one_line(self.word(row, column), 60)
            raise InputError(f'column "{label}": found "{found}"; expected {expected}', where=self.where(row))


def _upto(most: int) -> str:
    power = (most + 1).bit_length() - 1
    if most + 1 == 1 << power and power > 20:
        return f"a whole number from 0 to 2^{power}-1"
    return f"a whole number from 0 to {most}"


def seeds() -> tuple[np.uint64, np.uint64]:
    """Fresh seeds for `Fields.hashes`; ids do not depend on them."""
    return np.uint64(secrets.randbits(64)), np.uint64(secrets.randbits(64))


def split(path: Path, text: np.ndarray, line: int, delimiter: int, columns: tuple[int, ...], *, exactly: int = 0) -> Fields:
    """The fields `columns` (from 0) of every row of `text`, whose last line is ended.

    Each row must have all of them, and if `exactly` is given, exactly that number of columns.
    """
    most = _newlines(text)
    wanted = np.full(max(columns) + 1, -1, np.int32)
    wanted[list(columns)] = np.arange(len(columns))
    begin, end = np.empty((len(columns), most), np.int32), np.empty((len(columns), most), np.int32)
    rows, fault, at, found = _split(text, delimiter, _stops(delimiter), wanted, exactly, begin, end)
    if fault != _FINE:
        raise InputError(_fault(fault, found, exactly, len(wanted)), where=f"{path}:{line + _newlines(text[:at])}")
    return Fields(path, text, line, begin[:, :rows], end[:, :rows])


def _stops(delimiter: int) -> np.ndarray:
    stops = np.arange(256) < 32
    stops[9] = False
    if delimiter < 256:
        stops[delimiter] = True
    return stops


def _newlines(text: np.ndarray) -> int:
    return int(np.count_nonzero(text == _NEWLINE))


def _fault(fault: int, found: int, exactly: int, at_least: int) -> str:
    if fault == _LONG:
        return f"found a line of more than {LINE_BYTES} bytes; expected shorter lines of text"
    if fault == _CONTROL:
        return f"found the byte 0x{found:02x}; expected text"
    if fault == _OPEN:
        return "found a \" that is not closed before a delimiter or the line's end; expected quotes around whole fields"
    expected = f"{exactly}" if exactly else f"at least {at_least}"
    return f"found {found} column{'s' if found != 1 else ''}; expected {expected}"


@loop
def _split(text, delimiter, stops, wanted, exactly, begin, end):
    # `text` ends in a line end; stops[byte] says whether a byte ends a plain field or must be looked at.
    # Returns the number of rows done, the fault, where it is, and the number that describes it.
    n = np.uint64(len(text))
    one = np.uint64(1)
    rows = 0
    at = np.uint64(0)
    while at < n:
        start = at
        column = 0
        blank = True
        while True:
            while text[at] == 32 or (text[at] == 9 and delimiter != 9):
                at += one
            first = at
            if text[at] == 34:
                at = first = at + one
                while text[at] != 34 or text[at + one] == 34:
                    if text[at] == 34:
                        at += one
                    elif text[at] < 32 and text[at] != 9:
                        return rows, _OPEN if text[at] == 10 else _CONTROL, np.int64(at), np.int64(text[at])
                    at += one
                last = at
                at += one
                while text[at] == 32 or (text[at] == 13 and text[at + one] == 10):
                    at += one
                if text[at] != 10 and text[at] != delimiter:
                    return rows, _OPEN, np.int64(at), 0
                blank = False
            else:
                while True:
                    while not stops[text[at]]:
                        at += one
                    if text[at] == delimiter or text[at] == 10:
                        break
                    if text[at] != 13 or text[at + one] != 10:
                        return rows, _CONTROL, np.int64(at), np.int64(text[at])
                    at += one
                last = at
                while last > first and (text[last - one] <= 32):
                    last -= one
                if last > first:
                    blank = False
            if column < len(wanted) and wanted[column] >= 0:
                begin[wanted[column], rows] = first
                end[wanted[column], rows] = last
            column += 1
            if text[at] == 10:
                break
            at += one
        if at - start > LINE_BYTES + 1:
            return rows, _LONG, np.int64(start), 0
        at += one
        if blank and column == 1:
            continue
        if (exactly and column != exactly) or column < len(wanted):
            return rows, _COLUMNS, np.int64(start), column
        rows += 1
    return rows, _FINE, 0, 0


@loop
def _whole_numbers(text, begin, end, most, values):
    # Returns the first row that is no whole number, or -1.
    limit = np.uint64(most)
    for row in range(len(begin)):
        value = np.uint64(0)
        if end[row] == begin[row] or end[row] - begin[row] > 19:
            return row
        for at in range(begin[row], end[row]):
            digit = np.uint64(text[at]) - np.uint64(48)
            if digit > np.uint64(9):
                return row
            value = value * np.uint64(10) + digit
        if value > limit:
            return row
        values[row] = value
    return -1


@loop
def _decimal(text, begin, end):
    # [+-] digits [. digits] [e [+-] digits], with at most two digits of exponent. Returns the first row that is no such number, or -1.
    for row in range(len(begin)):
        at = begin[row]
        if at < end[row] and (text[at] == 43 or text[at] == 45):
            at += 1
        digits = 0
        points = 0
        while at < end[row] and (48 <= text[at] <= 57 or (text[at] == 46 and points == 0)):
            if text[at] == 46:
                points = 1
            else:
                digits += 1
            at += 1
        if digits == 0:
            return row
        if at < end[row] and (text[at] == 69 or text[at] == 101):
            at += 1
            if at < end[row] and (text[at] == 43 or text[at] == 45):
                at += 1
            if not 1 <= end[row] - at <= 2:
                return row
            while at < end[row] and 48 <= text[at] <= 57:
                at += 1
        if at != end[row]:
            return row
    return -1


@loop
def _codes(text, begin, end, words, codes_of, codes):
    # A word is its bytes in big-endian order; letters are made lower case. Returns the first row whose word is not known, or -1.
    for row in range(len(begin)):
        if not 1 <= end[row] - begin[row] <= 8:
            return row
        word = np.uint64(0)
        for at in range(begin[row], end[row]):
            letter = np.uint64(text[at])
            if np.uint64(65) <= letter <= np.uint64(90):
                letter += np.uint64(32)
            word = (word << np.uint64(8)) | letter
        found = -1
        for k in range(len(words)):
            if words[k] == word:
                found = k
                break
        if found < 0:
            return row
        codes[row] = codes_of[found]
    return -1


@loop
def _hash(text, begin, end, one, two):
    # Eight bytes at a time go into two chains that share only the text. No byte of text is 0, so different texts are different words.
    for row in range(len(begin)):
        a, b = one[row], two[row]
        word = np.uint64(0)
        for k in range(end[row] - begin[row]):
            word = (word << np.uint64(8)) | np.uint64(text[begin[row] + k])
            if k & 7 == 7:
                a = mix(word, a)
                b = mix(~word, b)
                word = np.uint64(0)
        one[row] = mix(word, a)
        two[row] = mix(~word, b)
