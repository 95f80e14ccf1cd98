"""The same bits on every backend, and exactly as much communication as the formulas say."""

from __future__ import annotations

import numpy as np
import pytest
import qr_programs

from armillary import comm
from armillary.numerics.qr import tall_qr
from armillary.numerics.qr.arena import qr, simulated
from armillary.numerics.qr.factors.tall import METHODS


def expected(method, p, n):
    """Returns collectives and the bytes of the rank that sends most, for p a power of two.

    A message of the tree has n² words, and an allreduce has n(n+1)/2.
    """
    rounds, square, half = p.bit_length() - 1, n * n, n * (n + 1) // 2
    collectives, words = {
        "cholqr": (1, half), "cholqr2": (2, 2 * half), "scholqr3": (3, 3 * half), "lu-cholqr": (3, rounds * square + half),
        "lu-cholqr2": (4, rounds * square + 2 * half), "tsqr": (2, rounds * 2 * square),
        "householder": (2 * n, 2 * n + n * (n - 1) // 2 + 2 * square), "mgs": (2 * n - 1, n + n * (n - 1) // 2),
        "randomized-cholqr": (2, 4 * square + half),
    }[method]  # fmt: skip
    return collectives, 8 * words


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("p", "backend"), [(8, "threads"), (8, "virtual"), (64, "virtual")])
def test_communication_by_formula(method, p, backend):
    n = 6
    a = np.random.default_rng(0).normal(size=(p * 20, n))
    ran = comm.run(qr_programs.factored, a, method, ranks=p, backend=backend)
    counters = [rank["factor"] for rank in ran.counters]
    assert {c.collectives for c in counters} == {expected(method, p, n)[0]}
    assert max(c.bytes for c in counters) == expected(method, p, n)[1]
    assert [value[4:] for value in ran.values] == [(c.collectives, c.bytes) for c in counters]
    assert {rank["check"].collectives for rank in ran.counters} == {3}


@pytest.mark.parametrize(("pivoting", "collectives", "words"), [("local", 3, 25 + 30), ("none", 3, 25 + 30)])
def test_communication_of_other_pivots(pivoting, collectives, words):
    a = np.random.default_rng(0).normal(size=(100, 5))
    ran = comm.run(qr_programs.factored, a, "lu-cholqr2", None, {"pivoting": pivoting}, ranks=4)
    assert [value[4:] for value in ran.values] == [(collectives, 8 * words)] * 4


@pytest.mark.parametrize("method", ["auto", *METHODS])
@pytest.mark.parametrize("p", [1, 2, 3, 4, 7])
def test_virtual_ranks_give_the_bits_of_threads(method, p):
    a = qr_programs.whole("kappa-1e7", 200, 5)
    threads = comm.run(qr_programs.factored, a, method, ranks=p).values
    virtual = comm.run(qr_programs.factored, a, method, ranks=p, backend="virtual").values
    for one, other in zip(threads, virtual):
        assert one[0].tobytes() == other[0].tobytes()
        assert one[1].tobytes() == other[1].tobytes()


@pytest.mark.skipif(bool(comm.backends()["mpi"]), reason="no MPI here")
@pytest.mark.parametrize("ranks", [2, 5])
def test_mpi_gives_the_bits_of_threads(ranks):
    library = comm.libraries()[0].name
    arguments = ("kappa-1e7", 300, 6, ("lu-cholqr2", "tsqr", "cholqr2"))
    mpi = comm.run("qr_programs:triangles", *arguments, ranks=ranks, backend="mpi", library=library, timeout=60).values
    threads = comm.run(qr_programs.triangles, *arguments, ranks=ranks).values
    for found in (*mpi, *threads):
        assert [r.tobytes() for r in found] == [r.tobytes() for r in threads[0]]


@pytest.mark.parametrize("method", ["auto", *METHODS])
@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_ranks_factor_what_one_process_factors(method, p):
    a = np.random.default_rng(3).normal(size=(257, 9))
    alone_q, alone_r, _ = tall_qr(a, None, method)
    values = comm.run(qr_programs.factored, a, method, ranks=p).values
    np.testing.assert_allclose(values[0][1], alone_r, atol=1e-12)
    np.testing.assert_allclose(np.concatenate([v[0] for v in values]), alone_q, atol=1e-12)


def test_the_choice_of_algorithms_is_left_as_it_was():
    def program(ranks):
        before = dict(ranks._chosen)
        tall_qr(np.random.default_rng(ranks.rank).normal(size=(9, 3)), ranks)
        return before == ranks._chosen

    assert comm.run(program, ranks=2, collectives={"allreduce": "ring"}).values == [True, True]


def test_simulated_time_grows_with_the_rows_a_block_stands_for():
    few, many = (dict(simulated(qr.make("lu-cholqr2"), m, 8, 16))["simulated_seconds"] for m in (1 << 14, 1 << 20))
    assert many > 10 * few
