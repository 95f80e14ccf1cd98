"""One body of checks over threads and one rank; `test_mpi`, `test_torch_gloo` and `test_virtual_backend` run it on the other backends."""

from __future__ import annotations

import comm_checks
import comm_programs
import numpy as np
import pytest
from process_jobs import alike

from armillary import comm


@pytest.mark.parametrize("check", comm_checks.CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_threads(check, ranks):
    assert comm.run(check, ranks=ranks).unreceived == []


@pytest.mark.parametrize("check", comm_checks.CHECKS, ids=lambda c: c.__name__)
def test_one(check):
    comm.run(check, ranks=1, backend="one")


@pytest.mark.parametrize("ranks", [5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, pytest.param(64, marks=pytest.mark.slow)])
def test_every_algorithm_on_awkward_numbers_of_ranks(ranks):
    comm.run(comm_checks.every_algorithm, ranks=ranks)
    comm.run(comm_checks.matrices_in_rank_order, ranks=ranks)


def test_one_gives_the_bits_of_threads():
    one = comm.run(comm_programs.all_programs, backend="one")
    assert alike(one.values, comm.run(comm_programs.all_programs, ranks=1).values)


def test_the_programs_are_right():
    """Against NumPy, on three ranks where the deal is uneven."""
    x = comm.run(comm_programs.conjugate_gradients, 50, ranks=3)[0]
    a = 2.5 * np.eye(50) - np.eye(50, k=1) - np.eye(50, k=-1)
    assert np.allclose(x, np.linalg.solve(a, np.cos(np.arange(50) * 1.3)), atol=1e-9)
    parts = comm.run(comm_programs.sample_sort, ranks=3).values
    whole = np.concatenate(parts)
    assert np.array_equal(whole, np.sort(whole))
    one, four = comm.run(comm_programs.jacobi, ranks=1)[0], comm.run(comm_programs.jacobi, ranks=4).values
    assert np.array_equal(one[0], np.block([[four[0][0], four[1][0]], [four[2][0], four[3][0]]]))
