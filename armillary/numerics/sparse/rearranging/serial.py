"""The three operations on SciPy matrices in one process, by the same identify and build with nothing to exchange."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.memory import require

from ..distribution.dcsc import Array, Dcsc, carrier, index_type
from ..distribution.distributed import DistributedMatrix, canonical
from ..distribution.index_vector import whole_numbers
from .kernels import gather_rows, look_up, take_found, take_permuted
from .threaded import balanced, each, worthwhile


def permute(matrix: Any, rows: Any, cols: Any, threads: int) -> Any:
    """Returns B[i, j] = A[rows[i], cols[j]] of a SciPy sparse matrix, CSC or else CSR, with sorted indices."""
    source, by_rows = _compressed(matrix)
    m, n = source.shape
    p = None if rows is None else _permutation(rows, m, "rows")
    q = None if cols is None else _permutation(cols, n, "cols")
    major, minor, size, other = (p, q, m, n) if by_rows else (q, p, n, m)
    index = source.indices.dtype
    order = np.arange(size) if major is None else major
    renamed = np.arange(other, dtype=index) if minor is None else _inverse(minor, index)
    pointers = np.zeros(size + 1, source.indptr.dtype)
    np.cumsum(np.diff(source.indptr)[order], out=pointers[1:])
    indices, data = np.empty(source.indices.size, index), np.empty_like(source.data)
    bits = carrier(source.dtype)
    threads = worthwhile(threads, indices.size)
    borders = balanced(pointers, threads)
    before, after = np.ascontiguousarray(source.data).view(bits), data.view(bits)

    def work(t: int) -> None:
        take_permuted(source.indptr, source.indices, before, order, renamed, borders[t], borders[t + 1], pointers, indices, after)

    each(work, threads, threads)
    found: Any = type(source)((data, indices, pointers), shape=(m, n))
    found.has_canonical_format = True
    return found


def extract(matrix: Any, rows: Any, cols: Any, threads: int) -> Any:
    """Returns C = A[rows][:, cols] of a SciPy sparse matrix; in CSC where A is, else CSR.

    Only the rows (columns in CSC) that are wanted are read.
    """
    source, by_rows = _compressed(matrix)
    m, n = source.shape
    i, j = _positions(rows, m, "rows"), _positions(cols, n, "cols")
    major, minor, other = (i, j, n) if by_rows else (j, i, m)
    starts = source.indptr[major].astype(np.int64)
    ptr = np.zeros(major.size + 1, np.int64)
    np.cumsum(np.diff(source.indptr)[major], out=ptr[1:])
    keys, table, key_ptr, pos = _looked_up(minor, other, int(ptr[-1]))
    threads = worthwhile(threads, int(ptr[-1]))
    borders = balanced(ptr, threads)
    found, counts = np.empty(int(ptr[-1]), source.indices.dtype), np.zeros(major.size + 1, np.int64)

    def look(t: int) -> None:
        gather_rows(starts, ptr, source.indices, borders[t], borders[t + 1], found)
        look_up(found, ptr, borders[t], borders[t + 1], keys, table, key_ptr, counts)

    each(look, threads, threads)
    pointers = np.cumsum(counts)
    index = index_type(max(i.size, j.size, int(pointers[-1])))
    indices, data = np.empty(int(pointers[-1]), index), np.empty(int(pointers[-1]), source.dtype)
    bits = carrier(source.dtype)
    before, after = np.ascontiguousarray(source.data).view(bits), data.view(bits)

    def fill(t: int) -> None:
        take_found(found, before, starts, ptr, key_ptr, pos, borders[t], borders[t + 1], pointers, indices, after)

    each(fill, threads, threads)
    taken: Any = type(source)((data, indices, pointers.astype(index)), shape=(i.size, j.size))
    taken.has_canonical_format = True
    return taken


def assign(matrix: Any, rows: Any, cols: Any, values: Any, accumulate: str | None, threads: int) -> Any:
    """Returns A with B written to rows × cols, of SciPy sparse matrices; in CSC where A is, else CSR."""
    from . import operations

    turned, csc = _as_columns(matrix)
    batch = canonical(values)
    if turned:
        rows, cols, batch = cols, rows, canonical(batch.T)
    return _on_one_rank(
        lambda both: operations.assign(both[0], rows, cols, both[1], accumulate=accumulate, threads=threads), turned, csc, batch
    )


def check_batch(rows: Any, cols: Any, values: Any) -> None:
    """Refuses a batch whose shape does not fit index arrays."""
    if isinstance(rows, slice | range) or isinstance(cols, slice | range):
        return
    expected = (whole_numbers(rows, "rows").size, whole_numbers(cols, "cols").size)
    if canonical(values).shape != expected:
        raise InputError(f"assign: found a batch of shape {values.shape}; expected {expected}, one for each index")


def _compressed(matrix: Any) -> tuple[Any, bool]:
    """Returns the matrix with sorted indices and no repeated entries, CSC where it is that, else CSR, and whether it is CSR."""
    from scipy.sparse import csc_array, csr_array, issparse

    if not issparse(matrix) or len(getattr(matrix, "shape", ())) != 2:
        raise InputError(f"matrix: found {type(matrix).__name__}; expected a two-dimensional sparse array of SciPy")
    given: Any = matrix
    by_rows = given.format != "csc"
    source: Any = (csr_array if by_rows else csc_array)(given)
    # SciPy remembers the answer on the matrix that was given, and looks through all entries of a new one.
    sure = given if given.format in ("csr", "csc") else source
    if not sure.has_canonical_format:
        source = source.copy() if source.indices is getattr(matrix, "indices", None) else source
        source.sum_duplicates()
    return source, by_rows


def _positions(values: Any, n: int, what: str) -> Array:
    """Returns the positions that are asked for, each of 0 … n − 1."""
    if isinstance(values, slice):
        values = range(*values.indices(n))
    if isinstance(values, range):
        require(4 * 8 * len(values), f"{what}: a vector of {len(values):,} positions")
        values = np.arange(values.start, values.stop, values.step, dtype=np.int64)
    found = whole_numbers(values, what)
    bad = np.flatnonzero((found < 0) | (found >= n))
    if bad.size:
        expected = f"0 to {n - 1}" if n else "none"
        raise InputError(f"{what}: found index {found[bad[0]]} at position {bad[0]}; expected {expected}")
    return found.astype(index_type(n), copy=False)


def _looked_up(minor: Array, size: int, reads: int) -> tuple[Array, Array, Array, Array]:
    """Returns how `look_up` finds where an index is wanted: sorted keys or a table, and the positions of each key.

    A table of all indices is made where it is not much larger than what is read; without repeats it holds the positions themselves.
    """
    none, order = np.empty(0, np.int64), np.arange(minor.size, dtype=np.int32 if minor.size < 2**31 else np.int64)
    tabled = size <= 4 * (reads + minor.size) + (1 << 16)
    table = np.full(size if tabled else 0, -1, order.dtype)
    if tabled:
        table[minor] = order
        if np.array_equal(table[minor], order):
            return none, table, none, none
    keys, which, counts = np.unique(minor, return_inverse=True, return_counts=True)
    if tabled:
        table[keys] = np.arange(keys.size, dtype=table.dtype)
    return keys, table, np.concatenate(([0], np.cumsum(counts))), np.argsort(which, kind="stable")


def _as_columns(matrix: Any) -> tuple[bool, Any]:
    """Says whether the transpose is taken, and the matrix or its transpose in compressed columns."""
    from scipy.sparse import issparse

    turned = bool(issparse(matrix)) and getattr(matrix, "format", "") != "csc" and len(getattr(matrix, "shape", ())) == 2
    return turned, canonical(matrix.tocsr().T) if turned else canonical(matrix)


def _on_one_rank(work: Any, turned: bool, *matrices: Any) -> Any:
    """Does the work on one rank, which shares the arrays that it is given; the result is turned back where the transpose was taken."""
    from armillary.comm import RankFailed, run

    def program(comm: Any) -> DistributedMatrix:
        grid = comm.grid(1, 1)
        return work([DistributedMatrix(grid, matrix.shape, Dcsc.from_csc(matrix)) for matrix in matrices])

    try:
        found: Any = run(program, backend="one")[0].local
    except RankFailed as failed:
        if isinstance(failed.exception, InputError):
            raise _named_back(failed.exception, turned) from None
        raise
    return found.T if turned else found


def _named_back(error: InputError, turned: bool) -> InputError:
    """Returns the error with rows and columns as the caller named them."""
    said = str(error)
    names = {"rows:": "cols:", "cols:": "rows:"}
    return InputError(names[said[:5]] + said[5:]) if turned and said[:5] in names else error


def _permutation(values: Any, n: int, what: str) -> Array:
    require(4 * 8 * n, f"{what}: a permutation of {n:,} positions")
    if isinstance(values, slice):
        values = np.arange(n)[values]
    found = whole_numbers(values, what)
    if found.size != n:
        raise InputError(f"{what}: found {found.size} indices; expected a permutation of {n}")
    bad = np.flatnonzero((found < 0) | (found >= n))
    if bad.size:
        raise InputError(f"{what}: found index {found[bad[0]]} at position {bad[0]}; expected 0 to {n - 1}")
    counts = np.bincount(found, minlength=n)
    twice = np.flatnonzero(counts > 1)
    if twice.size:
        first, second = np.flatnonzero(found == twice[0])[:2]
        raise InputError(f"{what}: found index {twice[0]} at positions {first} and {second}; expected each index once")
    return found.astype(index_type(n), copy=False)


def _inverse(permutation: Array, index: np.dtype[Any]) -> Array:
    found = np.empty(permutation.size, index)
    found[permutation] = np.arange(permutation.size, dtype=index)
    return found
