"""Three-way merge: both sides' changes to a common base, and where they touch, both sides.

`merge_sequences(base, ours, theirs)` works on any sequences of hashable lines, `merge_text` on text. Changes are a shortest edit script of
lines (E. W. Myers, An O(ND) difference algorithm and its variations, Algorithmica 1986). Two changes that overlap or touch are a conflict
unless they are the same; a conflict is cut down to the lines in which both sides differ, and two conflicts with at most three lines between
them, or none with a letter or digit, are joined. These are the rules of `git merge-file`. Where lines repeat, several shortest scripts
exist and another tool may choose another.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T", bound=Hashable)
#: Lines between two conflicts up to which they are joined.
NEAR = 3


class Change(NamedTuple):
    """Lines a0:a1 of the first became b0:b1 of the second."""

    a0: int
    a1: int
    b0: int
    b1: int


@dataclass(frozen=True)
class Conflict(Generic[T]):
    """Lines on which the sides do not agree."""

    ours: tuple[T, ...]
    theirs: tuple[T, ...]


@dataclass(frozen=True)
class Merged(Generic[T]):
    """A merge: runs of lines and conflicts, in order."""

    chunks: tuple[tuple[T, ...] | Conflict[T], ...]

    @property
    def is_clean(self) -> bool:
        """Whether there is no conflict."""
        return not any(isinstance(chunk, Conflict) for chunk in self.chunks)

    @property
    def lines(self) -> tuple[T, ...] | None:
        """The merged lines; None where there is a conflict."""
        if not self.is_clean:
            return None
        return tuple(line for chunk in self.chunks if not isinstance(chunk, Conflict) for line in chunk)


class _Hunk:
    """A stretch that differs, with who changed it (0 for both, 4 for both in the same way) and its place in ours and in theirs."""

    __slots__ = ("n1", "n2", "ours", "theirs", "who")

    def __init__(self, who: int, ours: int, n1: int, theirs: int, n2: int) -> None:
        self.who, self.ours, self.n1, self.theirs, self.n2 = who, ours, n1, theirs, n2


def merge_sequences(base: Sequence[T], ours: Sequence[T], theirs: Sequence[T]) -> Merged[T]:
    """Merges `ours` and `theirs`, both made from `base`."""
    if ours == theirs or theirs == base:
        return Merged((tuple(ours),) if len(ours) else ())
    if ours == base:
        return Merged((tuple(theirs),) if len(theirs) else ())
    hunks = _hunks(diff(base, ours), diff(base, theirs), ours, theirs, len(base))
    hunks = _near_joined([small for hunk in hunks for small in _refined(hunk, ours, theirs)], ours)
    chunks: list[tuple[T, ...] | Conflict[T]] = []
    run: list[T] = []
    at = 0
    for hunk in hunks:
        run += ours[at : hunk.ours]
        at = hunk.ours + hunk.n1
        if hunk.who == 0:
            if run:
                chunks.append(tuple(run))
            chunks.append(Conflict(tuple(ours[hunk.ours : at]), tuple(theirs[hunk.theirs : hunk.theirs + hunk.n2])))
            run = []
        else:
            run += theirs[hunk.theirs : hunk.theirs + hunk.n2] if hunk.who == 2 else ours[hunk.ours : at]
    run += ours[at:]
    if run:
        chunks.append(tuple(run))
    return Merged(tuple(chunks))


def merge_text(base: str, ours: str, theirs: str, names: tuple[str, str] = ("ours", "theirs")) -> tuple[str, int]:
    """Merges two texts and returns the text and its number of conflicts, each shown between markers of seven signs."""
    merged = merge_sequences(*(_split(text) for text in (base, ours, theirs)))
    out: list[str] = []
    conflicts = 0
    for chunk in merged.chunks:
        if isinstance(chunk, Conflict):
            conflicts += 1
            out += [f"<<<<<<< {names[0]}\n", *_ended(chunk.ours), "=======\n", *_ended(chunk.theirs), f">>>>>>> {names[1]}\n"]
        else:
            out += chunk
    return "".join(out), conflicts


def _split(text: str) -> list[str]:
    parts = text.split("\n")
    lines = [part + "\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def _ended(lines: tuple[str, ...]) -> Iterator[str]:
    for line in lines:
        yield line if line.endswith("\n") else line + "\n"


def _hunks(left: list[Change], right: list[Change], ours: Sequence[T], theirs: Sequence[T], base: int) -> list[_Hunk]:
    """Walks both scripts; changes that overlap or touch become one hunk of both."""
    out: list[_Hunk] = []
    i = j = 0
    while i < len(left) or j < len(right):
        # Past the last change, the other side's lines are the base's, shifted.
        l = left[i] if i < len(left) else Change(base + 1, base + 1, len(ours) + 1, len(ours) + 1)  # noqa: E741
        r = right[j] if j < len(right) else Change(base + 1, base + 1, len(theirs) + 1, len(theirs) + 1)
        if l.a1 < r.a0:
            _append(out, _Hunk(1, l.b0, l.b1 - l.b0, r.b0 - r.a0 + l.a0, l.a1 - l.a0))
            i += 1
        elif r.a1 < l.a0:
            _append(out, _Hunk(2, l.b0 - l.a0 + r.a0, r.a1 - r.a0, r.b0, r.b1 - r.b0))
            j += 1
        else:
            if l[:2] != r[:2] or ours[l.b0 : l.b1] != theirs[r.b0 : r.b1]:
                first, last = min(l.a0, r.a0), max(l.a1, r.a1)
                o, t = l.b0 - (l.a0 - first), r.b0 - (r.a0 - first)
                _append(out, _Hunk(0, o, l.b1 + (last - l.a1) - o, t, r.b1 + (last - r.a1) - t))
            if l.a1 >= r.a1:
                j += 1
            if r.a1 >= l.a1:
                i += 1
    return out


def _append(out: list[_Hunk], hunk: _Hunk) -> None:
    last = out[-1] if out else None
    if last is None or (hunk.ours > last.ours + last.n1 and hunk.theirs > last.theirs + last.n2):
        out.append(hunk)
        return
    if last.who != hunk.who:
        last.who = 0
    last.n1 = hunk.ours + hunk.n1 - last.ours
    last.n2 = hunk.theirs + hunk.n2 - last.theirs


def _refined(hunk: _Hunk, ours: Sequence[T], theirs: Sequence[T]) -> list[_Hunk]:
    """Cuts a conflict into those stretches in which both sides differ."""
    if hunk.who != 0 or hunk.n1 == 0 or hunk.n2 == 0:
        return [hunk]
    a, b = ours[hunk.ours : hunk.ours + hunk.n1], theirs[hunk.theirs : hunk.theirs + hunk.n2]
    changes = diff(a, b)
    if not changes:
        return [_Hunk(4, hunk.ours, hunk.n1, hunk.theirs, hunk.n2)]
    return [_Hunk(0, hunk.ours + c.a0, c.a1 - c.a0, hunk.theirs + c.b0, c.b1 - c.b0) for c in changes]


def _near_joined(hunks: list[_Hunk], ours: Sequence[T]) -> list[_Hunk]:
    out: list[_Hunk] = []
    for hunk in hunks:
        if out and out[-1].who == hunk.who == 0:
            last = out[-1]
            between = ours[last.ours + last.n1 : hunk.ours]
            if len(between) <= NEAR or not any(_has_word(line) for line in between):
                last.n1 = hunk.ours + hunk.n1 - last.ours
                last.n2 = hunk.theirs + hunk.n2 - last.theirs
                continue
        out.append(hunk)
    return out


def _has_word(line: object) -> bool:
    return any(c.isascii() and c.isalnum() for c in line) if isinstance(line, str) else True


def diff(a: Sequence[T], b: Sequence[T]) -> list[Change]:
    """Returns a shortest list of changes from `a` to `b`; a change that could stand at several places stands at the last."""
    low = 0
    while low < len(a) and low < len(b) and a[low] == b[low]:
        low += 1
    n, m = len(a), len(b)
    while n > low and m > low and a[n - 1] == b[m - 1]:
        n -= 1
        m -= 1
    # What occurs on one side only is changed for certain, so the search needs only the rest.
    there, here = set(b[low:m]), set(a[low:n])
    left = [i for i in range(low, n) if a[i] in there]
    right = [j for j in range(low, m) if b[j] in here]
    out: list[Change] = []
    i, j = low, low
    for x, y in [*((left[x], right[y]) for x, y in _matches([a[i] for i in left], [b[j] for j in right])), (n, m)]:
        if i < x or j < y:
            out.append(Change(i, x, j, y))
        i, j = x + 1, y + 1
    return _slid(out, a, b)


def _matches(a: list[T], b: list[T]) -> list[tuple[int, int]]:
    """Returns the pairs of a longest common subsequence (Myers's greedy search)."""
    n, m = len(a), len(b)
    if not n or not m:
        return []
    furthest = {1: 0}
    trace: list[dict[int, int]] = []
    for d in range(n + m + 1):
        trace.append(dict(furthest))
        for k in range(-d, d + 1, 2):
            down = k == -d or (k != d and furthest[k - 1] < furthest[k + 1])
            x = furthest[k + 1] if down else furthest[k - 1] + 1
            while x < n and x - k < m and a[x] == b[x - k]:
                x += 1
            furthest[k] = x
            if x >= n and x - k >= m:
                return _backtracked(trace, n, m)
    raise AssertionError("no path")


def _backtracked(trace: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for d in range(len(trace) - 1, -1, -1):
        furthest, k = trace[d], x - y
        down = k == -d or (k != d and furthest[k - 1] < furthest[k + 1])
        before = k + 1 if down else k - 1
        from_x = furthest[before] if d else 0
        from_y = from_x - before if d else 0
        while x > from_x and y > from_y:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = from_x, from_y
    return pairs[::-1]


def _slid(changes: list[Change], a: Sequence[T], b: Sequence[T]) -> list[Change]:
    """Moves each pure insertion or deletion down while the text allows, and joins those that meet."""
    out: list[Change] = []
    for number, c in enumerate(changes):
        a0, a1, b0, b1 = c
        end = changes[number + 1].a0 if number + 1 < len(changes) else len(a)
        if a0 == a1 or b0 == b1:
            side, low, high = (b, b0, b1) if a0 == a1 else (a, a0, a1)
            by = 0
            while a1 + by < end and high + by < len(side) and side[low + by] == side[high + by]:
                by += 1
            a0, a1, b0, b1 = a0 + by, a1 + by, b0 + by, b1 + by
        if out and out[-1].a1 == a0 and out[-1].b1 == b0:
            a0, b0 = out[-1].a0, out[-1].b0
            out.pop()
        out.append(Change(a0, a1, b0, b1))
    return out
