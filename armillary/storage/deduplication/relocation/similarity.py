"""The files that use a chunk and the chunks that follow it, from which the similarity of chunks is computed.

F(c) is the set of files that refer to chunk c, and cos(c, d) = |F(c) ∩ F(d)| / √(|F(c)|·|F(d)|). Only chunks that are neighbours in some
file are candidates for lying side by side, so the cosine is computed for those pairs alone. All tables are rows of one array (CSR)
made by counting sorts, which takes O(R) steps for R references. Each pair takes as many steps as the shorter of its two file lists.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.kernels import kernel, part


@dataclass(frozen=True)
class Rows:
    """Lists of different lengths, one after another: row i is values[starts[i] : starts[i + 1]]."""

    starts: np.ndarray
    values: np.ndarray

    def row(self, i: int) -> np.ndarray:
        """Row i."""
        return self.values[self.starts[i] : self.starts[i + 1]]

    def __len__(self) -> int:
        return len(self.starts) - 1


@dataclass(frozen=True)
class Neighbours:
    """For each chunk, the chunks that directly follow (or precede) it in some file, with the number of such files and the similarity."""

    starts: np.ndarray
    chunk: np.ndarray
    count: np.ndarray
    cosine: np.ndarray


def as_rows(files: object, where: str = "files") -> Rows:
    """Lists of chunk numbers, one per file, as rows of int32; numbers are at least 0 and below 2^31."""
    if isinstance(files, Rows):
        starts, values = files.starts, files.values
    else:
        try:
            lists = [np.asarray(file) for file in files]  # type: ignore[attr-defined]
        except TypeError:
            raise InputError(f"found {type(files).__name__}; expected a list of arrays of chunk numbers", where=where) from None
        for number, file in enumerate(lists):
            if file.ndim != 1 or (len(file) and file.dtype.kind not in "iu"):
                raise InputError(f"found {file.ndim} axes of {file.dtype}; expected a list of whole numbers", where=f"{where}[{number}]")
        starts = np.zeros(len(lists) + 1, np.int64)
        starts[1:] = np.cumsum([len(file) for file in lists])
        values = np.concatenate([file.astype(np.int64) for file in lists]) if lists else np.zeros(0, np.int64)
    if len(values) and (values.min() < 0 or values.max() >= 2**31 - 1):
        bad = int(np.argmax((values < 0) | (values >= 2**31 - 1)))
        number = int(np.searchsorted(starts, bad, side="right")) - 1
        raise InputError(f"found chunk {int(values[bad])}; expected 0 to 2147483646", where=f"{where}[{number}]")
    return Rows(np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(values, np.int32))


def cosine(users: np.ndarray, others: np.ndarray) -> float:
    """The cosine of two chunks by the sets of files that use them; 0 where no file uses one of them."""
    first, second = set(map(int, users)), set(map(int, others))
    return len(first & second) / (len(first) * len(second)) ** 0.5 if first and second else 0.0


def users(files: Rows, chunks: int) -> Rows:
    """F(c) for each chunk, the distinct files that refer to it in ascending order."""
    starts = np.zeros(chunks + 1, np.int64)
    _count(files.values, starts)
    np.cumsum(starts, out=starts)
    values = np.empty(len(files.values), np.int32)
    _users(files.starts, files.values, starts, values)
    return Rows(starts, values[: starts[-1]].copy())


def neighbours(files: Rows, used: Rows) -> tuple[Neighbours, Neighbours]:
    """(successors, predecessors) of every chunk; a chunk is not its own neighbour."""
    chunks = len(used)
    before, after, file = _pairs(files)
    order = _by(after, np.arange(len(after), dtype=np.int32), chunks)
    order = _by(before, order, chunks)
    kept, counts = np.empty(len(order), np.int32), np.empty(len(order), np.int32)
    n = _distinct(before, after, file, order, kept, counts)
    kept, counts = kept[:n], counts[:n].copy()
    before, after = before[kept], after[kept]
    del order, kept, file
    cosines = np.empty(n, np.float32)
    _cosines(before, after, used.starts, used.values, cosines)
    back = _by(after, np.arange(n, dtype=np.int32), chunks)
    follow = Neighbours(_starts(before, chunks), after, counts, cosines)
    precede = Neighbours(_starts(after, chunks), before[back], counts[back], cosines[back])
    return follow, precede


def _pairs(files: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(before, after, file) of every two different chunks that stand side by side, in the order of the files."""
    sizes = np.diff(files.starts)
    file = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    if not len(file):
        return file, file, file
    side = (file[1:] == file[:-1]) & (files.values[1:] != files.values[:-1])
    return files.values[:-1][side], files.values[1:][side], file[1:][side]


def _starts(keys: np.ndarray, chunks: int) -> np.ndarray:
    starts = np.zeros(chunks + 1, np.int64)
    _count(keys, starts)
    return np.cumsum(starts)


def _by(keys: np.ndarray, order: np.ndarray, chunks: int) -> np.ndarray:
    """`order` sorted by keys[order], equal keys in the order they had."""
    out = np.empty(len(order), np.int32)
    _scatter(keys, order, _starts(keys, chunks), out)
    return out


@kernel
def _count(keys, starts):
    for i in range(len(keys)):
        starts[keys[i] + 1] += 1


@kernel
def _scatter(keys, order, starts, out):
    for i in range(len(order)):
        key = keys[order[i]]
        out[starts[key]] = order[i]
        starts[key] += 1


@kernel
def _users(file_starts, values, starts, out):
    # Each chunk first gets as many entries as it has references. Files ascend, so repeats are adjacent, and the gaps are closed then.
    for f in range(len(file_starts) - 1):
        for r in range(file_starts[f], file_starts[f + 1]):
            c = values[r]
            out[starts[c]] = f
            starts[c] += 1
    to = 0
    begin = 0
    for c in range(len(starts) - 1):
        end = starts[c]
        starts[c] = to
        last = -1
        for at in range(begin, end):
            if out[at] != last:
                last = out[at]
                out[to] = last
                to += 1
        begin = end
    starts[len(starts) - 1] = to


@kernel
def _distinct(before, after, file, order, kept, counts):
    n = 0
    last = -1
    for i in range(len(order)):
        o = order[i]
        if n > 0 and before[kept[n - 1]] == before[o] and after[kept[n - 1]] == after[o]:
            if file[o] != last:
                counts[n - 1] += 1
        else:
            kept[n] = o
            counts[n] = 1
            n += 1
        last = file[o]
    return n


@part
def _common(values, a, a_end, b, b_end):
    """The number of entries that two ascending lists share, found by galloping search in the longer list."""
    if a_end - a > b_end - b:
        a, a_end, b, b_end = b, b_end, a, a_end
    found = 0
    while a < a_end and b < b_end:
        wanted = values[a]
        step = 1
        while b + step < b_end and values[b + step] < wanted:
            step *= 2
        low, high = b, min(b + step, b_end)
        while low < high:
            middle = (low + high) // 2
            if values[middle] < wanted:
                low = middle + 1
            else:
                high = middle
        b = low
        if b < b_end and values[b] == wanted:
            found += 1
            b += 1
        a += 1
    return found


@kernel
def _cosines(before, after, starts, values, out):
    for p in range(len(before)):
        c, d = before[p], after[p]
        shared = _common(values, starts[c], starts[c + 1], starts[d], starts[d + 1])
        size = np.float64(starts[c + 1] - starts[c]) * np.float64(starts[d + 1] - starts[d])
        out[p] = shared / np.sqrt(size)
