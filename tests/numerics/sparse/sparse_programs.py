"""Programs of ranks for the tests of sparse matrices, importable by name so that MPI ranks find them."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from armillary.errors import InputError
from armillary.numerics.sparse import DistributedMatrix, assign, extract, permute, repartition

TYPES = ["float64", "float32", "complex128", "bool", "int64", "int16"]


def work(m, n, dtype="float64", density=0.2, seed=0):
    """Draws a sparse matrix, permutations of its rows and columns, and index vectors with repetitions."""
    rng = np.random.default_rng(seed)
    matrix = sp.random_array((m, n), density=density, rng=rng, format="csc")
    values = rng.integers(1, 100, matrix.nnz) - 50.5
    if dtype.startswith("complex"):
        values = values + 1j * rng.integers(-9, 9, matrix.nnz)
    matrix = sp.csc_array((values.astype(dtype), matrix.indices, matrix.indptr), shape=(m, n))
    matrix.sum_duplicates()
    return matrix, rng.permutation(m), rng.permutation(n), rng.integers(0, max(m, 1), 2 * m), rng.integers(0, max(n, 1), n // 2 + 1)


def parts(matrix):
    """Returns the arrays of a SciPy matrix, to be compared bit by bit."""
    found = matrix.tocsc()
    return [np.array(found.shape), found.indptr.astype(np.int64), found.indices.astype(np.int64), found.data]


def everything(comm, rows, columns, m, n, dtype="float64", density=0.2, threads=1):
    """Performs every operation on one grid; rank 0 returns the whole results."""
    matrix, p, q, i, j = work(m, n, dtype, density)
    a = DistributedMatrix.from_scipy(matrix, comm, (rows, columns))
    some, few = p[: m // 2], q[: n // 3]
    batch = work(some.size, few.size, dtype, 0.4, seed=1)[0]
    b = DistributedMatrix.from_scipy(batch, comm, a.grid)
    results = [
        permute(a, rows=p, cols=q, threads=threads),
        permute(a, rows=p),
        permute(a, cols=q),
        extract(a, i, j, threads=threads),
        extract(a, p[:1], slice(None)),
        assign(a, some, few, b, threads=threads),
        assign(a, some, few, b, accumulate="+"),
        repartition(a, comm, (columns, rows)),
        DistributedMatrix.from_scipy(matrix if comm.rank == 0 else None, comm, a.grid, root=0),
    ]
    found = [result.to_scipy() for result in results]
    return [parts(one) for one in found] if comm.rank == 0 else None


def on_both_grids(comm, *arguments):
    """Performs every operation on two ranks side by side, and on one above the other."""
    return [everything(comm, *grid, *arguments) for grid in ((1, 2), (2, 1))]


def expected(m, n, dtype="float64", density=0.2):
    """Returns the same by SciPy's fancy indexing, sorted; assignments are made entry by entry."""
    matrix, p, q, i, j = work(m, n, dtype, density)
    some, few = p[: m // 2], q[: n // 3]
    batch = work(some.size, few.size, dtype, 0.4, seed=1)[0]
    rows = matrix.tocsr()
    found = [rows[p][:, q], rows[p], rows[:, q], rows[i][:, j], rows[p[:1]]]
    for add in (False, True):
        entries = dict(zip(zip(*(axis.tolist() for axis in matrix.tocoo().coords)), matrix.tocoo().data))
        if not add:
            entries = {(r, c): v for (r, c), v in entries.items() if r not in set(some) or c not in set(few)}
        for k, x, v in zip(*batch.tocoo().coords, batch.tocoo().data):
            place = (int(some[k]), int(few[x]))
            entries[place] = entries[place] + v if add and place in entries else v
        places = np.array(list(entries), np.int64).reshape(-1, 2)
        found.append(sp.coo_array((np.array(list(entries.values()), matrix.dtype), (places[:, 0], places[:, 1])), shape=matrix.shape))
    found += [matrix, matrix]
    result = []
    for one in found:
        one = one.tocsc()
        one.sort_indices()
        result.append(parts(one))
    return result


def sent(comm, rows, columns, kind):
    """Returns the bytes that each rank sends in the exchange of a permutation of a full 4 × 4 matrix."""
    a = DistributedMatrix.from_scipy(sp.csc_array(np.arange(1.0, 17.0).reshape(4, 4)), comm, (rows, columns))
    order = np.arange(4)[:: -1 if kind == "reversal" else 1]
    permute(a, rows=order, cols=order)
    return comm.counters["exchange"].bytes


def refused(comm, what):
    """Returns what every rank says of a bad index vector."""
    matrix = work(12, 10)[0]
    a = DistributedMatrix.from_scipy(matrix, comm)
    b = DistributedMatrix.from_scipy(matrix[:3, :2], comm)
    wide = DistributedMatrix.from_scipy(matrix.astype(complex)[:2, :2], comm)
    twice = np.arange(12)
    twice[7] = 2
    calls = {
        "twice": lambda: permute(a, rows=twice),
        "outside": lambda: permute(a, cols=np.arange(10) + 1),
        "negative": lambda: extract(a, [-1], [0]),
        "short": lambda: permute(a, rows=np.arange(11)),
        "float": lambda: permute(a, rows=np.arange(12.0)),
        "shape": lambda: assign(a, [0, 1], [0, 1], b),
        "repeated": lambda: assign(a, [0, 1, 0], [0, 1], b),
        "repeated-cols": lambda: assign(a, [0, 1, 2], [4, 4], b),
        "complex": lambda: assign(a, [0, 1], [0, 1], wide),
        "accumulate": lambda: assign(a, [0, 1, 2], [0, 1], b, accumulate="max"),
        "scipy": lambda: assign(a, [0, 1, 2], [0, 1], matrix),
        "grid": lambda: DistributedMatrix.from_scipy(matrix, comm, (comm.size, 2)),
        "threads": lambda: permute(a, threads=0),
        "dense": lambda: DistributedMatrix.from_scipy(np.ones((2, 2)), comm),
        "limit": lambda: permute(a, rows=np.arange(12)[::-1], max_message_bytes=0),
    }
    try:
        calls[what]()
    except InputError as error:
        return str(error)
    return None
