"""Matrices from files: Matrix Market, SciPy's `.npz` and NumPy's `.npy`.

What a header promises is compared with the file's size before anything is allocated, and nothing is unpickled. A compressed file is
unpacked before its size is taken, so that a small file cannot ask for much memory.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
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
        named = path
        if size != path.stat().st_size:  # It was packed.
            file.seek(0)
            shutil.copyfileobj(file, plain, 1 << 20)
            plain.flush()
            named = Path(plain.name)
        try:
            # By name: given an open file, SciPy's reader ends the process for some malformed headers.
            matrix = mmread(named, spmatrix=False)
        except (ValueError, OverflowError, MemoryError, OSError) as error:
            raise InputError(one_line(str(error)), where=str(path)) from error
    if isinstance(matrix, np.ndarray):
        return matrix
    return matrix.tocoo()


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
    from scipy.sparse import load_npz

    arrays = check_archive(path)
    if "format" not in arrays:
        if len(arrays) != 1:
            raise InputError(
                f"found the arrays {', '.join(sorted(arrays)) or 'none'}; expected one, or a SciPy sparse array", where=str(path)
            )
        return _numbers(read_arrays(path, arrays, limit=None)[next(iter(arrays))], str(path))
    try:
        matrix: Any = load_npz(path).tocoo()  # type: ignore[misc]
        _numbers(matrix.data, str(path))
        if any(len(axis) and not (axis.min() >= 0 and axis.max() < n) for axis, n in zip(matrix.coords, matrix.shape)):
            raise InputError("an index lies outside the matrix", where=str(path))
        if max(matrix.shape) > MOST_ROWS:
            raise InputError(f"found the shape {matrix.shape}; expected at most {MOST_ROWS} rows or columns", where=str(path))
    except InputError:
        raise
    except Exception as error:  # SciPy raises whatever its constructors meet: TypeError, IndexError, ValueError and more.
        raise InputError(f"not a sparse matrix: {one_line(str(error))}", where=str(path)) from error
    return matrix
