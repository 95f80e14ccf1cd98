"""A rank's share of a matrix file, which is its own range of bytes of a text; also SNAP edge lists and index vectors."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from armillary.comm.collectives.operations import MAX
from armillary.errors import InputError, one_line
from armillary.files import check_readable, map_array, open_file, read_bytes
from armillary.files.matrices import MOST_BYTES, MOST_ROWS, check_header, read_sparse

from ..distribution.dcsc import Array
from ..distribution.index_vector import whole_numbers

if TYPE_CHECKING:
    from scipy.sparse import coo_array

    from armillary.comm.communicator import Communicator

_MARKET = (".mtx", ".mtx.gz")
_EDGES = (".txt", ".txt.gz")
_FIELDS = {b"real": np.float64, b"integer": np.int64, b"complex": np.complex128, b"pattern": np.bool_}
_SYMMETRIES = (b"general", b"symmetric", b"skew-symmetric", b"hermitian")
#: An edge list may name nodes up to this many times its bytes: more would ask for memory that the file does not account for.
_MOST_NODES_PER_BYTE = 64


@dataclass(frozen=True, eq=False)
class Share:
    """The entries that one rank has parsed: global rows and columns from 0, and values.

    `shape` is None where it follows from the largest index of all ranks; `announced` is how many lines the header promises, `lines` how
    many this rank has found.
    """

    rows: Array
    cols: Array
    values: Array
    shape: tuple[int, int] | None
    lines: int
    announced: int | None
    where: str

    def agreed_shape(self, comm: Communicator) -> tuple[int, int]:
        """Returns the shape of the whole once all ranks have parsed their shares; refuses another number of lines than announced."""
        if self.announced is not None:
            self.check_lines(int(comm.allreduce(np.array([self.lines], np.int64))[0]))
        if self.shape is not None:
            return self.shape
        most = max(self.rows.max(initial=-1), self.cols.max(initial=-1))
        n = int(comm.allreduce(np.array([most + 1], np.int64), op=MAX)[0])
        return n, n

    def check_lines(self, found: int) -> None:
        """Refuses another number of entries than the header announces."""
        if self.announced is not None and found != self.announced:
            raise InputError(f"found {found} entries; expected the {self.announced} that are announced", where=self.where)


def read_share(path: str | os.PathLike[str], rank: int, size: int) -> Share:
    """Reads the part of the file that falls to `rank` of `size` ranks. Arrays (`.npz`, `.npy`) are read whole and cut."""
    path = Path(path)
    check_readable(path)
    name = path.name.lower()
    if not name.endswith((*_MARKET, *_EDGES)):
        return _dense(path, rank, size)
    with open_file(path, limit=MOST_BYTES, seekable=True) as file:
        return (_market if name.endswith(_MARKET) else _edges)(file, path, rank, size)


def read_work(path: str | os.PathLike[str]) -> coo_array:
    """Reads the whole matrix of a file, in the formats of `read_share`."""
    from scipy.sparse import coo_array

    share = read_share(path, 0, 1)
    share.check_lines(share.lines)
    n = int(max(share.rows.max(initial=-1), share.cols.max(initial=-1))) + 1
    found = coo_array((share.values, (share.rows, share.cols)), shape=share.shape or (n, n))
    found.sum_duplicates()
    return found


def read_index(path: str | os.PathLike[str], base: int = 0) -> Array:
    """Reads an index vector: a `.npy` of whole numbers, or text with one per line. The file counts from `base`, 0 or 1."""
    path = Path(path)
    if base not in (0, 1):
        raise InputError(f"base: found {base}; expected 0 or 1")
    check_readable(path)
    if path.name.lower().endswith(".npy"):
        found = whole_numbers(map_array(path), str(path)).astype(np.int64)
    else:
        text = read_bytes(path)
        tokens = _tokens(text, 1, path, io.BytesIO(text), 0)
        found = _numbers(tokens[:, 0], np.int64, tokens, path, file=None)
    if found.size and int(found.min()) < base:
        at = int(np.flatnonzero(found < base)[0])
        raise InputError(f"found index {found[at]} at position {at}; expected {base} or more", where=str(path))
    return found - base


def _market(file: IO[bytes], path: Path, rank: int, size: int) -> Share:
    end = file.seek(0, io.SEEK_END)
    file.seek(0)
    check_header(file, end, path)
    body = file.tell()
    file.seek(0)
    banner = [word.lower() for word in file.readline(1024).split()]
    if banner[2] != b"coordinate":
        return _dense(path, rank, size)
    kind, symmetry = banner[3], banner[4]
    if kind not in _FIELDS or symmetry not in _SYMMETRIES:
        said = one_line(b" ".join(banner[3:5]).decode(errors="replace"))
        raise InputError(f"line 1: found {said}; expected real, integer, complex or pattern, and a symmetry", where=str(path))
    line = b"%"
    while line.startswith(b"%") or not line.strip():
        line = file.readline(4096)
    m, n, announced = (int(word) for word in line.split())
    width = {b"pattern": 2, b"complex": 4}.get(kind, 3)
    text, start = _range(file, body, end, rank, size)
    tokens = _tokens(text, width, path, file, start)
    rows = _numbers(tokens[:, 0], np.int64, tokens, path, file, start, text)
    cols = _numbers(tokens[:, 1], np.int64, tokens, path, file, start, text)
    for axis, most, what in ((rows, m, "row"), (cols, n, "column")):
        bad = np.flatnonzero((axis < 1) | (axis > most))
        if bad.size:
            raise _at_line(f"found {what} {axis[bad[0]]}; expected 1 to {most}", int(bad[0]), text, start, file, path)
    if kind == b"pattern":
        values: Array = np.ones(rows.size, np.bool_)
    elif kind == b"complex":
        values = np.empty(rows.size, np.complex128)
        values.real = _numbers(tokens[:, 2], np.float64, tokens, path, file, start, text)
        values.imag = _numbers(tokens[:, 3], np.float64, tokens, path, file, start, text)
    else:
        values = _numbers(tokens[:, 2], _FIELDS[kind], tokens, path, file, start, text)
    lines = rows.size
    if symmetry != b"general":
        other = np.flatnonzero(rows != cols)
        mirrored = values[other]
        if symmetry != b"symmetric":
            mirrored = -mirrored if symmetry == b"skew-symmetric" else mirrored.conj()
        rows, cols = np.concatenate((rows, cols[other])), np.concatenate((cols, rows[other]))
        values = np.concatenate((values, mirrored))
    return Share(rows - 1, cols - 1, values, (m, n), lines, announced, str(path))


def _dense(path: Path, rank: int, size: int) -> Share:
    found = read_sparse(path)
    mine = slice(found.nnz * rank // size, found.nnz * (rank + 1) // size)
    rows, cols = (axis[mine].astype(np.int64) for axis in found.coords)
    return Share(rows, cols, found.data[mine], (int(found.shape[0]), int(found.shape[1])), 0, None, str(path))


def _edges(file: IO[bytes], path: Path, rank: int, size: int) -> Share:
    """Reads this rank's share of a SNAP edge list: lines `from to [weight]`, nodes from 0, `#` comments."""
    end = file.seek(0, io.SEEK_END)
    body, width = 0, 0
    file.seek(0)
    for line in iter(lambda: file.readline(1 << 16), b""):
        if line.strip() and not line.startswith(b"#"):
            width = len(line.split())
            break
        body = file.tell()
    if width not in (0, 2, 3):
        raise InputError(f"found {width} columns in the first edge; expected two, or three with a weight", where=str(path))
    text, start = _range(file, body, end, rank, size)
    tokens = _tokens(text, width or 2, path, file, start, comment=b"#")
    rows = _numbers(tokens[:, 0], np.int64, tokens, path, file, start, text)
    cols = _numbers(tokens[:, 1], np.int64, tokens, path, file, start, text)
    most = min(MOST_ROWS, _MOST_NODES_PER_BYTE * end)
    bad = np.flatnonzero((rows < 0) | (cols < 0) | (rows >= most) | (cols >= most))
    if bad.size:
        found = f"found the edge {rows[bad[0]]} {cols[bad[0]]}; expected nodes from 0 to {most - 1} in a file of this size"
        raise _at_line(found, int(bad[0]), text, start, file, path, b"#")
    values = _numbers(tokens[:, 2], np.float64, tokens, path, file, start, text) if width == 3 else np.ones(rows.size, np.bool_)
    return Share(rows, cols, values, None, 0, None, str(path))


