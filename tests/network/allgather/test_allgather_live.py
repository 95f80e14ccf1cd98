"""Live ranks: threads, virtual ranks and processes of every MPI library that is here, all through one executor."""

from __future__ import annotations

import allgather_checks as checks
import numpy as np
import pytest

from armillary import comm
from armillary.comm import RankFailed
from armillary.errors import InputError
from armillary.network.allgather import Cascade, NodeAware

LIBRARIES = [one.name for one in comm.libraries()] if not comm.backends()["mpi"] else []
COUNT = len(checks.TECHNIQUES) * len(checks.PLACEMENTS[4]) * 2


def test_threads_receive_what_they_should():
    assert comm.run(checks.live_virtual, ranks=4).values == [COUNT] * 4


def test_virtual_ranks_receive_what_they_should_in_any_order_of_running():
    found = comm.run(checks.live_virtual, ranks=6, backend="virtual", placement=[0] * 6, shuffle=7)
    assert found.values == [len(checks.TECHNIQUES) * len(checks.PLACEMENTS[6]) * 2] * 6


def on_mpi(name, placements):
    if name not in LIBRARIES:
        pytest.skip(f"{name} is not here; list its prefix in ARMILLARY_MPI")
    found = comm.run("allgather_checks:live_mpi", placements, ranks=4, backend="mpi", library=name, timeout=120).values
    for said in found:
        assert said[0] == len(checks.TECHNIQUES) * len(placements) * 2
        assert "ranks 1 and 0 disagree" in said[1]
        assert "found source 9; expected ranks from 0 to 3" in said[2]
        assert "block_bytes: rank 0 gave no whole number" in said[3]


@pytest.mark.parametrize("name", ["mpich", pytest.param("openmpi", marks=pytest.mark.slow)])
def test_mpi_receives_what_its_own_calls_receive(name):
    on_mpi(name, [[0, 0, 1, 1]])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mpich", "openmpi"])
def test_mpi_receives_what_its_own_calls_receive_on_other_nodes(name):
    on_mpi(name, checks.PLACEMENTS[4])


def product(ranks, matrix, columns):
    """Sparse times dense: gather the rows of the dense block that this rank's rows need, and multiply."""
    from scipy import sparse

    from armillary.network.allgather.graphs.built_in import Matrix, of_matrix, owners, rows_of

    rows = matrix.shape[0]
    entries = matrix.tocoo()
    graph = of_matrix(Matrix(entries.row.astype(np.int64), entries.col.astype(np.int64), rows), ranks.size)
    owner, counts = owners(rows, ranks.size), rows_of(rows, ranks.size)
    dense = np.random.default_rng(1).random((rows, columns))
    mine = np.ascontiguousarray(dense[owner == ranks.rank])
    sources = graph.into(ranks.rank)
    needed = np.empty((int(counts[sources].sum()), columns))
    nodes = np.arange(ranks.size) // 2
    Cascade(paths=1).on(ranks, sources, graph.out(ranks.rank), mine.nbytes, nodes=nodes)(mine, needed)
    everything = np.full((rows, columns), np.nan)
    everything[owner == ranks.rank] = mine
    everything[np.isin(owner, sources)] = needed
    local = sparse.csr_array(matrix)[owner == ranks.rank]
    used = np.unique(local.indices)
    return local[:, used] @ everything[used]


def test_sparse_times_dense_is_scipys_product():
    from scipy import sparse

    matrix = sparse.random_array((37, 37), density=0.1, rng=np.random.default_rng(0), format="csr")
    parts = comm.run(product, matrix, 3, ranks=6).values
    assert np.allclose(np.concatenate(parts), matrix @ np.random.default_rng(1).random((37, 3)), rtol=1e-13)


def started_twice(ranks):
    call = NodeAware().on(ranks, [], [], 4)
    buffers = np.zeros(4, np.uint8), np.zeros(0, np.uint8)
    said = []
    for wrong in (
        lambda: call(np.zeros(5, np.uint8), buffers[1]),
        lambda: call(buffers[0], np.zeros(1, np.uint8)),
        lambda: call(np.zeros((4, 2), np.uint8)[:, 0], buffers[1]),
        call.wait,
        lambda: call.start(*buffers).start(*buffers),
    ):
        try:
            wrong()
        except InputError as error:
            said.append(str(error))
    return said


def test_buffers_of_another_size_are_refused():
    said = comm.run(started_twice, ranks=2)[0]
    assert said == [
        "send: found 5 bytes; expected 4",
        "recv: found 1 bytes; expected 0",
        "send: found an array that is not contiguous or cannot be written; expected a contiguous NumPy array",
        "no call was started; expected start() first",
        "the call was started already; expected wait() first",
    ]


def one_dies(ranks):
    others = [rank for rank in range(ranks.size) if rank != ranks.rank]
    call = NodeAware().on(ranks, others, others, 64, nodes=[0, 0, 1, 1])
    send, recv = np.zeros(64, np.uint8), np.zeros(192, np.uint8)
    call(send, recv)
    ranks.kill(2)
    call(send, recv)


@pytest.mark.parametrize("backend", ["threads", "virtual"])
def test_a_rank_that_dies_ends_the_run(backend):
    where = {"placement": [0, 0, 0, 0]} if backend == "virtual" else {}
    with pytest.raises(RankFailed, match="rank 2"):
        comm.run(one_dies, ranks=4, backend=backend, **where)


def start_and_wait(ranks):
    right, left = (ranks.rank + 1) % ranks.size, (ranks.rank - 1) % ranks.size
    call = Cascade(paths=1).on(ranks, [left], [right], 8, nodes=list(range(ranks.size)))
    send, recv = np.full(8, ranks.rank, np.uint8), np.zeros(8, np.uint8)
    call.start(send, recv)
    busy = sum(range(100))
    return call.wait().tolist() == [left] * 8 and busy == 4950 and "cascade: " in call.explain()


def test_a_call_can_be_started_and_waited_for():
    assert comm.run(start_and_wait, ranks=3).values == [True] * 3
