"""Many ranks: every algorithm on awkward numbers of them, and thousands at once."""

from __future__ import annotations

import comm_checks
import numpy as np
import pytest

from armillary import comm
from armillary.comm import Ghost


@pytest.mark.parametrize("ranks", [5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, pytest.param(64, marks=pytest.mark.slow)])
def test_every_algorithm_on_awkward_numbers_of_ranks(ranks):
    comm.run(comm_checks.every_algorithm, ranks=ranks, backend="virtual")
    comm.run(comm_checks.matrices_in_rank_order, ranks=ranks, backend="virtual")


def everything(c):
    c.barrier()
    total = float(c.allreduce(np.array([float(c.rank)]))[0])
    grid = c.cart([128, c.size // 128], True)
    got = grid.neighbor_alltoall(np.full(4, float(c.rank)))
    return total, got.tolist() == [float(r) for r in grid.sources]


def test_a_thousand_ranks():
    result = comm.run(everything, ranks=1024, backend="virtual")
    assert set(result.values) == {(1024 * 1023 / 2, True)}


@pytest.mark.slow
def test_sixteen_thousand_ranks():
    result = comm.run(everything, ranks=16384, backend="virtual")
    assert set(result.values) == {(16384 * 16383 / 2, True)}


def test_a_split_of_many_ranks():
    def program(c):
        half = c.split(c.rank % 2, -c.rank)
        return half.rank, half.size, int(half.allreduce(np.array(1)))

    result = comm.run(program, ranks=2000, backend="virtual")
    assert result[0] == (999, 1000, 1000)
    assert result[1999] == (0, 1000, 1000)


def test_a_barrier_takes_a_message_for_each_bit():
    constants = comm.LogGP(1e-6, 1e-7, 1e-7)
    for ranks, rounds in ((2, 1), (3, 2), (64, 6), (65, 7)):
        seconds = comm.run(lambda c: c.barrier(), ranks=ranks, backend="virtual", constants=constants).seconds
        assert seconds == pytest.approx(rounds * 1.2e-6)


def test_what_is_sent_ahead_is_kept_apart():
    """A rank that runs far ahead leaves its messages in order for one that is behind."""

    def program(c):
        if c.rank == 0:
            for i in range(2000):
                c.send(np.array([i]), 1)
            return None
        c.compute(1.0)
        got = np.empty(1, np.int64)
        return [int(got[0]) for _ in range(2000) if c.recv(got, 0) is not None]

    assert comm.run(program, ranks=2, backend="virtual")[1] == list(range(2000))
    assert comm.run(lambda c: c.send(Ghost(8), 0), ranks=1, backend="virtual", payload="ghost").unreceived
