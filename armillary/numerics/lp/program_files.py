"""A linear program from a file of any format that is read here, by the ending of its name."""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from armillary.archives import check_archive
from armillary.errors import InputError, one_line

from .lp_format import read_lp
from .mps import read_mps
from .problem import Array, LinearProgram

_VECTORS = ("c", "l", "u", "lv", "uv")
_SPARSE = ("data", "indices", "indptr")


def read_program(path: str | os.PathLike[str]) -> LinearProgram:
    """The program in a file: `.lp` (CPLEX's format, by highspy), `.npz` (see `read_archive`), else MPS, fixed or free, plain or `.gz`."""
    ending = Path(path).suffix.lower()
    return read_lp(path) if ending == ".lp" else read_archive(path) if ending == ".npz" else read_mps(path)


def read_archive(path: str | os.PathLike[str]) -> LinearProgram:
    """The program in an `.npz`: costs `c`, row bounds `l` and `u`, variable bounds `lv` and `uv`, and the matrix.

    The matrix is the array `A`, or the sparse rows `data`, `indices` and `indptr`.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("no such file" if not path.exists() else "not a file", where=str(path))
    names = check_archive(path)
    wanted = {*_VECTORS, *(("A",) if "A" in names else _SPARSE)}
    if wanted - names:
        raise InputError(
            f"found no array {', '.join(sorted(wanted - names))}; expected {', '.join(_VECTORS)} and A or {', '.join(_SPARSE)}",
            where=str(path),
        )
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: _numbers(archive[name], name) for name in sorted(wanted)}
        matrix = csr_array(arrays["A"]) if "A" in arrays else _rows(arrays)
        return LinearProgram(arrays["c"], matrix, arrays["l"], arrays["u"], arrays["lv"], arrays["uv"], name=path.stem)
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError) as error:
        raise InputError(one_line(str(error)), where=str(path)) from error
    except InputError as error:
        raise InputError(str(error), where=str(path)) from error


def _numbers(array: Array, name: str) -> Array:
    if array.dtype.kind not in "iuf":
        raise InputError(f"{name}: found an array of {array.dtype}; expected numbers")
    if array.ndim != (2 if name == "A" else 1):
        raise InputError(f"{name}: found {array.ndim} dimensions; expected {2 if name == 'A' else 1}")
    return array if name in ("indices", "indptr") else array.astype(np.float64)


def _rows(arrays: dict[str, Array]) -> csr_array:
    if arrays["indices"].dtype.kind == "f" or arrays["indptr"].dtype.kind == "f":
        raise InputError("indices or indptr: found floats; expected integers")
    shape = (len(arrays["l"]), len(arrays["c"]))
    matrix = csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)
    matrix.check_format(full_check=True)
    matrix.sum_duplicates()
    return matrix
