"""The conditions under which an entry of the knowledge applies: comparisons of fragment fields with numbers, joined by and, or and not.

    condition = either { "or" either };  either = one { "and" one };  one = "not" one | "(" condition ")" | name compare number

A name is a fragment and a field, such as `POSIX.sizes.read_small_share`. A field that the log does not have makes its comparison false.
Nothing is evaluated by Python.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from armillary.errors import InputError, one_line

from ..diagnosis.finding import Fragment

_TOKEN = re.compile(r"\s*(?:(<=|>=|==|!=|<|>)|(\(|\))|(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)|([A-Za-z_][\w.\-]*))")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
#: Characters of a condition, and how deep it may be nested.
MOST_CHARACTERS, MOST_DEPTH = 500, 20


@dataclass(frozen=True)
class Condition:
    """A condition that was read: `holds(fragments)` says whether it does; `names` are the fields that it asks for."""

    text: str
    test: Callable[[Mapping[str, Fragment]], bool]
    names: tuple[str, ...]

    def holds(self, fragments: Mapping[str, Fragment]) -> bool:
        """Whether the condition is true of these fragments."""
        return self.test(fragments)


def condition(text: str, where: str) -> Condition:
    """The condition in a text, or an InputError that says what is wrong with it."""
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"found a condition of {len(text)} characters; expected at most {MOST_CHARACTERS}", where=where)
    tokens = list(_tokens(text, where))
    reader = _Reader(tokens, where)
    test = reader.either(0)
    if reader.left:
        raise InputError(f'found "{one_line(reader.left[0], 40)}" in the condition; expected its end', where=where)
    return Condition(text, test, tuple(reader.names))


def _tokens(text: str, where: str) -> Iterator[str]:
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise InputError(
                f'found "{one_line(text[at : at + 20].strip(), 40)}" in the condition; expected a name or a number', where=where
            )
        yield match[0].strip()
        at = match.end()


class _Reader:
    def __init__(self, tokens: list[str], where: str) -> None:
        self.left, self.where = tokens, where
        self.names: list[str] = []

    def _next(self, expected: str) -> str:
        if not self.left:
            raise InputError(f"found the end of the condition; expected {expected}", where=self.where)
        return self.left.pop(0)

    def either(self, depth: int) -> Callable[[Mapping[str, Fragment]], bool]:
        """`a or b or c`."""
        if depth > MOST_DEPTH:
            raise InputError(f"found a condition nested more than {MOST_DEPTH} deep", where=self.where)
        parts = [self._both(depth)]
        while self.left and self.left[0] == "or":
            self.left.pop(0)
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else lambda fragments: any(part(fragments) for part in parts)

    def _both(self, depth: int) -> Callable[[Mapping[str, Fragment]], bool]:
        parts = [self._one(depth)]
        while self.left and self.left[0] == "and":
            self.left.pop(0)
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else lambda fragments: all(part(fragments) for part in parts)

    def _one(self, depth: int) -> Callable[[Mapping[str, Fragment]], bool]:
        token = self._next("a comparison")
        if token == "not":
            if depth > MOST_DEPTH:
                raise InputError(f"found a condition nested more than {MOST_DEPTH} deep", where=self.where)
            inner = self._one(depth + 1)
            return lambda fragments: not inner(fragments)
        if token == "(":
            inner = self.either(depth + 1)
            closing = self._next(")")
            if closing != ")":
                raise InputError(f'found "{one_line(closing, 40)}" in the condition; expected )', where=self.where)
            return inner
        return self._comparison(token)

    def _comparison(self, name: str) -> Callable[[Mapping[str, Fragment]], bool]:
        key, dot, field = name.rpartition(".")
        if not dot or "." not in key:
            raise InputError(f'found "{one_line(name, 60)}" in the condition; expected a field such as POSIX.sizes.reads', where=self.where)
        sign, number = self._next("a comparison"), ""
        if sign in _COMPARE:
            number = self._next("a number")
        try:
            value, compare = float(number), _COMPARE[sign]
        except (KeyError, ValueError):
            raise InputError(
                f'found "{one_line(f"{name} {sign} {number}", 80)}"; expected a comparison with a number', where=self.where
            ) from None
        self.names.append(name)

        def test(fragments: Mapping[str, Fragment]) -> bool:
            fragment = fragments.get(key)
            if fragment is None or field not in fragment.fields:
                return False
            return compare(fragment.number(field), value)

        return test
