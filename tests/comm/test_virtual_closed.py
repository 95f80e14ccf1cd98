"""Modelled collectives: the answers of the algorithms, and their times within a tenth."""

from __future__ import annotations

import comm_checks
import numpy as np
import pytest

from armillary import comm
from armillary.comm import Ghost, LogGP, SharedMemory, algorithms

US = 1e-6
CONSTANTS = {
    "fast": LogGP(US, 0.3 * US, 0.4 * US, gap=0.05 * US, byte_gap=0.1e-9, copy=0.05e-9),
    "slow": LogGP(20 * US, US, US, byte_gap=1e-9, copy=0.1e-9, eager_limit=1000),
}


def call(c, what, n):
    own, all_of_it = Ghost(n), Ghost(n * c.size)
    if what == "barrier":
        c.barrier()
    elif what == "bcast":
        c.bcast(own, c.size // 2)
    elif what == "reduce":
        c.reduce(own, root=c.size // 2)
    elif what == "scatter":
        c.scatter(all_of_it, own)
    elif what in ("alltoall", "reduce_scatter"):
        getattr(c, what)(all_of_it)
    elif what == "alltoallv":
        c.alltoallv(all_of_it, [n] * c.size, None, [n] * c.size)
    else:
        getattr(c, what)(own)


@pytest.mark.parametrize("constants", CONSTANTS)
@pytest.mark.parametrize("what", algorithms())
def test_the_closed_cost_is_that_of_the_messages(what, constants):
    for ranks in (1, 2, 5, 8, 16, 37):
        for n in (0, 8, 1000, 20000, 300000):
            options = {"ranks": ranks, "backend": "virtual", "payload": "ghost", "constants": CONSTANTS[constants]}
            simulated = comm.run(call, what, n, **options).seconds
            modelled = comm.run(call, what, n, collectives="modelled", **options).seconds
            assert modelled == pytest.approx(simulated, rel=0.1), (ranks, n)


@pytest.mark.parametrize("how", ["two-copy", "single-copy"])
@pytest.mark.parametrize("what", ["barrier", "bcast", "allreduce", "allgather", "reduce"])
def test_inside_a_node_too(what, how):
    constants = LogGP(US, shm=SharedMemory(how=how))
    for ranks in (2, 8, 13):
        for n in (8, 5000, 100000):
            options = {"ranks": ranks, "backend": "virtual", "payload": "ghost", "constants": constants}
            simulated = comm.run(call, what, n, **options).seconds
            assert comm.run(call, what, n, collectives="modelled", **options).seconds == pytest.approx(simulated, rel=0.1), (ranks, n)


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "check",
    [comm_checks.reductions, comm_checks.gathers, comm_checks.unequal_exchange, comm_checks.groups_of_ranks, comm_checks.counted],
    ids=lambda c: c.__name__,
)
def test_the_answers_are_the_same(check, ranks):
    comm.run(check, ranks=ranks, backend="virtual", collectives="modelled")


def test_matrices_are_combined_in_the_order_of_ranks():
    def program(c):
        return c.allreduce(np.arange(4.0) + c.rank, op=comm_checks.MATRIX), c.exscan(np.arange(4.0) + c.rank, op=comm_checks.MATRIX)

    modelled = comm.run(program, ranks=6, backend="virtual", collectives="modelled").values
    for mine, theirs in zip(modelled, comm.run(program, ranks=6).values):
        assert np.array_equal(mine[0], theirs[0])
        assert np.array_equal(mine[1], theirs[1])


def test_who_comes_late_holds_the_others_up():
    def program(c):
        c.compute(1.0 if c.rank == 3 else 0.0)
        c.barrier()
        return c.now()

    values = comm.run(program, ranks=4, backend="virtual", constants=CONSTANTS["fast"], collectives="modelled").values
    assert min(values) == pytest.approx(1.0, rel=1e-4)
