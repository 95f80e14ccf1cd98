"""Every method gives SciPy's bits, and counts exactly what it sends."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from armillary import comm
from armillary.arena import NotForThisCase
from armillary.numerics.sparse import DistributedMatrix, Ieb, Operation, Spgemm, Work, permute
from armillary.numerics.sparse.arena import sparse
from armillary.numerics.sparse.rearranging.measure import WrongAnswer, full_blocks_alltoall, measure
from armillary.numerics.sparse.spgemm import packed_bytes, product
from armillary.numerics.sparse.workload import MATRICES, OPERATIONS, matrix, operation, rmat

RNG = np.random.default_rng


@pytest.mark.parametrize("name", sparse.techniques)
@pytest.mark.parametrize("what", OPERATIONS)
def test_every_method_does_every_operation(name, what):
    """`measure` compares with SciPy's indexing and raises where a bit differs."""
    found = matrix("poisson5" if what == "rcm" else "rmat", 6, RNG(1))
    work = Work(found, operation(what, found, RNG(2), batches=3))
    measured = measure(sparse.make(name), work, 4, rounds=1)
    simulated = measure(sparse.make(name), work, 4, cluster="perlmutter-cpu")
    assert measured.sent == simulated.sent
    assert measured.entries == simulated.entries
    assert sum(measured.entries) == work.expected.nnz
    assert simulated.seconds > 0


def test_the_expected_result_is_that_of_dense_indexing():
    for what in OPERATIONS:
        found = matrix("poisson27", 6, RNG(1))
        done = operation(what, found, RNG(2), batches=2)
        dense = found.toarray()
        if done.name == "assign":
            for rows, cols, batch in done.batches:
                dense[np.ix_(rows, cols)] = batch.toarray()
        else:
            dense = dense[done.rows][:, done.cols]
        assert np.array_equal(Work(found, done).expected.toarray(), dense)


def test_a_wrong_answer_is_found_out():
    class Lazy(Ieb):
        def apply(self, dealt, operation, batches):
            return dealt

    found = matrix("rmat", 5, RNG(0))
    with pytest.raises(WrongAnswer):
        measure(Lazy(), Work(found, operation("permute", found, RNG(1))), 4, rounds=1)


def test_spgemm_needs_a_square_grid():
    found = matrix("rmat", 4, RNG(0))
    with pytest.raises(NotForThisCase, match="square"):
        measure(Spgemm(), Work(found, operation("permute", found, RNG(1))), 6)


@pytest.mark.parametrize("side", [2, 3, 4])
def test_bytes_of_ieb_are_those_of_the_destinations(side):
    """The permutation alone gives the bytes: entries that leave, pairs of the inversion, gathers along rows and columns, counts, checks."""
    p = side * side
    n = 12 * p
    found = sp.random_array((n, n), density=0.05, rng=RNG(5), format="csc")
    rows, cols = RNG(6).permutation(n), RNG(7).permutation(n)
    measured = measure(Ieb(), Work(found, Operation("permute", rows, cols)), p, rounds=1)
    block, piece = n // side, n // p
    i, j = found.tocoo().coords
    old = i // block * side + j // block
    new = np.argsort(rows)[i] // block * side + np.argsort(cols)[j] // block
    for rank in range(p):
        entries = 16 * int(((old == rank) & (new != rank)).sum())
        chunk = np.arange(rank * piece, (rank + 1) * piece)
        pairs = 8 * int((rows[chunk] // piece != rank).sum())
        owner = cols[chunk] % block // piece * side + cols[chunk] // block
        pairs += 8 * int((owner != rank).sum())
        gathers = 2 * 4 * piece * (side - 1)
        counts = 3 * 8 * (p - 1)
        agreements = 3 * 8
        assert measured.sent[rank] == entries + pairs + gathers + counts + agreements
    bound = 16 * found.nnz / p + (2 * 4 * n / side) + 2 * 8 * n / p
    assert np.mean(measured.sent) <= bound + 24 * p + 24


def test_bytes_of_spgemm_are_the_blocks_that_it_broadcasts():
    """Every block goes to the √p − 1 others of its row or column, with the two lengths of each."""
    side, n = 3, 60
    a, b = (sp.random_array((n, n), density=0.05, rng=RNG(seed), format="csc") for seed in (1, 2))

    def program(ranks):
        method = Spgemm()
        left, right = method.deal(a, ranks), method.deal(b, ranks)
        before = sum(c.bytes for c in ranks.counters.values())
        result = product(left, right)
        sent = sum(c.bytes for c in ranks.counters.values()) - before
        sizes = [(np.count_nonzero(np.diff(one.block.indptr)), one.block.nnz) for one in (left, right)]
        return sent, sizes, method.collect(result)

    found = comm.run(program, ranks=side * side).values
    blocks = sum(packed_bytes(*size, np.dtype(np.int32), np.dtype(np.float64)) for _, sizes, _ in found for size in sizes)
    assert sum(sent for sent, _, _ in found) == (side - 1) * (blocks + 2 * 16 * side * side)
    assert np.allclose(found[0][2].toarray(), (a @ b).toarray())


def test_ieb_sends_less_than_spgemm_and_the_more_so_the_more_ranks():
    found = matrix("rmat", 9, RNG(0))
    work = Work(found, operation("permute", found, RNG(1)))
    ratios = [max(measure(Spgemm(), work, p, rounds=1).sent) / max(measure(Ieb(), work, p, rounds=1).sent) for p in (4, 16)]
    assert 1 < ratios[0] < ratios[1]


def test_exchanges_without_empty_blocks_give_the_same():
    a = matrix("hypersparse", 6, RNG(0))
    p = RNG(1).permutation(a.shape[0])

    def program(ranks):
        return permute(DistributedMatrix.from_scipy(a, ranks), p, p).to_scipy(None)

    plain = comm.run(program, ranks=6)[0]
    for backend in ("threads", "virtual"):
        skipping = comm.run(program, ranks=6, backend=backend, collectives={"alltoallv": full_blocks_alltoall})[0]
        assert np.array_equal(plain.indices, skipping.indices)
        assert np.array_equal(plain.data, skipping.data)


def test_matrices_are_what_they_are_called():
    five, many = matrix("poisson5", 8, RNG(0)), matrix("poisson27", 9, RNG(0))
    assert five.shape == (256, 256)
    assert np.diff(five.indptr).max() == 5
    assert np.array_equal(five.toarray(), five.toarray().T)
    assert many.shape == (512, 512)
    assert np.diff(many.indptr).max() == 27
    assert five.toarray().sum(axis=1).min() == 0
    assert many.toarray()[0, 0] == 26
    rows, cols = rmat(10, 100_000, RNG(0))
    top, left = rows < 512, cols < 512
    for share, quadrant in zip((0.57, 0.19, 0.19, 0.05), (top & left, top & ~left, ~top & left, ~top & ~left)):
        assert quadrant.mean() == pytest.approx(share, abs=0.01)
    assert matrix("hypersparse", 16, RNG(0)).shape == (10**6, 10**6)
    assert matrix("hypersparse", 16, RNG(0)).nnz <= 1000
    assert all(matrix(name, 6, RNG(0)).has_canonical_format for name in MATRICES)
