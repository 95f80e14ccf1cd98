"""What a coordinator's calls mean, as programs that run on every backend; each asserts on its rank and returns what is compared."""

from __future__ import annotations

import gc
import tracemalloc
import weakref

import numpy as np
import pytest

from armillary.comm import IN_PLACE, MAX, MIN, PROC_NULL, SUM, Coordinator, Op
from armillary.errors import InputError


def around(comm):
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


def refuses(said, call, *args, **named):
    with pytest.raises(InputError) as caught:
        call(*args, **named)
    assert "\n" not in str(caught.value)
    assert said in str(caught.value), str(caught.value)


def both_directions(comm, count=2_097_152, shared=True):
    """16 MiB to both neighbours in one batch, acknowledged before and after they are posted."""
    coord = Coordinator(comm)
    right, left = around(comm)
    make = coord.alloc if shared else np.zeros
    data, from_left, from_right = make(count), make(count), make(count)
    one, two = (coord.alloc(1, np.int64), coord.alloc(1, np.int64)) if shared else (np.zeros(1, np.int64), np.zeros(1, np.int64))
    data[:] = comm.rank
    for turn in range(1, 3):
        with coord.batch():
            coord.acknowledge(from_left, count, one, turn, left)
            coord.post(data, from_left, count, one, turn, right)
            coord.post(data, from_right, count, two, turn, left)
            coord.acknowledge(from_right, count, two, turn, right)
        assert (from_left == left).all()
        assert (from_right == right).all()
        # A fast neighbour may have posted the next one into shared memory already.
        assert one[0] >= turn
        assert two[0] >= turn


def in_order(comm):
    """Twenty posts of growing counts from the same buffers in one batch, and outside one."""
    coord = Coordinator(comm)
    right, left = around(comm)
    rows = np.arange(20 * 20.0).reshape(20, 20) + 1000 * comm.rank
    got = np.zeros((20, 20))
    signal = np.zeros(1, np.int64)
    with coord.batch():
        for i in range(20):
            coord.post(rows[i], got[i], i, signal, i + 1, right)
        for i in range(20):
            coord.acknowledge(got[i], i, signal, i + 1, left)
    for i in range(20):
        assert (got[i, :i] == np.arange(i) + 20 * i + 1000 * left).all()
        assert (got[i, i:] == 0).all()
    assert signal[0] == 20
    if comm.size > 1:
        for turn in range(21, 26):
            if comm.rank % 2 == 0 and comm.rank + 1 < comm.size:
                coord.post(rows[0], got[0], 20, signal, turn, comm.rank + 1)
            elif comm.rank % 2:
                coord.acknowledge(got[0], 20, signal, turn, comm.rank - 1)
                assert got[0, 3] == 3 + 1000 * (comm.rank - 1)
                assert signal[0] == turn


def signals(comm, shared):
    """Two posts before one acknowledgement; a value is there when the signal is at least as large; the last data counts."""
    coord = Coordinator(comm)
    right, left = around(comm)
    got, signal = (coord.alloc(3), coord.alloc(1, np.int64)) if shared else (np.zeros(3), np.zeros(1, np.int64))
    first, second = np.full(3, 1.0 + comm.rank), np.full(3, 10.0 + comm.rank)
    with coord.batch():
        coord.post(first, got, 3, signal, 1, right)
        coord.post(second, got, 3, signal, 5, right)
        coord.acknowledge(got, 3, signal, 4, left)
    assert got.tolist() == [10.0 + left] * 3
    assert signal[0] >= 4
    comm.barrier()


