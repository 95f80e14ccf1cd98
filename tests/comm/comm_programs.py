"""Ordinary programs: the same bits on every backend, for the same number of ranks."""

from __future__ import annotations

import os

import numpy as np

from armillary.comm import ANY_SOURCE, MAX, Coordinator, Layout


def jacobi(comm, n=24, steps=30):
    """Five-point Jacobi on a box of ranks, halos by layouts."""
    columns = 2 if comm.size % 2 == 0 else 1
    grid = comm.cart([comm.size // columns, columns], [False, True])
    rows, cols = n // grid.dims[0], n // grid.dims[1]
    field = np.zeros((rows + 2, cols + 2))
    inner = field[1:-1, 1:-1]
    i0, j0 = grid.coords[0] * rows, grid.coords[1] * cols
    inner[...] = np.sin(np.arange(i0, i0 + rows)[:, None] * 0.3) * np.cos(np.arange(j0, j0 + cols) * 0.7)
    shape = field.shape

    def box(sizes, starts):
        return Layout.subarray(shape, sizes, starts)

    sends = [box((1, cols), (1, 1)), box((1, cols), (rows, 1)), box((rows, 1), (1, 1)), box((rows, 1), (1, cols))]
    recvs = [box((1, cols), (0, 1)), box((1, cols), (rows + 1, 1)), box((rows, 1), (1, 0)), box((rows, 1), (1, cols + 1))]
    plan = grid.neighbor_alltoallw_init(field, sends, field, recvs)
    change = 0.0
    for _ in range(steps):
        plan.start().wait()
        new = (field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:]) / 4
        change = float(comm.allreduce(np.array(abs(new - inner).max()), op=MAX))
        inner[...] = new
    return inner.copy(), change


def conjugate_gradients(comm, n=60):
    """CG on a dealt tridiagonal matrix; dot products in rank order."""
    mine = comm.local_range(n)
    b = np.cos(np.arange(mine.start, mine.stop) * 1.3)
    up = comm.rank + 1 if comm.rank + 1 < comm.size else -2
    down = comm.rank - 1 if comm.rank else -2

    def apply(v):
        before, after = np.zeros(1), np.zeros(1)
        comm.sendrecv(v[-1:].copy(), up, before, down, 1, 1)
        comm.sendrecv(v[:1].copy(), down, after, up, 2, 2)
        wide = np.concatenate([before, v, after])
        return 2.5 * v - wide[:-2] - wide[2:]

    def dot(a, c):
        return float(comm.allreduce(np.array([a @ c]), order="rank")[0])

    x, r = np.zeros_like(b), b.copy()
    p, rr = r.copy(), dot(r, r)
    while rr > 1e-20:
        q = apply(p)
        alpha = rr / dot(p, q)
        x += alpha * p
        r -= alpha * q
        rr, old = dot(r, r), rr
        p = r + rr / old * p
    return comm.allgatherv(x)


def sample_sort(comm, n=500):
    """Sort random keys: samples choose the borders, one exchange, one local sort."""
    keys = np.sort(comm.rng.random(n))
    samples = np.sort(comm.allgather(keys[:: n // 8].copy()).reshape(-1))
    borders = samples[len(samples) // comm.size :: len(samples) // comm.size][: comm.size - 1]
    counts = np.diff(np.searchsorted(keys, borders), prepend=0, append=n)
    got = np.sort(comm.alltoallv(keys, counts))
    assert int(comm.allreduce(np.array(got.size))) == n * comm.size
    edge = np.array([got[-1] if got.size else -1.0])
    last = comm.exscan(edge, op=MAX)
    assert comm.rank == 0 or not got.size or last[0] <= got[0]
    return got


def random_tags(comm, messages=60):
    """Everybody sends to everybody with random tags and lengths; received with wildcards, folded so that arrival order does not matter."""
    rng = np.random.default_rng([7, comm.rank])
    plan = [
        (int(d), int(t), int(k))
        for d, t, k in zip(rng.integers(0, comm.size, messages), rng.integers(0, 50, messages), rng.integers(0, 4000, messages))
    ]
    expected = comm.alltoall(np.bincount([d for d, _, _ in plan], minlength=comm.size))
    requests = [comm.isend(np.full(k, comm.rank * 1000 + t, np.int64), d, t) for d, t, k in plan]
    room = np.empty(4000, np.int64)
    seen = []
    for _ in range(int(expected.sum())):
        status = comm.recv(room, ANY_SOURCE)
        count = status.nbytes // 8
        assert (room[:count] == status.source * 1000 + status.tag).all()
        seen.append((status.source, status.tag, count))
    comm.waitall(requests)
    return np.array(sorted(seen))


PROGRAMS = [jacobi, conjugate_gradients, sample_sort, random_tags]


def all_programs(comm):
    return [program(comm.dup()) for program in PROGRAMS]


def inside(comm):
    """A run inside a run uses the ranks of the job."""
    from armillary import comm as package

    return package.run(sample_sort, ranks=comm.size, backend="mpi").values[comm.rank].size


def fails(comm):
    if comm.rank == 1:
        raise KeyError("no such key")
    comm.barrier()


def leaves(comm, code):
    if comm.rank == 1:
        os._exit(code)
    comm.barrier()


def killed(comm):
    comm.kill(1)
    comm.barrier()


def killed_while_others_wait(comm):
    """Rank 1 dies while rank 0 waits for its message and rank 2 for its post."""
    coord = Coordinator(comm)
    got, signal = coord.alloc(4), coord.alloc(1, np.int64)
    comm.barrier()
    comm.kill(1)
    if comm.rank == 0:
        comm.recv(np.zeros(1), 1)
    coord.acknowledge(got, 4, signal, 1, 1)


def all_receive_first(comm):
    comm.recv(np.zeros(1), (comm.rank + 1) % comm.size)


def returns(comm, *args, **named):
    if comm.rank == 0:
        print("-----\ntable\n-----\n=====\nend", flush=True)
    return args, named


def returns_objects(comm):
    return object()


def short_axes(comm):
    """Whether the library does boxes where both neighbours are one rank; the same when it would swap the halos; how often it was asked."""
    from armillary.comm.mpi import neighbours as mpi_neighbours

    asked = []
    # Duplicates share what was found out, and here nothing is yet.
    comm._right_boxes = {}
    check, now = mpi_neighbours._keeps_directions, mpi_neighbours.NativeNeighbours.now
    mpi_neighbours._keeps_directions = lambda *args: (asked.append(1), check(*args))[1]
    natively = [comm.cart([comm.size], True)._native is not None for _ in range(3)]
    once = len(asked)

    def swapped(self, call, send, *rest):
        now(self, call, send, *rest)
        room = rest[1]
        room[...] = room[::-1].copy()

    mpi_neighbours.NativeNeighbours.now = swapped
    comm._right_boxes.clear()
    grid = comm.cart([comm.size], True)
    got = grid.neighbor_alltoall(np.array([10 * comm.rank, 10 * comm.rank + 1]))
    other = (comm.rank + 1) % comm.size
    assert got.tolist() == [10 * other + 1, 10 * other]
    mpi_neighbours._keeps_directions, mpi_neighbours.NativeNeighbours.now = check, now
    return natively, grid._native is not None, once
