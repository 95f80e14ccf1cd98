"""Parts of a piece of data, and whether two of them overlap.

A span is an arithmetic progression on one axis, (start, stop, step) with `stop` one past its last index; a box is one span per axis, and
the empty box `()` is all of the data. Boxes are products of spans, so two boxes overlap if and only if their spans overlap on every axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import Any, TypeAlias

from armillary.errors import InputError

Span: TypeAlias = tuple[int, int, int]
Box: TypeAlias = tuple[Span, ...]
#: The box that is all of the data.
EVERYTHING: Box = ()


def spans_meet(a: Span, b: Span) -> bool:
    """Whether two progressions share an index (by the Chinese remainder theorem on their steps)."""
    low, high = max(a[0], b[0]), min(a[1], b[1])
    if low >= high:
        return False
    if a[2] == 1 and b[2] == 1:
        return True
    common = gcd(a[2], b[2])
    apart = b[0] - a[0]
    if apart % common:
        return False
    period = a[2] // common * b[2]
    first = a[0] + a[2] * (apart // common * pow(a[2] // common, -1, b[2] // common) % (b[2] // common))
    return first + -((first - low) // period) * period < high


def meet(a: Box, b: Box) -> bool:
    """Whether two boxes share an element; an axis that only one of them names does not separate them."""
    return all(spans_meet(x, y) for x, y in zip(a, b, strict=False))


def covers(a: Box, b: Box) -> bool:
    """Whether every element of `b` is certainly in `a`."""
    if len(b) < len(a):
        return False
    for (start, stop, step), (first, end, stride) in zip(a, b, strict=False):
        if first < start or end > stop or (first - start) % step:
            return False
        if end - first > 1 and stride % step:
            return False
    return True


def elements(box: Box) -> int:
    """The number of elements of a box that names every axis."""
    count = 1
    for start, stop, step in box:
        count *= (stop - start + step - 1) // step
    return count


def box_of(index: Any, shape: tuple[int, ...] | None, where: str) -> Box:
    """The box of a NumPy index: integers, slices, `...`, and lists of integers, for which it is the bounding box.

    If the shape is unknown, only integers and slices with both ends are allowed.
    """
    items = _axes(index, shape)
    if shape is not None:
        if len(items) > len(shape):
            raise InputError(f"found {len(items)} indices; expected at most {len(shape)}", where=where)
        items += [slice(None)] * (len(shape) - len(items))
    spans = tuple(_span(item, shape[axis] if shape is not None else None, where) for axis, item in enumerate(items))
    if shape is not None and all(span == (0, length, 1) for span, length in zip(spans, shape)):
        return EVERYTHING
    return spans


def _axes(index: Any, shape: tuple[int, ...] | None) -> list[Any]:
    """One item per axis, as far as there are items."""
    items = list(index) if isinstance(index, tuple) else [index]
    at = next((i for i, item in enumerate(items) if item is Ellipsis), None)
    if at is not None and shape is not None:
        items[at : at + 1] = [slice(None)] * (len(shape) - len(items) + 1)
    return items


def is_scattered(index: Any) -> bool:
    """Whether an index has a list or array of numbers, so that NumPy returns a copy and not a view."""
    return any(isinstance(item, list) or getattr(item, "ndim", 0) for item in _axes(index, None))


def within(index: Any, shape: tuple[int, ...] | None) -> Any:
    """The index into an array that holds exactly the elements of the box; None if it is the whole array."""
    if index is None:
        return None
    found: list[Any] = []
    for item in _axes(index, shape):
        if isinstance(item, slice):
            found.append(slice(None, None, -1 if (item.step or 1) < 0 else None))
        elif is_scattered((item,)):
            numbers = _numbers(item, None if shape is None else shape[len(found)])
            found.append([number - min(numbers) for number in numbers])
        else:
            found.append(0)
    return None if all(item == slice(None) for item in found) else tuple(found)


def _numbers(item: Any, length: int | None) -> list[int]:
    """The indices that a list or array of integers or truth values names."""
    values = item.tolist() if hasattr(item, "tolist") else item
    if all(isinstance(value, bool) for value in values):
        return [at for at, chosen in enumerate(values) if chosen]
    return [value + length if value < 0 and length is not None else value for value in (v.__index__() for v in values)]


def _span(item: Any, length: int | None, where: str) -> Span:
    if is_scattered((item,)):
        try:
            numbers = _numbers(item, length)
        except (AttributeError, TypeError):
            raise InputError(f"found an index of {type(item).__name__}; expected whole numbers or truth values", where=where) from None
        if not numbers or min(numbers) < 0 or (length is not None and max(numbers) >= length):
            raise InputError(f"found {len(numbers)} indices, not all of them inside; expected 1 or more", where=where)
        return (min(numbers), max(numbers) + 1, 1)
    if hasattr(item, "__index__"):
        at = item.__index__()
        if length is not None and at < 0:
            at += length
        if at < 0 or (length is not None and at >= length):
            raise InputError(f"index {item} is outside; expected 0 to {'its end' if length is None else length - 1}", where=where)
        return (at, at + 1, 1)
    if not isinstance(item, slice):
        raise InputError(f"found an index of type {type(item).__name__}; expected integers, slices or ...", where=where)
    if length is None:
        if item.start is None or item.stop is None or item.start < 0 or item.stop < 0:
            raise InputError(f"found {item}; expected a slice with both ends, because the shape is not known", where=where)
        length = max(item.start, item.stop)
    indices = range(*item.indices(length))
    if not indices:
        raise InputError(f"found the empty slice {item.start}:{item.stop}; expected at least one element", where=where)
    low, high = min(indices[0], indices[-1]), max(indices[0], indices[-1])
    return (low, high + 1, abs(indices.step) if len(indices) > 1 else 1)


class Region:
    """A box that tasks have accessed since it was last completely overwritten, and those tasks."""

    __slots__ = ("box", "commuters", "readers", "token", "writers")

    def __init__(self, box: Box) -> None:
        self.box = box
        #: The numbers of the tasks that wrote it last, that have read it since, and that have updated it in any order since.
        self.writers: list[int] = []
        self.readers: list[int] = []
        self.commuters: list[int] = []
        #: The token that a commuting task holds while it runs, or None if there was no such task.
        self.token: int | None = None


class Regions:
    """The live regions of one piece of data; it finds those that overlap a box without looking at the others.

    Regions lie in a hash grid whose cells are as large as the regions in them (one grid per power of two, over the first two axes), so a
    box that is as large as its neighbours looks into a few cells, however many regions there are. A box that spans more cells than are
    occupied looks at the occupied ones.
    """

    def __init__(self) -> None:
        self._by_box: dict[Box, Region] = {}
        self._grids: dict[tuple[int, int], dict[tuple[int, int], list[Region]]] = {}

    def __len__(self) -> int:
        return len(self._by_box)

    def exactly(self, box: Box) -> Region:
        """The region of exactly this box, which is made if there is none."""
        region = self._by_box.get(box)
        if region is None:
            region = self._by_box[box] = Region(box)
            if box:
                level, cell = _cell(box)
                self._grids.setdefault(level, {}).setdefault(cell, []).append(region)
        return region

    def remove(self, region: Region) -> None:
        """Removes a region."""
        del self._by_box[region.box]
        if region.box:
            level, cell = _cell(region.box)
            grid = self._grids[level]
            grid[cell].remove(region)
            if not grid[cell]:
                del grid[cell]
                if not grid:
                    del self._grids[level]

    def meeting(self, box: Box) -> list[Region]:
        """The regions that share an element with `box`."""
        if not box:
            return list(self._by_box.values())
        found = [self._by_box[EVERYTHING]] if EVERYTHING in self._by_box else []
        for level, grid in self._grids.items():
            found += [region for region in _candidates(grid, level, box) if meet(region.box, box)]
        return found


def _cell(box: Box) -> tuple[tuple[int, int], tuple[int, int]]:
    start, stop, _ = box[0]
    level = (stop - start - 1).bit_length()
    if len(box) < 2:
        return (level, -1), (start >> level, 0)
    start2, stop2, _ = box[1]
    level2 = (stop2 - start2 - 1).bit_length()
    return (level, level2), (start >> level, start2 >> level2)


def _candidates(grid: dict[tuple[int, int], list[Region]], level: tuple[int, int], box: Box) -> Iterator[Region]:
    # A region of this level is at most one cell long, so it begins at most one cell before the box.
    start, stop, _ = box[0]
    low, high = (start >> level[0]) - 1, (stop - 1) >> level[0]
    low2 = high2 = 0
    if level[1] >= 0:
        if len(box) < 2:
            for cells in list(grid.values()):
                yield from cells
            return
        start2, stop2, _ = box[1]
        low2, high2 = (start2 >> level[1]) - 1, (stop2 - 1) >> level[1]
    if (high - low + 1) * (high2 - low2 + 1) > len(grid):
        for (i, j), cells in grid.items():
            if low <= i <= high and low2 <= j <= high2:
                yield from cells
        return
    for i in range(low, high + 1):
        for j in range(low2, high2 + 1):
            yield from grid.get((i, j), ())
