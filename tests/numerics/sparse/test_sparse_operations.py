"""Permute, extract and assign give SciPy's bits on every grid and backend."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.sparse as sp
import sparse_programs
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import comm
from armillary.errors import InputError
from armillary.numerics.sparse import Dcsc, DistributedMatrix, IndexVector, assign, extract, permute
from armillary.numerics.sparse.distribution.blocks import Blocks
from armillary.numerics.sparse.distribution.exchange import build, pack_triples
from armillary.numerics.sparse.rearranging.operations import Moves

GRIDS = [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 3), (4, 4)]


def same(found, expected):
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.dtype == b.dtype
            assert a.tobytes() == b.tobytes()


def test_three_by_three_by_hand():
    a = sp.csr_array(np.array([[1, 0, 2], [0, 3, 0], [4, 0, 5]]))
    expected = [[0, 5, 4], [0, 2, 1], [3, 0, 0]]
    assert permute(a, rows=[2, 0, 1], cols=[1, 2, 0]).toarray().tolist() == expected
    assert permute(a.tocsc(), rows=[2, 0, 1], cols=[1, 2, 0]).toarray().tolist() == expected

    def program(ranks):
        b = permute(DistributedMatrix.from_scipy(a, ranks, grid=(2, 2)), rows=[2, 0, 1], cols=[1, 2, 0])
        return b.to_scipy(root=None).toarray().tolist(), b.local.toarray().tolist()

    found = comm.run(program, ranks=4).values
    assert all(whole == expected for whole, _ in found)
    assert [local for _, local in found] == [[[0, 5], [0, 2]], [[4], [1]], [[3, 0]], [[0]]]


@pytest.mark.parametrize("backend", ["threads", "virtual"])
@pytest.mark.parametrize("grid", GRIDS)
def test_every_grid_gives_what_scipy_gives(grid, backend):
    found = comm.run(sparse_programs.everything, *grid, 23, 31, ranks=grid[0] * grid[1], backend=backend)
    same(found[0], sparse_programs.expected(23, 31))
    assert found.unreceived == []


@pytest.mark.parametrize("dtype", sparse_programs.TYPES)
def test_every_type_keeps_its_bits(dtype):
    same(comm.run(sparse_programs.everything, 2, 2, 19, 14, dtype, ranks=4)[0], sparse_programs.expected(19, 14, dtype))


@pytest.mark.parametrize(("m", "n", "density"), [(1, 40, 0.5), (40, 1, 0.5), (3, 3, 0.4), (30, 30, 0.0), (2, 2, 1.0), (64, 64, 0.01)])
def test_awkward_shapes_and_empty_ranks(m, n, density):
    found = comm.run(sparse_programs.everything, 2, 3, m, n, "float64", density, ranks=6)
    same(found[0], sparse_programs.expected(m, n, "float64", density))


def test_mpi_gives_what_scipy_gives():
    if comm.backends()["mpi"] or not comm.libraries():
        pytest.skip("no MPI here")
    how = {"ranks": 2, "backend": "mpi", "library": comm.libraries()[0].name, "timeout": 120}
    for found in comm.run(sparse_programs.on_both_grids, 17, 22, "complex128", **how)[0]:
        same(found, sparse_programs.expected(17, 22, "complex128"))


def test_nan_keeps_its_bits():
    odd = np.array([0x7FF8000000000123], np.uint64).view(np.float64)
    a = sp.csc_array((odd, (np.array([1]), np.array([2]))), shape=(3, 3))
    assert permute(a, rows=[2, 1, 0]).data.tobytes() == odd.tobytes()


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 2**32), st.floats(0, 0.6))
@settings(max_examples=30, deadline=None)
def test_there_and_back_again(m, n, seed, density):
    a, p, q, _, _ = sparse_programs.work(m, n, density=density, seed=seed)
    there = permute(a, rows=p, cols=q)
    same([sparse_programs.parts(permute(there, rows=np.argsort(p), cols=np.argsort(q)))], [sparse_programs.parts(a)])


@given(st.integers(2, 20), st.integers(2, 20), st.integers(0, 2**32), st.booleans())
@settings(max_examples=15, deadline=None)
def test_what_was_assigned_is_extracted(m, n, seed, empty):
    a, p, q, _, _ = sparse_programs.work(m, n, seed=seed)
    i, j = p[: 1 + m // 2], q[: 1 + n // 2]
    b = sparse_programs.work(i.size, j.size, density=0.0 if empty else 0.5, seed=seed + 1)[0]

    def program(ranks):
        left = DistributedMatrix.from_scipy(a, ranks)
        changed = assign(left, i, j, DistributedMatrix.from_scipy(b, ranks, left.grid))
        return extract(changed, i, j).to_scipy(None), changed.to_scipy(None)

    back, changed = comm.run(program, ranks=2)[0]
    same([sparse_programs.parts(back)], [sparse_programs.parts(b)])
    dense = a.toarray()
    dense[np.ix_(i, j)] = b.toarray()
    assert np.array_equal(changed.toarray(), dense)


def test_extract_repeats_and_takes_nothing():
    a = sp.csr_array(np.arange(16.0).reshape(4, 4))
    assert np.array_equal(extract(a, [3, 3, 0], [1, 1]).toarray(), a.toarray()[[3, 3, 0]][:, [1, 1]])
    assert extract(a, [], [0, 1]).shape == (0, 2)
    assert extract(a, np.repeat(np.arange(4), 5), [2]).shape == (20, 1)
    assert extract(a, [3, 3, 0], [1, 1]).format == "csr"


def test_few_and_many_indices_give_the_same():
    """Below the thresholds only requested columns are walked and bisected, and above them all columns by a table."""
    a, p, q, _, _ = sparse_programs.work(200, 300, density=0.1)

    def on_one_rank(ranks, count):
        return extract(DistributedMatrix.from_scipy(a, ranks), p[:count], q[:count]).to_scipy(0)

    for count in (3, 20, 24, 25, 26, 74, 75, 76, 150):
        for found in (extract(a, p[:count], q[:count]), comm.run(on_one_rank, count, ranks=1)[0]):
            assert np.array_equal(found.toarray(), a.toarray()[p[:count]][:, q[:count]])


@pytest.mark.parametrize("dtype", ["float64", "complex128", "int64", "bool", "float32"])
@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("threads", [1, 3])
def test_serial_extraction_gives_scipys_bits(dtype, kind, threads):
    a, p, q, _, _ = sparse_programs.work(3000, 2500, dtype, density=0.01)
    a = kind(a)
    rng = np.random.default_rng(3)
    for i, j in (
        (p[:300], q[:250]), (rng.integers(0, 3000, 500), rng.integers(0, 2500, 3000)), (p[:1], q), (p, q[:1]), (p[:0], q), (p[:9], q[:0]),
    ):  # fmt: skip
        expected = a[i][:, j]
        expected.sort_indices()
        same([sparse_programs.parts(extract(a, i, j, threads=threads))], [sparse_programs.parts(expected)])


def test_a_few_indices_of_very_many_are_bisected():
    rng = np.random.default_rng(0)
    columns = np.sort(rng.choice(10**12, 50, replace=False))
    a = sp.csr_array((np.arange(50.0), columns, np.arange(0, 51, 5)), shape=(10, 10**12))
    wanted = np.concatenate([columns[[40, 3, 3, 17]], [5]])
    found = extract(a, [8, 0, 3, 0], wanted)
    assert found.shape == (4, 5)
    assert found.toarray().tolist() == [[40, 0, 0, 0, 0], [0, 3, 3, 0, 0], [0, 0, 0, 17, 0], [0, 3, 3, 0, 0]]


def test_serial_assign():
    a = sp.csc_array(np.array([[1.0, 2, 0], [3, 0, 4], [0, 5, 6]]))
    b = sp.csc_array(np.array([[0.0, 7], [8, 0]]))
    assert assign(a, [0, 2], [0, 1], b).toarray().tolist() == [[0, 7, 0], [3, 0, 4], [8, 0, 6]]
    assert assign(a, [0, 2], [0, 1], b, accumulate="+").toarray().tolist() == [[1, 9, 0], [3, 0, 4], [8, 5, 6]]


@pytest.mark.parametrize("grid", GRIDS)
def test_the_identity_sends_nothing(grid):
    found = comm.run(sparse_programs.sent, *grid, "identity", ranks=grid[0] * grid[1])
    assert set(found.values) == {0}


def test_the_reversal_sends_every_entry_once():
    assert comm.run(sparse_programs.sent, 2, 2, "reversal", ranks=4).values == [4 * 16] * 4


def test_threads_do_not_change_the_buffer():
    a, p, q, _, _ = sparse_programs.work(400, 500, density=0.1)
    block, target = Dcsc.from_csc(a), Blocks(400, 500, 3, 4)
    buffers = [Moves.counted(block, np.argsort(p), np.argsort(q), target, threads).packed() for threads in (1, 2, 3)]
    assert buffers[0].size == a.nnz
    assert buffers[0].tobytes() == buffers[1].tobytes() == buffers[2].tobytes()
    counts = Moves.counted(block, np.argsort(p), np.argsort(q), target, 3).counts
    destination = np.argsort(p)[a.tocoo().coords[0]] // 134 * 4 + np.argsort(q)[a.tocoo().coords[1]] // 125
    assert np.array_equal(counts, np.bincount(destination, minlength=12))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("columns", [40, 5000, 10**7])
def test_build_sorts_anything(threads, columns):
    """Few columns with many rows take a radix sort, many with few rows ranks, and far more columns than entries a radix sort of columns."""
    rng = np.random.default_rng(3)
    keys = rng.integers(0, 50 * columns, 15000)
    rows, cols = np.unique(keys) % 50, np.unique(keys) // 50
    if columns == 40:
        rows, cols = np.divmod(rng.permutation(600 * 40), 40)
    order = rng.permutation(rows.size)
    values = rng.normal(size=rows.size)
    triples = pack_triples(rows[order], cols[order], values[order], np.dtype(np.int32))
    block = build(triples, (700, columns), np.dtype(np.float64), threads)
    expected = np.lexsort((rows, cols))
    assert np.array_equal(block.ir, rows[expected])
    assert np.array_equal(block.columns, cols[expected])
    assert np.array_equal(block.num, values[expected])
    assert np.array_equal(block.jc, np.unique(cols))


def test_repeated_entries_are_added_in_the_order_of_ranks():
    def program(ranks):
        value = np.array([1e16, 1.0, -1e16][ranks.rank])
        a = DistributedMatrix.from_triples(np.array([1]), np.array([2]), value.reshape(1), (3, 4), ranks)
        return a.to_scipy(None)[1, 2], a.block.nnz

    found = comm.run(program, ranks=3).values
    assert [value for value, _ in found] == [(1e16 + 1.0) - 1e16] * 3
    assert sum(stored for _, stored in found) == 1


def test_a_plan_says_what_will_be_sent():
    a, p, q, _, _ = sparse_programs.work(40, 30)

    def program(ranks):
        matrix = DistributedMatrix.from_scipy(a, ranks, (2, 2))
        plan = permute.plan(matrix, p, q)
        before = ranks.counters["exchange"].bytes if "exchange" in ranks.counters else 0
        b = plan.apply()
        sent = ranks.counters["exchange"].bytes - before
        return plan.bytes_per_rank, plan.entries_per_rank, plan.imbalance, sent, b.block.nnz, before, b.to_scipy(None)

    found = comm.run(program, ranks=4).values
    rows, cols = np.argsort(p)[a.tocoo().coords[0]], np.argsort(q)[a.tocoo().coords[1]]
    old = a.tocoo().coords[0] // 20 * 2 + a.tocoo().coords[1] // 15
    new = rows // 20 * 2 + cols // 15
    leaving = [16 * int(((old == r) & (new != r)).sum()) for r in range(4)]
    staying = np.bincount(new, minlength=4)
    for rank, (sends, entries, imbalance, sent, nnz, before, whole) in enumerate(found):
        assert sends.tolist() == leaving
        assert entries.tolist() == staying.tolist()
        assert nnz == staying[rank]
        assert sent == leaving[rank]
        assert before == 0
        assert imbalance == pytest.approx(staying.max() / staying.mean())
        assert np.array_equal(whole.toarray(), a.toarray()[p][:, q])


@pytest.mark.parametrize("limit", [1, 100, 1000, 4000])
def test_rounds_give_the_same(limit):
    a, p, q, _, _ = sparse_programs.work(40, 30)

    def program(ranks):
        b = permute(DistributedMatrix.from_scipy(a, ranks, (2, 2)), p, q, max_message_bytes=limit)
        return b.to_scipy(None), ranks.counters["exchange"]

    whole, counters = comm.run(program, ranks=4)[0]
    assert np.array_equal(whole.toarray(), a.toarray()[p][:, q])
    assert (counters.collectives > 1) == (limit < 4000)


def test_hypersparse_blocks_stay_small():
    rng = np.random.default_rng(0)
    n = 10**6
    a = sp.coo_array((np.ones(1000), (rng.integers(0, n, 1000), rng.integers(0, n, 1000))), shape=(n, n)).tocsc()
    p = rng.permutation(n)

    def program(ranks):
        b = permute(DistributedMatrix.from_scipy(a, ranks), p, p)
        return b.block.nbytes, b.triples()

    found = comm.run(program, ranks=4).values
    assert sum(nbytes for nbytes, _ in found) < 30_000
    rows, cols, values = (np.concatenate(parts) for parts in zip(*(triples for _, triples in found)))
    back = sp.coo_array((values, (rows, cols)), shape=(n, n))
    assert abs(back.tocsr() - a.tocsr()[p][:, p]).nnz == 0


def test_what_does_not_fit_into_memory_is_refused_at_once():
    """Reversing two thousand million rows ran for 90 s before it ended in a MemoryError."""
    n = 2**31 + 10
    a = sp.coo_array(([1.0], ([5], [7])), shape=(n, 8))

    def program(ranks):
        return permute(DistributedMatrix.from_triples(a.coords[0], a.coords[1], a.data, a.shape, ranks), rows=range(n - 1, -1, -1))

    with pytest.raises(comm.RankFailed, match=r"rows: a vector of 2,147,483,658 positions needs about [\d.]+ GiB, and [\d.]+ GiB are free"):
        comm.run(program, ranks=2)


def test_index_vectors_of_chunks():
    a, p, _, _, _ = sparse_programs.work(21, 9)

    def program(ranks):
        mine = ranks.local_range(21)
        vector = IndexVector.from_chunks(p[mine.start : mine.stop], ranks)
        return permute(DistributedMatrix.from_scipy(a, ranks), rows=vector).to_scipy(None)

    assert np.array_equal(comm.run(program, ranks=4)[0].toarray(), a.toarray()[p])
    with pytest.raises(comm.RankFailed, match=r"found 1 on rank 0; expected 2 of 3"):
        comm.run(lambda ranks: IndexVector.from_chunks(np.arange(1 + ranks.rank), ranks), ranks=2)


def test_it_is_an_operator_for_scipys_solvers():
    from scipy.sparse.linalg import cg

    n = 12
    line = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    poisson = sp.csc_array(sp.kron(line, sp.eye_array(n)) + sp.kron(sp.eye_array(n), line))
    wide = sparse_programs.work(17, 9, "complex128")[0]
    b = np.sin(np.arange(n * n))

    def program(ranks):
        operator = DistributedMatrix.from_scipy(poisson, ranks).as_linear_operator()
        x, failed = cg(operator, b, rtol=1e-10)
        other = DistributedMatrix.from_scipy(wide, ranks).as_linear_operator()
        return x, failed, other @ np.arange(9.0), other.H @ np.arange(17.0), other @ np.ones((9, 2))

    for x, failed, times, back, several in comm.run(program, ranks=4).values:
        assert failed == 0
        assert np.allclose(poisson @ x, b, atol=1e-8)
        assert np.allclose(times, wide @ np.arange(9.0))
        assert np.allclose(back, wide.conj().T @ np.arange(17.0))
        assert np.allclose(several, wide @ np.ones((9, 2)))


SAID = {
    "twice": "rows: found index 2 at positions 2 and 7; expected each index once|rows: found index 2 at positions 7 and 2|index 7 is missing",
    "outside": "cols: found index 10 at position 9; expected 0 to 9",
    "negative": "rows: found index -1 at position 0; expected 0 to 11",
    "short": "rows: found 11 indices; expected a permutation of 12",
    "float": "rows: found 1 dimensions of float64; expected one, of whole numbers",
    "shape": r"batch of shape \(3, 2\); expected \(2, 2\)",
    "repeated": "rows: found index 0 at positions 0 and 2; expected each index at most once",
    "repeated-cols": "cols: found index 4 at positions 0 and 1",
    "complex": "found values of complex128; expected float64",
    "accumulate": 'unknown accumulate "max"',
    "scipy": "expected both distributed or both SciPy's",
    "grid": "expected a product of",
    "threads": "threads: found 0; expected 1 to 1024",
    "dense": "found ndarray; expected a two-dimensional sparse array",
    "limit": "max_message_bytes: found 0",
}


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("what", SAID)
def test_bad_input_is_refused_on_every_rank_alike(what, ranks):
    found = comm.run(sparse_programs.refused, what, ranks=ranks).values
    assert len(set(found)) == 1
    assert re.search(SAID[what], found[0])
    if what == "twice" and ranks == 1:
        assert "index 2 at positions 2 and 7" in found[0]


def test_a_repeated_index_is_found_without_gathering():
    """No rank receives more than its share: a bad permutation of 4,000 over four ranks moves at most the pairs of one chunk."""
    n = 4000
    p = np.arange(n)
    p[17] = 3000

    def program(ranks):
        a = DistributedMatrix.from_scipy(sp.csc_array((n, 1)), ranks, (2, 2))
        try:
            permute(a, rows=p)
        except InputError as error:
            return str(error), ranks.counters["identify"].bytes
        return None

    for said, sent in comm.run(program, ranks=4).values:
        assert "index 17 is missing" in said or "index 3000 at positions" in said
        assert sent < 1000


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda a: permute(a, rows=[0, 0, 2]), "rows: found index 0 at positions 0 and 1"),
        (lambda a: permute(a, cols=[0, 1, 3]), "cols: found index 3 at position 2; expected 0 to 2"),
        (lambda a: permute(a, cols=[0, 1]), "expected a permutation of 3"),
        (lambda a: permute(np.eye(3)), "found ndarray"),
        (lambda a: extract(a, [3], [0]), "rows: found index 3"),
        (lambda a: assign(a, [0], [0], a), r"expected \(1, 1\)"),
        (lambda a: assign(a, [0], [0], np.eye(1)), "found ndarray"),
        (lambda a: permute(a, rows=[0, 1, 2], threads=1.5), "threads"),
    ],
)
def test_bad_input_of_plain_matrices(call, says):
    with pytest.raises(InputError, match=says):
        call(sp.csr_array(np.eye(3)))
