"""Ghosts: sizes without contents, through every call, with the times that arrays have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary import comm
from armillary.comm import IN_PLACE, Ghost, LogGP, algorithms

US = 1e-6
K = LogGP(US, 0.3 * US, 0.2 * US, gap=0.1 * US, byte_gap=1e-10, copy=1e-11, eager_limit=2000)


def virtual(program, *args, ranks=4, **options):
    return comm.run(program, *args, ranks=ranks, backend="virtual", payload="ghost", **{"constants": K, **options})


@given(st.integers(0, 40), st.integers(1, 7), st.data())
def test_a_ghost_has_the_shapes_of_an_array(size, parts, data):
    array, ghost = np.zeros(size, np.float32), Ghost(4 * size, np.float32)
    start, stop = data.draw(st.integers(-45, 45)), data.draw(st.integers(-45, 45))
    for a, g in [
        (array, ghost),
        (array[start:stop], ghost[start:stop]),
        (array.reshape(1, -1), ghost.reshape(1, -1)),
        (array.reshape(1, size)[0], ghost.reshape(1, size)[0]),
        (np.concatenate([array, array[:3]]), np.concatenate([ghost, ghost[:3]])),
        (np.stack([array] * parts), np.stack([ghost] * parts)),
        (np.stack([array] * parts)[[0, parts - 1]], np.stack([ghost] * parts)[[0, parts - 1]]),
        (np.empty_like(array, shape=(parts, 2)), np.empty_like(ghost, shape=(parts, 2))),
        (np.add(array, array), np.add(ghost, ghost)),
        (array.copy().astype(np.int16), ghost.copy().astype(np.int16)),
        *zip(np.array_split(array, parts), np.array_split(ghost, parts)),
        *zip(np.split(array, [1, 3]), np.split(ghost, [1, 3])),
    ]:
        assert isinstance(g, Ghost)
        assert (g.shape, g.dtype, g.size, g.nbytes, g.ndim) == (a.shape, a.dtype, a.size, a.nbytes, a.ndim)
    assert [row.shape for row in np.stack([ghost] * parts)] == [(size,)] * parts


def test_gigabytes_fit():
    def program(c):
        c.allreduce(Ghost(1 << 33, np.float64))
        c.alltoall(Ghost(c.size << 30))
        return c.now()

    assert min(virtual(program, ranks=16).values) > 1


CALLS = {
    "bcast": lambda c, make: c.bcast(make(300), c.size // 2),
    "reduce": lambda c, make: c.reduce(make(300), root=c.size - 1),
    "allreduce": lambda c, make: c.allreduce(make(300)),
    "in place": lambda c, make: c.allreduce(IN_PLACE, make(300)),
    "ordered": lambda c, make: c.allreduce(make(300), order="rank"),
    "scan": lambda c, make: c.scan(make(300)),
    "exscan": lambda c, make: c.exscan(make(300)),
    "gather": lambda c, make: c.gather(make(300), root=1 % c.size),
    "gatherv": lambda c, make: c.gatherv(make(10 * c.rank)),
    "scatter": lambda c, make: c.scatter(make(300 * c.size) if c.rank == 0 else None, make(300)),
    "scatterv": lambda c, make: c.scatterv(make(sum(range(c.size))) if c.rank == 0 else None, range(c.size), make(c.rank)),
    "allgather": lambda c, make: c.allgather(make(300)),
    "allgatherv": lambda c, make: c.allgatherv(make(10 * c.rank)),
    "alltoall": lambda c, make: c.alltoall(make(300 * c.size)),
    "alltoallv": lambda c, make: c.alltoallv(make(sum(range(c.size))), range(c.size)),
    "reduce_scatter": lambda c, make: c.reduce_scatter(make(300 * c.size)),
    "neighbours": lambda c, make: c.cart([c.size], True).neighbor_alltoall(make(200)),
    "neighbours gather": lambda c, make: c.cart([c.size], True).neighbor_allgather(make(200)),
    "group": lambda c, make: c.split(c.rank % 2).allreduce(make(300)),
    "window": lambda c, make: window_calls(c, make),
}


def window_calls(c, make):
    with c.window(80, np.float64) as window:
        window.put(make(4), 0, 2)
        window.accumulate(make(4), 0, 2)
        window.fence()
        window.get(make(4), 0)
        window.flush(0)
        return window.local


def timed(c, call, ghosts):
    answer = CALLS[call](c, (lambda n: Ghost(8 * n, np.float64)) if ghosts else (lambda n: np.ones(n)))
    return c.now(), None if answer is None else (answer.shape, answer.dtype)


@pytest.mark.parametrize("ranks", [1, 2, 5, 8])
@pytest.mark.parametrize("call", CALLS)
def test_every_call_takes_ghosts_and_as_long_as_arrays(call, ranks):
    assert virtual(timed, call, True, ranks=ranks).values == virtual(timed, call, False, ranks=ranks).values


@pytest.mark.parametrize("collective", [c for c in algorithms() if c != "barrier"])
def test_every_algorithm_takes_ghosts(collective):
    call = "alltoallv" if collective == "alltoallv" else collective
    for name in algorithms(collective):
        for ranks in (3, 8):
            options = {"ranks": ranks, "collectives": {collective: name}}
            assert virtual(timed, call, True, **options).values == virtual(timed, call, False, **options).values


def test_arrays_and_ghosts_mix():
    def program(c):
        if c.rank == 0:
            c.send(Ghost(8), 1)
            c.send(np.array([7.0]), 1)
            return None
        got = np.array([3.0])
        c.recv(got, 0)
        assert got[0] == 3.0
        return c.recv(Ghost(100), 0).nbytes

    assert virtual(program, ranks=2)[1] == 8


def test_a_layout_of_a_ghost_is_refused():
    with pytest.raises(comm.RankFailed, match="Ghost"):
        virtual(lambda c: c.send((Ghost(80), comm.Layout.contiguous(3)), 0), ranks=1)