def two_locations(comm):
    """Signals at two places of one array do not meet, nor do those of two sources at one place."""
    coord = Coordinator(comm)
    right, left = around(comm)
    got, flags = coord.alloc((2, 4)), coord.alloc(2, np.int64)
    upper, lower, high, low = got[0], got[1], flags[:1], flags[1:]
    data = np.arange(4.0) + 10 * comm.rank
    with coord.batch():
        coord.post(data, upper, 4, high, 7, right)
        coord.post(data, lower, 2, low, 3, left)
        coord.acknowledge(upper, 4, high, 7, left)
        coord.acknowledge(lower, 2, low, 3, right)
    assert flags.tolist() == [7, 3]
    assert got[0].tolist() == [10 * left + i for i in range(4)]
    assert got[1].tolist() == [10 * right, 10 * right + 1, 0, 0]
    comm.barrier()


def debugged(comm):
    coord = Coordinator(comm, debug=True)
    right, left = around(comm)
    data, got, signal = np.ones(1), np.zeros(1), np.zeros(1, np.int64)
    with coord.batch():
        coord.post(data, got, 1, signal, 3, right)
        coord.acknowledge(got, 1, signal, 3, left)
    refuses("stale", coord.post, data, got, 1, signal, 3, right)
    refuses("more than the 3", coord.post, data, got, 1, signal, 2, right)
    refuses("stale", coord.acknowledge, got, 1, signal, 3, left)
    refuses("expected 1 to", coord.post, data, got, 1, signal, 0, right)
    with coord.batch():
        coord.post(data, got, 1, signal, 4, right)
        coord.acknowledge(got, 1, signal, 4, left)


def nobody(comm):
    """Posts to nobody and acknowledgements of nobody are done at once and move nothing."""
    coord = Coordinator(comm)
    data, got, signal = np.ones(3), np.zeros(3), np.zeros(1, np.int64)
    with comm.phase("nobody"):
        for turn in (1, 2):
            coord.post(data, got, 3, signal, 2 * turn, PROC_NULL)
            coord.acknowledge(got, 3, signal, 2 * turn, PROC_NULL)
            assert signal[0] == 2 * turn
            with coord.batch():
                coord.post(data, got, 3, signal, 2 * turn + 1, PROC_NULL)
                coord.acknowledge(got, 3, signal, 2 * turn + 1, PROC_NULL)
            assert signal[0] == 2 * turn + 1
    assert got.tolist() == [0, 0, 0]
    assert comm.counters["nobody"].messages == 0


def unequal(comm, size_of=None):
    """Counts and displacements that differ on every rank: what comes lies where the receiver says, not where the sender has it."""
    coord = Coordinator(comm)
    size, rank = comm.size, comm.rank
    counts = np.array([[(3 * r + 5 * s) % 4 for s in range(size)] for r in range(size)])
    sends, recvs = counts[rank].tolist(), counts[:, rank].tolist()
    # Blocks in reverse, with a gap that grows with the rank.
    gap = rank + 1
    starts = [gap + sum(sends[s + 1 :]) for s in range(size)]
    rooms = [2 * gap + sum(recvs[r + 1 :]) for r in range(size)]
    send = np.full(sum(sends) + gap + 2, -1.0)
    for s in range(size):
        send[starts[s] : starts[s] + sends[s]] = 100 * rank + s
    recv = np.full(sum(recvs) + 2 * gap + 3, -7.0)
    expected = recv.copy()
    for r in range(size):
        expected[rooms[r] : rooms[r] + recvs[r]] = 100 * r + rank
    coord.alltoallv(send, sends, recv, recvs, starts, rooms)
    assert np.array_equal(recv, expected)


