"""The words of a protocol file, each with its line and column."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from armillary.errors import InputError, one_line

#: Bytes that a protocol file may have, brackets that may stand inside each other, and characters of a name.
MOST_BYTES, MOST_NESTING, MOST_NAME = 1 << 20, 64, 60
_TOKEN = re.compile(r"(?P<space>[ \t\r\f]+|//[^\n]*)|(?P<line>\n)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<mark>\|>|\[\]|[(){},;])")


@dataclass(frozen=True)
class Place:
    """Where something stands in a protocol file; `end` is the offset behind it."""

    line: int
    column: int
    end: int = 0


@dataclass(frozen=True)
class Token:
    """A name, a mark, or the end of the file (an empty text)."""

    text: str
    place: Place

    @property
    def is_name(self) -> bool:
        """Whether the token is a word and not a mark."""
        return self.text[:1].isalpha() or self.text[:1] == "_"


def tokens(text: str, file: str) -> Iterator[Token]:
    """All words and marks of `text`, then one empty token at its end."""
    at, line, begin = 0, 1, 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise InputError(f'found "{one_line(text[at], 10)}"; expected a name or a mark', where=f"{file}:{line}:{at - begin + 1}")
        if found.lastgroup == "line":
            line, begin = line + 1, found.end()
        elif found.lastgroup != "space":
            if found.end() - at > MOST_NAME:
                raise InputError(f"found a name of {found.end() - at} characters; expected at most {MOST_NAME}", where=f"{file}:{line}")
            yield Token(found.group(), Place(line, at - begin + 1, found.end()))
        at = found.end()
    yield Token("", Place(line, at - begin + 1, at))
