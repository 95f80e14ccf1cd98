"""Integer expressions of loop variables, which are what array indices and loop bounds are made of.

`Affine` is a constant plus integer multiples of atoms. An atom is the name of a loop variable, or the read of an integer array (`Load`),
about whose value nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from .expressions import Load

Atom = Union[str, "Load"]


@dataclass(frozen=True, slots=True)
class Affine:
    """`constant + Σ coefficient · atom`; the terms are sorted, and none is zero."""

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.constant + other)
        if not other.terms:
            return Affine(self.terms, self.constant + other.constant)
        sums = dict(self.terms)
        for atom, times in other.terms:
            sums[atom] = sums.get(atom, 0) + times
        return _made(sums, self.constant + other.constant)

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: Affine | int) -> Affine:
        return self + (-other)

    def __mul__(self, times: int) -> Affine:
        if times == 0:
            return Affine()
        return Affine(tuple((atom, times * one) for atom, one in self.terms), times * self.constant)

    @property
    def fixed(self) -> bool:
        """Whether it is a plain number."""
        return not self.terms

    def coefficient(self, name: str) -> int:
        """The multiple of a loop variable."""
        return next((times for atom, times in self.terms if atom == name), 0)

    @property
    def loads(self) -> tuple[Load, ...]:
        """The reads of integer arrays in it."""
        return tuple(atom for atom, _ in self.terms if not isinstance(atom, str))

    def names(self) -> Iterator[str]:
        """The loop variables in it, those inside reads included."""
        for atom, _ in self.terms:
            if isinstance(atom, str):
                yield atom
            else:
                for index in atom.index:
                    yield from index.names()

    def with_names(self, values: Mapping[str, Affine]) -> Affine:
        """With variables replaced, inside reads too."""
        if not any(name in values for name in self.names()):
            return self
        made = Affine((), self.constant)
        for atom, times in self.terms:
            if isinstance(atom, str):
                made = made + values.get(atom, variable(atom)) * times
            else:
                made = made + Affine(((atom.with_names(values), 1),)) * times
        return made

    def with_loads(self, change: Callable[[Load], Load]) -> Affine:
        """With each read of an integer array replaced."""
        if not self.loads:
            return self
        made = Affine((), self.constant)
        for atom, times in self.terms:
            made = made + Affine(((atom if isinstance(atom, str) else change(atom), 1),)) * times
        return made

    def at(self, values: Mapping[str, int]) -> int:
        """Its value; every atom must be a variable that has one."""
        return self.constant + sum([times * values[str(atom)] for atom, times in self.terms])

    def __str__(self) -> str:
        said = " + ".join([f"{atom}" if times == 1 else f"{times}*{atom}" for atom, times in self.terms])
        if not said:
            return str(self.constant)
        return said if not self.constant else f"{said} {'+' if self.constant > 0 else '-'} {abs(self.constant)}"


def _made(sums: Mapping[Atom, int], constant: int) -> Affine:
    return Affine(
        tuple(sorted(((a, c) for a, c in sums.items() if c), key=lambda term: (not isinstance(term[0], str), str(term[0])))), constant
    )


def number(value: int) -> Affine:
    """A plain number."""
    return Affine((), value)


def variable(name: str) -> Affine:
    """A loop variable."""
    return Affine(((name, 1),))


@dataclass(frozen=True, slots=True)
class Range:
    """A variable and the half-open interval that it runs over; `step` may be negative, and then it runs from `low` down to above `high`."""

    name: str
    low: Affine
    high: Affine
    step: int = 1

    @property
    def span(self) -> tuple[Affine, Affine]:
        """Its least and greatest values, if it has any; for steps beyond 1 the span may be wider."""
        return (self.low, self.high - 1) if self.step > 0 else (self.high + 1, self.low)


def extremes(index: Affine, ranges: tuple[Range, ...]) -> tuple[Affine | None, Affine | None]:
    """The least and greatest values of `index` over nested ranges, in terms of the variables outside them; None where a read decides."""
    low: Affine | None = index
    high: Affine | None = index
    for range_ in reversed(ranges):
        least, most = range_.span
        low = _end(low, range_.name, least, most)
        high = _end(high, range_.name, most, least)
    if low is not None and low.loads:
        low = None
    if high is not None and high.loads:
        high = None
    return low, high


def _end(index: Affine | None, name: str, if_positive: Affine, if_negative: Affine) -> Affine | None:
    if index is None:
        return None
    if any(name in set(load_index.names()) for load in index.loads for load_index in load.index):
        return None
    times = index.coefficient(name)
    return index if times == 0 else index.with_names({name: if_positive if times > 0 else if_negative})