def in_place(comm):
    """Every collective call in place gives what it gives out of place."""
    coord = Coordinator(comm)
    size, rank = comm.size, comm.rank
    mine = np.arange(6.0) * (rank + 1) + 0.1
    for op in (SUM, MAX, MIN, Op(np.add, "own sum", True, True)):
        apart, inside = np.zeros(6), mine.copy()
        assert coord.allreduce(mine, apart, op) is apart
        assert coord.allreduce(IN_PLACE, inside, op) is inside
        assert inside.tobytes() == apart.tobytes() == coord.allreduce(mine, op=op).tobytes()
        assert np.allclose(apart, op.function.reduce([np.arange(6.0) * (r + 1) + 0.1 for r in range(size)]), rtol=1e-14)
        assert coord.allreduce(mine, op=op, order="rank").tobytes() == apart.tobytes() or size > 2
        root = size - 1
        apart, inside = np.zeros(6), mine.copy()
        coord.reduce(mine, apart if rank == root else None, op, root)
        coord.reduce(IN_PLACE if rank == root else mine, inside if rank == root else None, op, root)
        assert rank != root or inside.tobytes() == apart.tobytes()
    table = np.zeros((size, 6))
    coord.allgather(mine, table)
    inside = np.zeros((size, 6))
    inside[rank] = mine
    coord.allgather(IN_PLACE, inside)
    assert np.array_equal(inside, table)
    assert table[0].tolist() == (np.arange(6.0) + 0.1).tolist()
    counts = tuple(r + 1 for r in range(size))
    part = np.full(rank + 1, rank + 0.5)
    apart, inside = np.zeros(sum(counts)), np.zeros(sum(counts))
    inside[rank * (rank + 1) // 2 :][: rank + 1] = part
    for _ in range(3):
        coord.allgatherv(part, apart, counts)
        coord.allgatherv(IN_PLACE, inside, counts)
        assert apart.tobytes() == inside.tobytes() == np.concatenate([np.full(r + 1, r + 0.5) for r in range(size)]).tobytes()
    for displacements in (None, tuple(2 * c * (c - 1) // 2 + 1 for c in counts)):
        room = np.zeros(size * (size + 1) + 4)
        coord.allgatherv(part, room, counts, displacements)
        starts = displacements or [sum(counts[:r]) for r in range(size)]
        assert all((room[s : s + c] == r + 0.5).all() for r, (s, c) in enumerate(zip(starts, counts)))
    gathered, inside = np.zeros((size, 6)), np.zeros((size, 6))
    inside[0] = mine if rank == 0 else 0.0
    coord.gather(mine, gathered if rank == 0 else None)
    coord.gather(IN_PLACE if rank == 0 else mine, inside if rank == 0 else None)
    assert np.array_equal(gathered, inside)
    whole, inside = np.zeros(sum(counts)), np.zeros(sum(counts))
    inside[0] = part[0] if rank == 0 else 0.0
    coord.gatherv(part, whole if rank == 0 else None, counts)
    coord.gatherv(IN_PLACE if rank == 0 else part, inside if rank == 0 else None, counts)
    assert np.array_equal(whole, inside)
    got = np.zeros(6)
    coord.scatter(table if rank == 0 else None, got)
    assert np.array_equal(got, table[rank])
    got[:] = 0
    coord.scatter(table if rank == 0 else None, IN_PLACE if rank == 0 else got)
    assert rank == 0 or np.array_equal(got, table[rank])
    got = np.zeros(rank + 1)
    coord.scatterv(apart if rank == 0 else None, counts if rank == 0 else None, IN_PLACE if rank == 0 else got)
    assert rank == 0 or (got == rank + 0.5).all()
    blocks = np.arange(2.0 * size) + 100 * rank
    apart, inside = np.zeros(2 * size), blocks.copy()
    coord.alltoall(blocks, apart)
    coord.alltoall(IN_PLACE, inside)
    assert np.array_equal(inside, apart)
    assert apart.tolist() == [100.0 * r + 2 * rank + i for r in range(size) for i in (0, 1)]
    inside = blocks.copy()
    coord.alltoallv(IN_PLACE, None, inside, [2] * size)
    assert np.array_equal(inside, apart)
    shared = np.full(3, float(rank))
    for _ in range(2):
        assert coord.broadcast(shared, size - 1) is shared
    assert (shared == size - 1).all()
    return coord.allreduce(np.sin(np.arange(9.0) + rank), order="rank")


STEADY_ROUNDS = 1000


def steady_state(comm, shared):
    """After the first rounds nothing is kept and nothing piles up: the same memory is in use, and its peak is a few objects."""
    coord = Coordinator(comm)
    right, left = around(comm)
    make = coord.alloc if shared else np.zeros
    data, got, signal = make(64), make(64), make(1, np.int64)
    total, counts = np.zeros(1), (64,) * comm.size
    one, everything = np.ones(1), np.zeros(64 * comm.size)

    def rounds(start, count):
        for i in range(start, start + count):
            with coord.batch():
                coord.post(data, got, 64, signal, i, right)
                coord.acknowledge(got, 64, signal, i, left)
            coord.allreduce(one, total)
            coord.allgatherv(data, everything, counts)

    rounds(1000, 300)
    comm.barrier()
    gc.collect()
    gc.disable()
    comm.barrier()
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    comm.barrier()
    rounds(2000, 50)
    comm.barrier()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    comm.barrier()
    rounds(3000, STEADY_ROUNDS)
    comm.barrier()
    after, peak = tracemalloc.get_traced_memory()
    comm.barrier()
    tracemalloc.stop()
    gc.enable()
    return [after - before, peak - before]


def forgotten(comm):
    """A buffer that dies is forgotten, and another at its address is not taken for it."""
    coord = Coordinator(comm)
    right, left = around(comm)
    got, signal = coord.alloc(4), coord.alloc(1, np.int64)
    dead = []
    for turn in range(1, 200):
        data = np.full(4, 1000.0 * comm.rank + turn)
        dead.append(weakref.ref(data))
        total = np.full(1, float(turn))
        with coord.batch():
            coord.post(data, got, 4, signal, 2 * turn, right)
            coord.acknowledge(got, 4, signal, 2 * turn, left)
        assert got.tolist() == [1000.0 * left + turn] * 4
        assert coord.allreduce(total, np.zeros(1))[0] == turn * comm.size
        with coord.batch():
            # Nobody holds this array but the batch.
            coord.post(np.full(4, turn + 0.5), got, 4, signal, 2 * turn + 1, right)
            coord.acknowledge(got, 4, signal, 2 * turn + 1, left)
        assert got.tolist() == [turn + 0.5] * 4
        comm.barrier()
    del data
    gc.collect()
    return sum(ref() is not None for ref in dead)


def bad_arguments(comm):
    coord = Coordinator(comm)
    right, left = around(comm)
    data, signal = np.zeros(4), np.zeros(1, np.int64)
    refuses("count: found 5; expected 0 to the 4", coord.post, data, data, 5, signal, 1, right)
    refuses("count: found -1", coord.acknowledge, data, -1, signal, 1, left)
    refuses("float64", coord.post, data, data, 4, np.zeros(1), 1, right)
    refuses("int32", coord.acknowledge, data, 4, np.zeros(1, np.int32), 1, left)
    refuses("expected an array of int64", coord.post, data, data, 4, 7, 1, right)
    refuses("at least one element", coord.post, data, data, 4, np.zeros(0, np.int64), 1, right)
    refuses("rank", coord.post, data, data, 4, signal, 1, comm.size)
    refuses("rank", coord.acknowledge, data, 4, signal, 1, comm.size)
    refuses("not contiguous", coord.post, np.zeros((4, 4))[:, 1], data, 4, signal, 1, right)
    refuses("read-only", coord.acknowledge, np.frombuffer(b"12345678", np.float64), 1, signal, 1, left)
    refuses("host", Coordinator, comm, None, "magic")
    refuses("launch", coord.launch)
    with coord.batch():
        refuses("inside another", coord.batch().__enter__)
    with pytest.raises(ZeroDivisionError), coord.batch():
        1 / 0  # noqa: B018
    refuses("stream", Coordinator, comm, object())
    refuses("float32", coord.allreduce, np.zeros(2), np.zeros(2, np.float32))
    comm.barrier()


def modes(comm):
    coord = Coordinator(comm)
    called = []
    coord.bind(called.append, args=(comm.rank,))
    coord.launch()
    assert called == [comm.rank]
    for mode in ("partial-device", "full-device"):
        refuses("do not offer; expected host", coord.bind, print, mode=mode)
        refuses("expected host", Coordinator, comm, mode=mode)


def device_memory(comm):
    """A tensor that says it is on a GPU is refused where ranks have none."""

    class Cuda:
        is_cuda = True

    Cuda.__module__ = "torch"
    coord = Coordinator(comm)
    refuses("memory of a device", coord.post, Cuda(), None, 1, None, 1, 0)


def one_native_call(comm):
    """Each operation makes exactly one call of the library: counted by a proxy around all that could be called."""
    from mpi4py import MPI

    from armillary.comm.mpi import transfers as transfers_mpi

    calls = []

    def counted(name, call):
        def made(*args, **named):
            calls.append(name)
            return call(*args, **named)

        return made

    class Proxy:
        def __init__(self, native):
            self._native = native

        def __getattr__(self, name):
            found = getattr(self._native, name)
            return counted(name, found) if callable(found) else found

    before = transfers_mpi._start, transfers_mpi._waitall
    transfers_mpi._start, transfers_mpi._waitall = counted("Start", MPI.Prequest.Start), counted("Waitall", MPI.Request.Waitall)
    native = comm.native
    comm.__dict__["_coordinated"] = Proxy(native.Dup())
    comm.native = Proxy(native)
    transfers = transfers_mpi.MpiTransfers(comm)
    right, left = around(comm)
    data, got, signal = np.zeros(8), np.zeros(8), np.zeros(1, np.int64)
    one, total, everything, counts = np.ones(1), np.zeros(1), np.zeros(8 * comm.size), (8,) * comm.size

    def made(call, *args):
        calls.clear()
        call(*args)
        return list(calls)

    seen = []
    for turn in range(1, 5):
        transfers.begin()
        seen.append([made(transfers.post, data, got, 8, signal, turn, right), made(transfers.acknowledge, got, 8, signal, turn, left)])
        seen[-1] += [made(transfers.post, data, got, 4, signal, turn, right), made(transfers.acknowledge, got, 4, signal, turn, left)]
        seen[-1] += [made(transfers.post, data, got, 8, signal, turn, right), made(transfers.acknowledge, got, 8, signal, turn, left)]
        seen[-1] += [made(transfers.end)]
        seen[-1] += [made(transfers.allreduce, one, total), made(transfers.allgatherv, data, everything, counts)]
        seen[-1] += [made(transfers.broadcast, data, 0)]
    if comm.rank == 0 and comm.size > 1:
        single = [made(transfers.post, data, got, 8, signal, 9, 1)]
    elif comm.rank == 1:
        single = [made(transfers.acknowledge, got, 8, signal, 9, 0)]
    else:
        single = []
    comm.barrier()
    comm.native = native
    del comm.__dict__["_coordinated"]
    transfers_mpi._start, transfers_mpi._waitall = before
    return [seen[-1], single]


def never_posted(comm, shared):
    coord = Coordinator(comm)
    got, signal = (coord.alloc(4), coord.alloc(1, np.int64)) if shared else (np.zeros(4), np.zeros(1, np.int64))
    coord.acknowledge(got, 4, signal, 3, 1 - comm.rank)


def collectives_do_not_match(comm):
    coord = Coordinator(comm)
    if comm.rank == 0:
        coord.allreduce(np.ones(1), np.zeros(1))


EVERYWHERE = [
    (both_directions, (2_097_152, True)), (both_directions, (40_000, False)), (in_order, ()), (two_locations, ()), (debugged, ()), (nobody, ()), (unequal, ()),
    (in_place, ()), (forgotten, ()), (bad_arguments, ()), (device_memory, ()),
]  # fmt: skip


def everything(comm):
    """All checks that hold on every backend; what each returned."""
    answers = {}
    for number, (check, args) in enumerate(EVERYWHERE):
        answer = check(comm.dup(), *args)
        answers[f"{number} {check.__name__}"] = answer
        comm.barrier()
    return answers
