"""Reads a linear program from a file, in the format that the ending of its name tells."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from armillary.errors import InputError, one_line
from armillary.files import check_archive, read_arrays

from ..program.problem import Array, LinearProgram
from .lp_format import read_lp
from .mps import read_mps

_VECTORS = ("c", "l", "u", "lv", "uv")
_SPARSE = ("data", "indices", "indptr")


def read_program(path: str | os.PathLike[str]) -> LinearProgram:
    """Reads a `.lp` file (CPLEX's format, by highspy), an `.npz` (see `read_archive`), or an MPS file, plain or `.gz`."""
    ending = Path(path).suffix.lower()
    return read_lp(path) if ending == ".lp" else read_archive(path) if ending == ".npz" else read_mps(path)


def read_archive(path: str | os.PathLike[str]) -> LinearProgram:
    """Reads the program in an `.npz`: costs `c`, row bounds `l` and `u`, variable bounds `lv` and `uv`, and the matrix.

    The matrix is the array `A`, or the sparse rows `data`, `indices` and `indptr`.
    """
    path = Path(path)
    names = check_archive(path)
    wanted = {*_VECTORS, *(("A",) if "A" in names else _SPARSE)}
    if wanted - names:
        missing, expected = ", ".join(sorted(wanted - names)), f"{', '.join(_VECTORS)} and A or {', '.join(_SPARSE)}"
        raise InputError(f"found no array {missing}; expected {expected}", where=str(path))
    try:
        arrays = {name: _numbers(array, name) for name, array in read_arrays(path, sorted(wanted), limit=None).items()}
        matrix = csr_array(arrays["A"]) if "A" in arrays else _rows(arrays)
        return LinearProgram(arrays["c"], matrix, arrays["l"], arrays["u"], arrays["lv"], arrays["uv"], name=path.stem)
    except InputError as error:
        raise error if error.where else InputError(str(error), where=str(path)) from error
    except ValueError as error:  # SciPy's check of the sparse rows.
        raise InputError(one_line(str(error)), where=str(path)) from error


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