def _range(file: IO[bytes], body: int, end: int, rank: int, size: int) -> tuple[bytes, int]:
    """Returns the lines whose first byte lies in this rank's part of [body, end), and where they begin."""
    low, high = (body + (end - body) * r // size for r in (rank, rank + 1))
    starts = [low, high]
    for k, at in enumerate(starts):
        if body < at < end:
            file.seek(at - 1)
            file.readline()
            starts[k] = file.tell()
    file.seek(starts[0])
    return file.read(max(0, starts[1] - starts[0])), starts[0]


def _tokens(text: bytes, width: int, path: Path, file: IO[bytes], start: int, comment: bytes = b"%") -> Array:
    """Returns the words of the text, of which each line has `width`."""
    if comment in text:
        text = b"\n".join(line for line in text.split(b"\n") if not line.lstrip().startswith(comment))
    words = text.split()
    lines = sum(1 for line in text.split(b"\n") if line.strip())
    if len(words) != lines * width:
        for number, line in enumerate(line for line in text.split(b"\n") if line.strip()):
            if len(line.split()) != width:
                said = one_line(line.decode(errors="replace"), 60)
                raise _at_line(f'found "{said}"; expected {width} words', number, text, start, file, path, comment)
    if any(len(word) > 64 for word in words):
        raise InputError("found a word of more than 64 characters; expected numbers", where=str(path))
    return np.array(words, dtype=np.bytes_).reshape(-1, width)


def _numbers(words: Array, dtype: Any, tokens: Array, path: Path, file: IO[bytes] | None, start: int = 0, text: bytes = b"") -> Array:
    """Returns the words as numbers, which must be finite."""
    if not words.size:
        return np.empty(0, dtype)
    try:
        found: Array = words.astype(dtype)
    except (ValueError, OverflowError):
        bad = next(k for k, word in enumerate(words) if not _is(word, dtype))
    else:
        infinite = np.flatnonzero(~np.isfinite(found)) if np.dtype(dtype).kind in "fc" else np.empty(0, np.int64)
        if not infinite.size:
            return found
        bad = int(infinite[0])
    said = one_line(words[bad].decode(errors="replace"), 60)
    expected = "a whole number" if np.dtype(dtype).kind == "i" else "a finite number"
    raise _at_line(f'found "{said}"; expected {expected}', bad, text, start, file, path)


def _is(word: bytes, dtype: Any) -> bool:
    try:
        np.array([word]).astype(dtype)
    except (ValueError, OverflowError):
        return False
    return True


def _at_line(message: str, entry: int, text: bytes, start: int, file: IO[bytes] | None, path: Path, comment: bytes = b"%") -> InputError:
    """Returns the error with the number of the line in the file; the lines before this rank's range are counted only here."""
    if file is None:
        return InputError(f"line {entry + 1}: {message}", where=str(path))
    file.seek(0)
    before = file.read(start).count(b"\n")
    filled = [k for k, line in enumerate(text.split(b"\n")) if line.strip() and not line.lstrip().startswith(comment)]
    return InputError(f"line {before + filled[entry] + 1}: {message}", where=str(path))
