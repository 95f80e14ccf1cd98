"""Matrices from files: Matrix Market, SciPy's `.npz` and NumPy's `.npy`.

What a header promises is compared with the file's size before anything is allocated, and nothing is unpickled. A compressed file is
unpacked before its size is taken, so that a small file cannot ask for much memory.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import check_archive, check_readable, map_array, open_file, read_arrays

if TYPE_CHECKING:
    from scipy.sparse import coo_array

Array = np.ndarray[Any, Any]

#: The largest number of rows or columns; indices take at most 8 bytes, and sums of them must fit too.
MOST_ROWS = 1 << 48
MOST_BYTES = 1 << 42
#: Dimensions of SciPy's `data` array; one in the other formats.
DIMENSIONS = {"bsr": 3, "dia": 2}
#: The words of a Matrix Market entry.
WHOLE, BLANK = rb"\d{1,18}+", rb"[ \t]++"
NUMBER = rb"[-+]?+(?:(?:\d++\.?+\d*+|\.\d++)(?:[eE][-+]?+\d++)?+|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?+|[nN][aA][nN])"
SUFFIXES = (".mtx", ".mtx.gz", ".npz", ".npy")


def read_matrix(path: str | os.PathLike[str], finite: bool = True) -> Array | coo_array:
    """The matrix in a file: an array, or a `coo_array` where the file lists coordinates, with its entries in the file's order.

    With `finite`, infinities and NaNs are refused.
    """
    path = Path(path)
    check_readable(path)
    name = path.name.lower()
    if name.endswith((".mtx", ".mtx.gz")):
        matrix = _matrix_market(path)
    elif name.endswith(".npz"):
        matrix = _npz(path)
    elif name.endswith(".npy"):
        matrix = map_array(path)
    else:
        raise InputError(f"found the ending {path.suffix or 'none'}; expected {', '.join(SUFFIXES)}", where=str(path))
    if finite:
        _check_finite(matrix, path)
    return matrix


def read_dense(path: str | os.PathLike[str], finite: bool = True) -> Array:
    """The matrix in a file as a two-dimensional array; a sparse one is refused because it may not fit."""
    matrix = read_matrix(path, finite)
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2:
        raise InputError("found coordinates or not two dimensions; expected a dense matrix", where=str(path))
    return matrix


def read_sparse(path: str | os.PathLike[str], finite: bool = True) -> coo_array:
    """The matrix in a file as a `coo_array`; repeated entries are added up, as Matrix Market defines them."""
    from scipy.sparse import coo_array

    matrix = read_matrix(path, finite)
    if isinstance(matrix, np.ndarray) and matrix.ndim != 2:
        raise InputError(f"found {matrix.ndim} dimensions; expected 2", where=str(path))
    found = coo_array(matrix)
    found.sum_duplicates()
    return found


def _numbers(array: Array, where: str) -> Array:
    if array.dtype.kind not in "biufc":
        raise InputError(f"found an array of {array.dtype}; expected numbers", where=where)
    return array


def _check_finite(matrix: Array | coo_array, path: Path) -> None:
    values = matrix if isinstance(matrix, np.ndarray) else matrix.data
    if values.dtype.kind not in "fc":
        return
    bad = np.argwhere(~np.isfinite(values))
    if not len(bad):
        return
    where = tuple(int(i) for i in bad[0]) if isinstance(matrix, np.ndarray) else tuple(int(axis[bad[0][0]]) for axis in matrix.coords)
    raise InputError(f"found {values[tuple(bad[0])]} at {where} (counted from 0); expected finite numbers", where=str(path))


def _matrix_market(path: Path) -> Array | coo_array:
    from scipy.io import mmread

    with open_file(path, limit=MOST_BYTES, seekable=True) as file, tempfile.NamedTemporaryFile(suffix=".mtx") as plain:
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        check_header(file, size, path)
        _copy_proved(file, plain, path)
        try:
            # By name: given an open file, SciPy's reader ends the process for some malformed headers.
            matrix = mmread(plain.name, spmatrix=False)
        except (ValueError, OverflowError, MemoryError, OSError) as error:
            raise InputError(one_line(str(error)), where=str(path)) from error
    if isinstance(matrix, np.ndarray):
        return matrix
    return matrix.tocoo()


def _copy_proved(file: IO[bytes], plain: IO[bytes], path: Path) -> None:
    """Copies a file line by line, each of which is proved to be an entry, a remark or empty.

    SciPy's parser walks out of its buffer at a NUL, a torn or missing number, or blanks at an end without a line feed. The patterns
    never go back (possessive quantifiers), so a block is checked in one pass.
    """
    file.seek(0)
    first = file.readline(1024)
    plain.write(first)
    banner = [word.lower() for word in first.split()]
    number = 1
    while True:
        line = file.readline(4096)
        number += 1
        if line.strip() and not line.startswith(b"%"):
            plain.write(line.strip() + b"\n")
            break
        plain.write(b"%\n")
    row = {b"pattern": rb"", b"complex": NUMBER + BLANK + NUMBER}.get(banner[3], NUMBER)
    places = WHOLE + BLANK + WHOLE + (BLANK if row else rb"") if banner[2] == b"coordinate" else rb""
    line = rb"(?:[ \t]*+" + places + row + rb"[ \t\r]*+|%[^\n]*+|[ \t\r]*+)\n"
    lines, one = re.compile(rb"(?:" + line + rb")*+"), re.compile(line)
    rest = b""
    while piece := file.read(1 << 20):
        whole, cut, rest = (rest + piece).rpartition(b"\n")
        if len(rest) > 1 << 16:
            raise InputError("found a line of more than 64 KiB; expected an entry per line", where=str(path))
        _check_lines(lines, one, whole + cut, number, path)
        plain.write(whole + cut)
        number += (whole + cut).count(b"\n")
    _check_lines(lines, one, rest + b"\n" if rest else b"", number, path)
    plain.write(rest.rstrip() + b"\n" if rest else b"")
    plain.flush()


def _check_lines(lines: re.Pattern[bytes], one: re.Pattern[bytes], block: bytes, before: int, path: Path) -> None:
    if lines.fullmatch(block):
        return
    for number, line in enumerate(block.split(b"\n"), before + 1):
        if not one.fullmatch(line + b"\n"):
            found = one_line(line[:60].decode("ascii", "replace"))
            raise InputError(f'line {number}: found "{found}"; expected an entry of the kind that the banner names', where=str(path))


def check_header(file: IO[bytes], size: int, path: Path) -> None:
    """Refuses a Matrix Market file whose size line promises more entries than its bytes can hold."""
    banner = file.readline(1024).split()
    if len(banner) < 5 or banner[0].lower() != b"%%matrixmarket":
        raise InputError("line 1: not a Matrix Market file: the banner is missing", where=str(path))
    sparse = banner[2].lower() == b"coordinate"
    number = 1
    for raw in iter(lambda: file.readline(4096), b""):
        number += 1
        line = raw.strip()
        if line and not line.startswith(b"%"):
            break
    else:
        raise InputError("found no size line; expected rows, columns" + (", entries" if sparse else ""), where=str(path))
    try:
        sizes = [int(word) for word in line.split()]
    except ValueError:
        raise InputError(f"line {number}: the sizes are not whole numbers", where=str(path)) from None
    if len(sizes) != 2 + sparse or min(sizes) < 0:
        expected = "rows, columns, entries" if sparse else "rows, columns"
        raise InputError(f"line {number}: found {one_line(line.decode(errors='replace'))}; expected {expected}", where=str(path))
    rows, columns = sizes[:2]
    if max(rows, columns) > MOST_ROWS:
        raise InputError(f"line {number}: found {max(rows, columns)} rows or columns; expected at most {MOST_ROWS}", where=str(path))
    # A coordinate entry takes at least a digit and a separator for each of its two indices, an array entry a digit and a line end. A
    # symmetric array lists about half of its entries.
    least = 4 * sizes[2] if sparse else rows * columns if banner[4].lower() == b"general" else rows * max(columns - 1, 0) // 2
    if least > size:
        promised = sizes[2] if sparse else rows * columns
        raise InputError(f"line {number}: {promised} entries are announced, more than the file's {size} bytes hold", where=str(path))


def _npz(path: Path) -> Array | coo_array:
    names = check_archive(path)
    if "format" not in names:
        if len(names) != 1:
            raise InputError(
                f"found the arrays {', '.join(sorted(names)) or 'none'}; expected one, or a SciPy sparse array", where=str(path)
            )
        return _numbers(read_arrays(path, names, limit=None)[next(iter(names))], str(path))
    return _sparse(read_arrays(path, limit=None), str(path))


def _sparse(arrays: Mapping[str, Array], where: str) -> coo_array:
    """The matrix that SciPy's `save_npz` wrote as these arrays, proved before a compiled loop of SciPy's follows an index of it."""
    from scipy import sparse

    form = _word(arrays["format"], where)
    if form not in ("csr", "csc", "bsr", "coo", "dia"):
        raise InputError(f'found the format "{form}"; expected csr, csc, bsr, coo or dia', where=where)
    wanted = {"coo": ("shape", "data", "row", "col"), "dia": ("shape", "data", "offsets")}.get(form, ("shape", "data", "indices", "indptr"))
    missing = [name for name in wanted if name not in arrays]
    if missing:
        raise InputError(f"found no array {missing[0]}; expected {', '.join(wanted)}", where=where)
    shape, data, *index = (arrays[name] for name in wanted)
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or not (shape.min() >= 0 and shape.max() <= MOST_ROWS):
        raise InputError(f"found the shape {shape.tolist()[:4]}; expected two whole numbers of at most {MOST_ROWS}", where=where)
    rows, columns = (int(n) for n in shape)
    for name, found in zip(wanted[2:], index, strict=True):
        if found.ndim != 1 or found.dtype.kind not in "iu":
            raise InputError(f"{name}: found {found.ndim} dimensions of {found.dtype}; expected one of whole numbers", where=where)
    _numbers(data, where)
    if data.ndim != DIMENSIONS.get(form, 1):
        raise InputError(f"data: found {data.ndim} dimensions; expected {DIMENSIONS.get(form, 1)}", where=where)
    if form == "coo":
        _check_indices("row", index[0], rows, len(data), where)
        _check_indices("col", index[1], columns, len(data), where)
        return sparse.coo_array((data, (index[0], index[1])), shape=(rows, columns))
    if form == "dia":
        if len(index[0]) != len(data) or len(np.unique(index[0])) != len(data) or np.any((index[0] <= -rows) | (index[0] >= columns)):
            raise InputError("offsets: expected one for each row of data, all different and within the matrix", where=where)
        return _from_diagonals(data, index[0].astype(np.int64), rows, columns)
    block = data.shape[1:] if form == "bsr" else (1, 1)
    if min(block) < 1 or rows % block[0] or columns % block[1]:
        raise InputError(f"found blocks of {block[0]} × {block[1]} in a matrix of {rows} × {columns}", where=where)
    across, along = (columns, rows) if form == "csc" else (rows, columns)
    _check_pointers(index[1], across // (block[1] if form == "csc" else block[0]), len(data), where)
    _check_indices("indices", index[0], along // (block[0] if form == "csc" else block[1]), len(data), where)
    make: Any = {"csr": sparse.csr_array, "csc": sparse.csc_array, "bsr": sparse.bsr_array}[form]
    matrix: coo_array = make((data, index[0], index[1]), shape=(rows, columns)).tocoo()
    return matrix


def _from_diagonals(data: Array, offsets: Array, rows: int, columns: int) -> coo_array:
    """The entries of diagonals that are not zero, by rows; SciPy's own way takes memory for each row that the file claims."""
    from scipy import sparse

    held = data[:, :columns]
    column = np.broadcast_to(np.arange(held.shape[1]), held.shape)
    row = column - offsets[:, None]
    kept = (row >= 0) & (row < rows) & (held != 0)
    row, column, values = row[kept], column[kept], held[kept]
    order = np.lexsort((column, row))
    kind = sparse.get_index_dtype(maxval=max(rows, columns))
    return sparse.coo_array((values[order], (row[order].astype(kind), column[order].astype(kind))), shape=(rows, columns))


def _word(format_: Array, where: str) -> str:
    """The text in SciPy's `format` array, which is bytes or Unicode of no dimension."""
    found = format_.item() if format_.ndim == 0 and format_.dtype.kind in "SU" else None
    if found is None:
        raise InputError("format: expected a word", where=where)
    return found.decode("ascii", "replace") if isinstance(found, bytes) else str(found)


def _check_indices(name: str, found: Array, limit: int, count: int, where: str) -> None:
    if len(found) != count:
        raise InputError(f"{name}: found {len(found)} entries; expected {count}, one for each entry of data", where=where)
    if count and not (found.min() >= 0 and found.max() < limit):
        raise InputError(f"{name}: an index lies outside the matrix", where=where)


def _check_pointers(pointers: Array, lines: int, count: int, where: str) -> None:
    if len(pointers) != lines + 1:
        raise InputError(f"indptr: found {len(pointers)} entries; expected {lines + 1}", where=where)
    # Compared pairwise rather than by differences, which could overflow.
    if pointers[0] != 0 or pointers[-1] != count or np.any(pointers[1:] < pointers[:-1]):
        raise InputError(f"indptr: expected numbers from 0 to {count} that do not decrease", where=where)
