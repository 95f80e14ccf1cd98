"""Makes tall matrices that are easy, hard or treacherous to orthogonalise, and reads matrices from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError, one_line, unknown
from armillary.files import map_array
from armillary.files.matrices import read_dense

from .cholqr2 import CholQr2

if TYPE_CHECKING:
    from armillary.comm import Communicator

KAPPAS = ("1e2", "1e7", "1e8", "1e10", "1e12", "1e15", "1e16")
#: The families by name.
FAMILIES = (*(f"kappa-{k}" for k in KAPPAS), "graded", "near-dependent", "kahan", "vandermonde", "wilkinson")
_TABLES = (".parquet", ".csv")


def matrix(family: str, m: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Returns an m×n matrix of a family, float64:

    `kappa-K`: U·diag(logspace(0, −log₁₀ K))·Vᵀ with random orthonormal U and V; `graded`: normal columns times 10^(−20 j/n);
    `near-dependent`: the second half of the columns is the first one and 1e-13 of noise; `kahan`: a random orthonormal U times Kahan's
    triangle; `vandermonde`: powers of m points in [−1, 1]; `wilkinson`: somewhere the n rows on which partial pivoting grows by 2^(n−1),
    and noise of 1e-10.
    """
    if m < n or n < 1:
        raise InputError(f"found {m}×{n}; expected at least as many rows as columns, and one column")
    if family.startswith("kappa-") and family.removeprefix("kappa-") in KAPPAS:
        kappa = float(family.removeprefix("kappa-"))
        right = np.linalg.qr(rng.normal(size=(n, n)))[0]
        return _orthonormal(m, n, rng) @ (np.logspace(0, -np.log10(kappa), n)[:, None] * right.T)
    if family == "graded":
        return rng.normal(size=(m, n)) * 10.0 ** (-20 * np.arange(n) / n)
    if family == "near-dependent":
        a = rng.normal(size=(m, n))
        half = n // 2
        a[:, half : 2 * half] = a[:, :half] + 1e-13 * a[:, half : 2 * half]
        return a
    if family == "kahan":
        sine, cosine = np.sin(1.2), np.cos(1.2)
        triangle = np.diag(sine ** np.arange(n)) @ (np.eye(n) - cosine * np.triu(np.ones((n, n)), 1))
        return _orthonormal(m, n, rng) @ triangle
    if family == "vandermonde":
        return np.ascontiguousarray(np.linspace(-1, 1, m)[:, None] ** np.arange(n))
    if family == "wilkinson":
        a = 1e-10 * rng.normal(size=(m, n))
        block = np.eye(n) - np.tril(np.ones((n, n)), -1)
        block[:, -1] = 1.0
        start = (m - n) // 2
        a[start : start + n] = block
        return a
    raise unknown("family", family, FAMILIES)


def _orthonormal(m: int, n: int, rng: np.random.Generator) -> np.ndarray:
    found: np.ndarray = CholQr2().factorise(rng.normal(size=(m, n)))[0]
    return found


def read_rows(path: Path | str, comm: Communicator | None = None, columns: str = "") -> np.ndarray:
    """Reads this rank's rows of the matrix in a file, dealt in blocks of ⌈m/p⌉.

    The file is a `.npy` (mapped, so that only these rows are read), `.mtx` or `.mtx.gz`, or the numeric columns of a Parquet or CSV table,
    or those named in `columns` ("x,y").
    """
    path = Path(path)
    name = path.name.lower()
    if columns and not name.endswith(_TABLES):
        raise InputError("found columns for a file that is no table; expected none", where=str(path))
    if name.endswith(_TABLES):
        whole = _table(path, columns)
    elif name.endswith(".npy") and path.is_file():
        whole = map_array(path)
        if whole.ndim != 2:
            raise InputError(f"found {whole.ndim} dimensions; expected 2", where=str(path))
    elif name.endswith((".mtx", ".mtx.gz")) or not path.exists():
        whole = read_dense(path, finite=False)
    else:
        raise InputError(f"found the ending {path.suffix or 'none'}; expected .npy, .mtx, .mtx.gz, .parquet or .csv", where=str(path))
    mine = slice(None) if comm is None else slice(comm.local_range(whole.shape[0]).start, comm.local_range(whole.shape[0]).stop)
    block = whole[mine]
    return np.ascontiguousarray(block, block.dtype if block.dtype.name in ("float32", "float64", "complex64", "complex128") else np.float64)


def _table(path: Path, columns: str) -> np.ndarray:
    import polars as pl

    if not path.is_file():
        raise InputError("no such file", where=str(path))
    try:
        frame: Any = pl.read_parquet(path) if path.suffix.lower() == ".parquet" else pl.read_csv(path)
    except Exception as error:  # Polars raises many kinds for a file that is not what it says.
        raise InputError(f"not a table: {one_line(str(error))}", where=str(path)) from error
    if columns:
        for column in columns.split(","):
            if column not in frame.columns:
                raise unknown("column", column, frame.columns, where=str(path))
            if not frame.schema[column].is_numeric():
                raise InputError(f'column "{column}": found {frame.schema[column]}; expected numbers', where=str(path))
        frame = frame.select(columns.split(","))
    else:
        frame = frame.select([name for name, kind in frame.schema.items() if kind.is_numeric()])
    if not frame.width or not frame.height:
        raise InputError(f"found {frame.height} rows of {frame.width} numeric columns; expected some", where=str(path))
    for name in frame.columns:
        if frame[name].null_count():
            row = int(frame[name].is_null().arg_max())
            raise InputError(f'column "{name}", row {row}: found nothing; expected a number', where=str(path))
    found: np.ndarray = frame.cast(pl.Float64).to_numpy()
    return found
