"""Checks of what the calls of a communicator mean, written once and run on every backend: each is a program that asserts on its rank and returns bits to compare."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.comm import ANY_SOURCE, ANY_TAG, IN_PLACE, MAX, MIN, PROC_NULL, PROD, SUM, Coordinator, Layout, Op, Truncated, algorithms
from armillary.errors import InputError


def awkward():
    """Messages that a careless transport gets wrong."""
    record = np.dtype([("a", "i2"), ("b", "f8"), ("c", "u1", (3,))])
    return [
        np.zeros(0),
        np.zeros((0, 3), np.int16),
        np.array(3.5),
        np.array([True, False, True]),
        np.array([-128, 127], np.int8),
        np.array([0, 2**64 - 1], np.uint64),
        np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324]),
        np.array([1 + 2j, complex(np.nan, -0.0)]),
        np.array([1.5, 65504], np.float16),
        np.array([1.5, -2.25], np.longdouble),
        np.array([1, 2, 3], ">i4"),
        np.array([(1, 2.5, [1, 2, 3]), (-4, np.nan, [255, 0, 9])], record),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(24, dtype=np.int32).reshape(2, 3, 4),
        np.frombuffer(b"text \x00\xff", np.uint8),
        np.arange(16383, dtype=np.uint8),
        np.arange(16384, dtype=np.uint8),
        np.arange(16385, dtype=np.uint8),
        np.arange(1 << 17, dtype=np.float64),
    ]


def bits(array):
    array = np.asarray(array)
    if array.dtype.char in "gG":
        # A long double has bytes that mean nothing and differ from process to process.
        array = np.array([float(x).hex() for x in array.reshape(-1)])
    return array.tobytes(order="K")


def refuses(call, *args, **named):
    with pytest.raises(InputError) as caught:
        call(*args, **named)
    assert "\n" not in str(caught.value)


def awkward_messages(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for tag, message in enumerate(awkward()):
        got = np.empty_like(message)
        status = comm.sendrecv(message, right, got, left, tag, tag)
        assert (status.source, status.tag, status.nbytes) == (left, tag, message.nbytes)
        assert bits(got) == bits(message)
        request = comm.isend(message, right, tag)
        got[...] = np.zeros((), got.dtype)
        comm.recv(got, left, tag)
        request.wait()
        assert bits(got) == bits(message)
    room = bytearray(4)
    request = comm.isend(b"abc", right)
    assert comm.recv(room, left).nbytes == 3
    request.wait()
    assert room == bytearray(b"abc\0")


def self_messages(comm):
    got = np.zeros(3)
    request = comm.irecv(got, comm.rank, 5)
    assert request.test() is None
    comm.send(np.arange(3.0), comm.rank, 5)
    assert request.wait().source == comm.rank
    assert got.tolist() == [0, 1, 2]


def nobody(comm):
    got = np.ones(2)
    comm.send(got, PROC_NULL)
    status = comm.recv(got, PROC_NULL)
    assert status.nbytes == 0
    assert got.tolist() == [1, 1]


def messages_do_not_overtake(comm):
    if comm.size == 1:
        return
    sizes = np.random.default_rng(3).choice([0, 1, 8, 700, 16384, 16385, 40000], 1000)
    if comm.rank == 0:
        requests = []
        for i, size in enumerate(sizes):
            data = np.full(size // 8 + 1, i, np.int64)
            requests.append(comm.isend(data, 1, 7))
            if len(requests) > 50:
                comm.waitall(requests)
                requests = []
        comm.waitall(requests)
    elif comm.rank == 1:
        room = np.empty(6000, np.int64)
        kept = []
        for i, size in enumerate(sizes):
            status = comm.recv(room, 0, ANY_TAG if i % 3 else 7)
            kept.append(status)
            assert status.nbytes == 8 * (size // 8 + 1)
            assert room[0] == i
            assert room[size // 8] == i
        # What was learned of one message does not change with the next.
        assert [status.nbytes for status in kept] == [8 * (size // 8 + 1) for size in sizes]


def wildcards(comm):
    """Everybody sends rank 0 twenty messages with random tags; it takes half by tag, half as they come."""
    tags = np.random.default_rng(comm.rank).integers(0, 4, 20)
    if comm.rank:
        for i, tag in enumerate(tags):
            comm.send(np.array([comm.rank, tag, i]), 0, int(tag))
        return None
    expected = [(r, int(t), i) for r in range(1, comm.size) for i, t in enumerate(np.random.default_rng(r).integers(0, 4, 20))]
    got = []
    room = np.empty(3, np.int64)
    for tag in (2, 3):
        for _ in [e for e in expected if e[1] == tag]:
            status = comm.recv(room, ANY_SOURCE, tag)
            assert (status.source, status.tag) == (room[0], tag)
            got.append(tuple(room.tolist()))
    for _ in range(len(expected) - len(got)):
        status = comm.probe()
        again = comm.recv(room, status.source, status.tag)
        assert (again.source, again.tag) == (room[0], room[1])
        got.append(tuple(room.tolist()))
    for source in range(1, comm.size):
        for tag in range(4):
            order = [i for r, t, i in got if (r, t) == (source, tag)]
            assert order == sorted(order)
    assert comm.iprobe() is None
    return sorted(got) == sorted(expected)


def sized(comm, nbytes):
    """A message of this length to the next rank, three times."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    room = np.zeros(nbytes, np.uint8)
    for turn in range(3):
        send = comm.isend(np.arange(comm.rank + turn, comm.rank + turn + nbytes).astype(np.uint8), right, 4)
        comm.recv(room, left, 4)
        send.wait()
        assert (room == np.arange(left + turn, left + turn + nbytes).astype(np.uint8)).all()


def truncated(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for posted_first in (True, False):
        room = np.full(10, 7, np.uint8)
        receive = comm.irecv(room[:5], left, 1) if posted_first else None
        comm.barrier()
        send = comm.isend(np.arange(100, dtype=np.uint8), right, 1)
        comm.barrier()
        receive = receive or comm.irecv(room[:5], left, 1)
        with pytest.raises(Truncated) as caught:
            receive.wait()
        assert caught.value.capacity == 5
        assert caught.value.received in (100, None)
        send.wait()
        assert room[5:].tolist() == [7] * 5


def repeated(comm):
    """Buffers of 3,200 bytes, which every library sends at once."""
    return repeats(comm, 400)


def repeated_long(comm):
    """Buffers of 40,000 bytes, which libraries announce before they send them."""
    return repeats(comm, 5000)


def repeats(comm, count):
    """The same buffers many times with one rank and tag, which backends prepare and expect, and then everything that was not expected."""
    other = comm.rank ^ 1
    if other >= comm.size:
        return None
    data, room, few, small = np.zeros(count), np.zeros(count), np.zeros(10), np.zeros(10)
    seen = []

    def swap(out, into, tag=1):
        if comm.rank < other:
            comm.send(out, other, tag)
        try:
            status = comm.recv(into, other, tag)
        finally:
            if comm.rank > other:
                comm.send(out, other, tag)
        seen.append((status.source, status.tag, status.nbytes))
        return status

    def equal(turns):
        for turn in range(turns):
            data[:] = 10 * turn + comm.rank
            swap(data, room)
            assert (room == 10 * turn + other).all()

    equal(6)
    # A shorter message fills the beginning of a buffer for which a long one was expected.
    for turn in range(3):
        few[:] = 100 + turn + comm.rank
        swap(few, room)
        assert (room[:10] == 100 + turn + other).all()
        assert (room[10:] == 50 + other).all()
    equal(5)
    # A message of the same length with another tag arrives first.
    sends = [comm.isend(np.full(count, tag + comm.rank, float), other, tag) for tag in (2, 1)]
    for tag in (1, 2):
        comm.recv(room, other, tag)
        assert (room == tag + other).all()
    comm.waitall(sends)
    equal(4)
    kept = swap(data, room)
    for _ in range(3):
        with pytest.raises(Truncated) as caught:
            swap(data, small)
        assert caught.value.capacity == 80
    assert (kept.source, kept.tag, kept.nbytes) == (other, 1, 8 * count)
    room.flags.writeable = False
    refuses(comm.recv, room, other, 1)
    room.flags.writeable = True
    equal(4)
    # Arrays that die, whose place in memory others take.
    for turn in range(20):
        own, got = np.full(5, turn + comm.rank, np.int64), np.zeros(5, np.int64)
        for _ in range(turn % 4):
            swap(own, got)
            assert got.tolist() == [turn + other] * 5
    return seen


def requests(comm):
    if comm.size == 1:
        return
    if comm.rank == 0:
        rooms = [np.zeros(1, np.int64) for _ in range(comm.size)]
        receives = [comm.irecv(rooms[r], r, 3) for r in range(1, comm.size)]
        comm.barrier()
        seen = set()
        waiting = list(range(1, comm.size))
        while waiting:
            i, status = comm.waitany([receives[r - 1] for r in waiting])
            assert status.source == waiting[i]
            seen.add(int(rooms[waiting.pop(i)][0]))
        assert seen == {10 * r for r in range(1, comm.size)}
        assert receives[0].wait().source == 1
        lonely = comm.irecv(rooms[0], 1, 99)
        assert lonely.test() is None
        assert lonely.cancel()
        lonely.wait()
    else:
        comm.barrier()
        comm.send(np.array([10 * comm.rank]), 0, 3)


def batches(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    big = np.full(50000, comm.rank, np.float64)
    got = np.empty_like(big)
    with comm.group():
        comm.send(big, right, 2)
        comm.recv(got, left, 2)
    assert (got == left).all()
    comm.barrier()


def product(lower, higher):
    return (lower.reshape(-1, 2, 2) @ higher.reshape(-1, 2, 2)).reshape(-1)


MATRIX = Op(product, "matrix product")


def rows(size, count, dtype=np.int64):
    return np.random.default_rng(count).integers(-9, 10, (size, count)).astype(dtype)


def reductions(comm):
    for count in (0, 1, 37):
        for dtype in (np.int64, np.float64, np.complex128, np.bool_, np.float16):
            table = rows(comm.size, count, dtype)
            mine = table[comm.rank].copy()
            for op, function in ((SUM, np.add), (PROD, np.multiply), (MIN, np.minimum), (MAX, np.maximum)):
                if (dtype is np.complex128 and op in (MIN, MAX)) or (op is PROD and dtype is np.float16):
                    continue
                prefix = function.accumulate(table, axis=0, dtype=dtype)
                for order in (None, "rank"):
                    assert same(comm.allreduce(mine, op=op, order=order), prefix[-1], op, dtype)
                    assert same(comm.scan(mine, op=op, order=order), prefix[comm.rank], op, dtype)
                    before = comm.exscan(mine, op=op, order=order)
                    assert same(before, prefix[comm.rank - 1] if comm.rank else np.zeros(count), op, dtype)
                    got = comm.reduce(mine, op=op, root=comm.size - 1, order=order)
                    assert (got is None) == (comm.rank != comm.size - 1)
                    assert got is None or same(got, prefix[-1], op, dtype)
                    blocks = np.tile(mine, comm.size)
                    assert same(comm.reduce_scatter(blocks, op=op, order=order), prefix[-1], op, dtype)
            again = mine.copy()
            comm.allreduce(IN_PLACE, again)
            assert same(again, np.add.reduce(table, axis=0, dtype=dtype), SUM, dtype)
    return bits(comm.allreduce(np.sin(np.arange(100.0) + comm.rank), order="rank"))


def same(a, b, op, dtype):
    return np.array_equal(a, b) if np.dtype(dtype).kind in "ib" or op in (MIN, MAX, SUM) else np.allclose(a, b, rtol=1e-5)


def matrices_in_rank_order(comm):
    table = np.random.default_rng(1).integers(-2, 3, (comm.size, 12)).astype(np.int64)
    prefix = [table[0]]
    for row in table[1:]:
        prefix.append(product(prefix[-1], row))
    mine = table[comm.rank].copy()
    for name in algorithms("allreduce"):
        comm.choose(allreduce=name)
        assert np.array_equal(comm.allreduce(mine, op=MATRIX), prefix[-1]), name
    comm._chosen = {}
    for order in (None, "rank"):
        assert np.array_equal(comm.scan(mine, op=MATRIX, order=order), prefix[comm.rank])
        got = comm.exscan(mine, op=MATRIX, order=order)
        assert comm.rank == 0 or np.array_equal(got, prefix[comm.rank - 1])
        for root in range(comm.size):
            got = comm.reduce(mine, op=MATRIX, root=root, order=order)
            assert comm.rank != root or np.array_equal(got, prefix[-1])


def every_algorithm(comm):
    """Each algorithm against NumPy, and each with counts of 0 and 1."""
    size = comm.size
    for collective in algorithms():
        for name in algorithms(collective):
            comm.choose(**{collective: name})
            for count in (0, 1, 3000):
                table = rows(size, count)
                mine = table[comm.rank].copy()
                total = table.sum(0)
                if collective == "barrier":
                    comm.barrier()
                elif collective == "bcast":
                    got = table[size // 2].copy() if comm.rank == size // 2 else np.empty(count, np.int64)
                    assert np.array_equal(comm.bcast(got, size // 2), table[size // 2]), name
                elif collective == "allreduce":
                    assert np.array_equal(comm.allreduce(mine), total), name
                elif collective == "reduce":
                    got = comm.reduce(mine, root=size // 2)
                    assert got is None or np.array_equal(got, total), name
                elif collective in ("scan", "exscan"):
                    ends = comm.rank + 1 if collective == "scan" else comm.rank
                    assert np.array_equal(getattr(comm, collective)(mine), table[:ends].sum(0)), name
                elif collective == "allgather":
                    assert np.array_equal(comm.allgather(mine), table), name
                elif collective in ("alltoall", "alltoallv"):
                    send = table[:, : count // size * size]
                    block = count // size
                    expected = send[:, comm.rank * block : (comm.rank + 1) * block].reshape(-1)
                    mine = send[comm.rank].copy()
                    got = comm.alltoall(mine) if collective == "alltoall" else comm.alltoallv(mine, [block] * size)
                    assert np.array_equal(got, expected), name
                elif collective == "reduce_scatter":
                    counts = [count // size + (r < count % size) for r in range(size)]
                    start = sum(counts[: comm.rank])
                    assert np.array_equal(comm.reduce_scatter(mine, counts=counts), total[start : start + counts[comm.rank]]), name
            comm._chosen = {}


def gathers(comm):
    size, rank = comm.size, comm.rank
    mine = np.arange(6.0).reshape(2, 3) + 10 * rank
    whole = np.stack([np.arange(6.0).reshape(2, 3) + 10 * r for r in range(size)])
    root = size - 1
    got = comm.gather(mine, root=root)
    assert np.array_equal(got, whole) if rank == root else got is None
    assert np.array_equal(comm.allgather(mine), whole)
    room = whole.copy() * 0
    room[rank] = mine
    comm.allgather(IN_PLACE, room)
    assert np.array_equal(room, whole)
    assert np.array_equal(comm.scatter(whole if rank == root else None, np.empty((2, 3)), root), mine)
    counts = [r % 3 for r in range(size)]
    parts = np.concatenate([np.full(n, float(r)) for r, n in enumerate(counts)]) if size > 1 else np.zeros(0)
    part = np.full(counts[rank], float(rank))
    assert np.array_equal(comm.allgatherv(part), parts)
    assert np.array_equal(comm.allgatherv(part, None, counts), parts)
    got = comm.gatherv(part, root=root)
    assert rank != root or np.array_equal(got, parts)
    got = comm.scatterv(parts if rank == root else None, counts if rank == root else None, np.empty(counts[rank]), root=root)
    assert np.array_equal(got, part)
    # Gaps between the parts, and the parts in reverse, stay as the displacements say.
    starts = [4 * (size - 1 - r) for r in range(size)]
    room = np.full(4 * size, -1.0)
    comm.allgatherv(part, room, counts, starts)
    for r in range(size):
        assert room[starts[r] : starts[r] + counts[r]].tolist() == [r] * counts[r]
        assert (room[starts[r] + counts[r] : starts[r] + 4] == -1).all()
    send = np.arange(size, dtype=np.int64) * 100 + rank
    assert comm.alltoall(send).tolist() == [rank * 100 + r for r in range(size)]


def unequal_exchange(comm):
    """Rank r sends rank s (r + 2s) % 4 elements, from places that the other side does not know."""
    size, rank = comm.size, comm.rank
    counts = np.array([[(r + 2 * s) % 4 for s in range(size)] for r in range(size)])
    send = np.full(4 * size + 3, -1.0)
    starts = [3 + 4 * (size - 1 - s) for s in range(size)]
    for s in range(size):
        send[starts[s] : starts[s] + counts[rank, s]] = rank + s / 100
    room = np.full(5 * size, -5.0)
    recvstarts = [5 * r for r in range(size)]
    comm.alltoallv(send, counts[rank], room, counts[:, rank], starts, recvstarts)
    for r in range(size):
        n = counts[r, rank]
        assert room[5 * r : 5 * r + n].tolist() == [r + rank / 100] * n
        assert (room[5 * r + n : 5 * r + 5] == -5).all()
    got = comm.alltoallv(np.concatenate([np.full(n, rank + s / 100) for s, n in enumerate(counts[rank])]), counts[rank])
    assert got.tolist() == [r + rank / 100 for r in range(size) for _ in range(counts[r, rank])]


def layouts(comm):
    size, rank = comm.size, comm.rank
    right, left = (rank + 1) % size, (rank - 1) % size
    matrix = np.arange(30.0).reshape(5, 6) + 100 * rank
    column = Layout.vector(5, 1, 6, 2)
    box = Layout.subarray((5, 6), (2, 3), (1, 2))
    scattered = Layout.indexed([2, 0, 1], [7, 3, 29])
    theirs = np.arange(30.0).reshape(5, 6) + 100 * left
    for layout, expected in ((column, theirs[:, 2]), (box, theirs[1:3, 2:5]), (scattered, theirs.reshape(-1)[[7, 8, 29]])):
        flat = np.empty(layout.count)
        comm.sendrecv((matrix, layout), right, flat, left, 1, 1)
        assert np.array_equal(flat, expected.reshape(-1))
        other = np.full((5, 6), -1.0)
        status = comm.sendrecv((matrix, layout), right, (other, layout), left, 2, 2)
        assert status.nbytes == layout.nbytes(np.float64)
        assert np.array_equal(layout.pack(other), layout.pack(theirs))
        assert (other == -1).sum() == 30 - layout.count
    record = np.zeros(3, np.dtype([("a", "i4"), ("b", "f8")]))
    record["a"], record["b"] = rank, rank + 0.5
    halves = Layout.struct([(0, "i4", Layout.contiguous(1)), (12 + 4, "f8", Layout.contiguous(1))])
    got = np.zeros_like(record)
    comm.sendrecv((record, halves), right, (got, halves), left)
    assert got["a"].tolist() == [left, 0, 0]
    assert got["b"].tolist() == [0, left + 0.5, 0]
    shared = matrix.copy()
    comm.bcast((shared, column), 0)
    assert np.array_equal(shared[:, 2], np.arange(30.0).reshape(5, 6)[:, 2])
    assert np.array_equal(shared[:, 3], matrix[:, 3])
    square = np.arange(float(size * size)).reshape(size, size) + 1000 * rank
    turned = np.empty((size, size))
    comm.alltoallw(
        square, [Layout.contiguous(size, s * size) for s in range(size)], turned, [Layout.vector(size, 1, size, r) for r in range(size)]
    )
    assert turned.tolist() == [[1000 * r + size * rank + k for r in range(size)] for k in range(size)]


def groups_of_ranks(comm):
    size, rank = comm.size, comm.rank
    half = comm.split(rank % 2, -rank)
    members = sorted((r for r in range(size) if r % 2 == rank % 2), reverse=True)
    assert half.allgather(np.array(rank)).tolist() == members
    assert (half.rank, half.size) == (members.index(rank), len(members))
    assert (comm.split(None if rank else 3) is None) == (rank != 0)
    copy = comm.dup()
    # The same source and tag, and yet another communicator.
    a, b = comm.irecv(np.empty(1), rank, 1), copy.irecv(np.empty(2), rank, 1)
    copy.send(np.zeros(2), rank, 1)
    assert b.wait().nbytes == 16
    assert a.test() is None
    comm.send(np.zeros(1), rank, 1)
    assert a.wait().nbytes == 8
    near = comm.split_bits(1)
    assert near.allgather(np.array(rank)).tolist() == [r for r in range(size) if r | 1 == rank | 1]
    columns = 2 if size % 2 == 0 else 1
    grid = comm.grid(size // columns, columns)
    assert grid.row.allgather(np.array(rank)).tolist() == [grid.i * columns + j for j in range(columns)]
    assert grid.col.allgather(np.array(rank)).tolist() == [i * columns + grid.j for i in range(size // columns)]
    mine = [(i, j) for i in range(7) for j in range(5) if grid.owner(i, j, (7, 5)) == rank]
    assert mine == [(i, j) for i in grid.col.local_range(7) for j in grid.row.local_range(5)]
    assert (comm.node, comm.node_rank, comm.node_size) == (0, rank, size)
    return comm.rng.integers(1 << 60)


def shapes(size):
    return [(size,), (1, size), (size, 1), *([(2, size // 2), (size // 2, 2)] if size % 2 == 0 else [])]


def boxes(comm):
    """Stamps of (rank, slot) to every neighbour: also where both neighbours are one rank, each arrives on the right side."""
    for dims in shapes(comm.size):
        for wraps in (True, False):
            grid = comm.cart(dims, wraps)
            slots = 2 * len(dims)
            for slot, source in enumerate(grid.sources):
                place = list(grid.coords)
                place[slot // 2] += 1 if slot % 2 else -1
                assert source == grid.rank_at(place)
            send = np.array([[grid.rank * 10.0 + s, -1.0] for s in range(slots)])
            expected = [[source * 10.0 + (slot ^ 1), -1.0] if source >= 0 else [-3.0, -3.0] for slot, source in enumerate(grid.sources)]
            room = np.full((slots, 2), -3.0)
            assert grid.neighbor_alltoall(send, room).tolist() == expected
            room[...] = -3
            grid.neighbor_alltoallv(send, [2] * slots, room, [2] * slots)
            assert room.tolist() == expected
            room[...] = -3
            parts = [Layout.contiguous(2, 2 * s) for s in range(slots)]
            grid.neighbor_alltoallw(send, parts, room, parts)
            assert room.tolist() == expected
            room[...] = -3
            plan = grid.neighbor_alltoallw_init(send, parts, room, parts)
            for turn in range(3):
                send[:, 1] = turn
                plan.start()
                plan.wait()
                assert room.tolist() == [[first, turn if first != -3 else -3] for first, _ in expected]
            gathered = grid.neighbor_allgather(np.array([float(grid.rank)]), np.full((slots, 1), -3.0))
            assert gathered.reshape(-1).tolist() == [s if s >= 0 else -3 for s in grid.sources]


def graphs(comm):
    """Each rank sends to the next two, and twice to itself."""
    size, rank = comm.size, comm.rank
    destinations = [(rank + 1) % size, rank, (rank + 2) % size, rank]
    sources = [(rank - 1) % size, rank, (rank - 2) % size, rank]
    if size > 3:
        graph = comm.graph(sources, destinations)
        got = graph.neighbor_alltoall(np.array([10.0 * rank + i for i in range(4)]))
        assert got.tolist() == [10.0 * sources[0], 10.0 * rank + 1, 10.0 * sources[2] + 2, 10.0 * rank + 3]
        records = graph.exchange([np.full(rank + i, i, np.int32) for i in range(4)])
        assert [r.tolist() for r in records] == [[0] * sources[0], [1] * (rank + 1), [2] * (sources[2] + 2), [3] * (rank + 3)]
    else:
        graph = comm.graph([rank], [rank])
        assert [r.tolist() for r in graph.exchange([np.arange(rank)])] == [list(range(rank))]


def trees(comm):
    """Concatenation shows the tree: in rank order on the way up, each rank its own piece on the way down."""
    size, rank = comm.size, comm.rank
    whole = comm.tree_reduce(np.full(rank + 1, rank), lambda a, b: np.concatenate([a, b]))
    everything = [r for r in range(size) for _ in range(r + 1)]
    assert (whole is None) == (rank != 0)
    assert rank or whole.tolist() == everything
    pair = comm.tree_reduce(
        (np.array(float(rank)), np.array([[rank]])), lambda a, b: (a[0] + b[0], np.vstack([a[1], b[1]])), broadcast=True
    )
    assert float(pair[0]) == size * (size - 1) / 2
    assert pair[1].reshape(-1).tolist() == list(range(size))
    kept = []

    def combine(a, b):
        kept.append(len(a))
        return np.concatenate([a, b])

    def expand(value):
        own = kept.pop()
        return value[:own], value[own:]

    whole = comm.tree_reduce(np.full(rank + 1, rank, np.int16), combine)
    assert comm.tree_down(whole, expand).tolist() == [rank] * (rank + 1)
    # Not associative in floating point: the bits say that the tree is the same everywhere.
    return bits(comm.tree_reduce(np.sin(np.arange(9.0) * (rank + 1)), lambda a, b: a + b * 0.7, broadcast=True))


def plans(comm):
    size, rank = comm.size, comm.rank
    right, left = (rank + 1) % size, (rank - 1) % size
    data, got = np.zeros(5), np.zeros(5)
    send, recv = comm.send_init(data, right, 4), comm.recv_init(got, left, 4)
    total, mine = np.zeros(3), np.zeros(3)
    reduce = comm.allreduce_init(mine, total)
    ordered = comm.allreduce_init(mine, order="rank")
    shared = np.zeros(2)
    cast = comm.bcast_init(shared, size - 1)
    for turn in range(4):
        data[:] = rank + turn
        mine[:] = rank * turn
        shared[:] = turn if rank == size - 1 else -1
        recv.start()
        send.start()
        reduce.start()
        reduce.wait()
        send.wait()
        assert recv.wait().nbytes == 40
        assert (got == left + turn).all()
        assert (total == turn * size * (size - 1) / 2).all()
        assert np.array_equal(ordered.start().wait(), total)
        cast.start().wait()
        assert shared.tolist() == [turn, turn]
        comm.barrier_init().start().wait()


def windows(comm):
    size, rank = comm.size, comm.rank
    with comm.window(8 * size, np.int64) as window:
        for other in range(size):
            window.put(np.array([100 * rank + other]), other, rank)
        window.fence()
        assert window.local.tolist() == [100 * r + rank for r in range(size)]
        got = np.empty(size, np.int64)
        window.get(got, (rank + 1) % size)
        window.flush((rank + 1) % size)
        assert got.tolist() == [100 * r + (rank + 1) % size for r in range(size)]
        window.fence()
        window.local[:] = 0
        window.fence()
        for _ in range(20):
            window.accumulate(np.array([1, rank]) if size > 1 else np.array([1]), 0)
        window.fence()
        assert rank or window.local[0] == 20 * size
        seen = window.view(0)
        assert seen is None or seen[0] == 20 * size
        window.fence()
        for _ in range(10):
            with window.lock(0):
                value = np.empty(1, np.int64)
                window.get(value, 0)
                window.flush(0)
                window.put(value + 1, 0)
                window.flush(0)
        window.fence()
        assert rank or window.local[0] == 30 * size
        refuses(window.put, np.zeros(size + 1, np.int64), 0)
        refuses(window.put, np.zeros(1), 0)
        refuses(window.get, np.zeros(1, np.int64), size)
    refuses(comm.window, 7, np.int64)


def coordinated(comm):
    """Both directions in one batch; the signals rise; unequal counts land where the peer says."""
    size, rank = comm.size, comm.rank
    right, left = (rank + 1) % size, (rank - 1) % size
    coord = Coordinator(comm)
    signal = np.zeros(1, np.int64)
    big, got = np.full(30000, float(rank)), np.empty(30000)
    for turn in range(1, 4):
        with coord.batch():
            coord.post(big, got, 30000, signal, turn, right)
            coord.acknowledge(got, 30000, signal, turn, left)
        assert signal[0] == turn
        assert (got == left).all()
    assert coord.allreduce(np.array([1.0])).tolist() == [size]
    counts = np.array([[(r + s) % 3 for s in range(size)] for r in range(size)])
    answer = coord.alltoallv(np.concatenate([np.full(n, rank * 10.0 + s) for s, n in enumerate(counts[rank])]), counts[rank])
    assert answer.tolist() == [r * 10.0 + rank for r in range(size) for _ in range(counts[r, rank])]
    called = []
    coord.bind(called.append, args=(rank,))
    coord.launch()
    assert called == [rank]
    refuses(coord.bind, print, mode="full-device")
    refuses(coord.post, big, got, 30001, signal, 1, right)


def counted(comm):
    """Exact counters: payload for other ranks, once."""
    size, rank = comm.size, comm.rank
    others = size - 1
    right = (rank + 1) % size
    with comm.phase("messages"):
        comm.sendrecv(np.zeros(10), right, np.zeros(10), (rank - 1) % size)
        comm.send(np.zeros(3), PROC_NULL)
    with comm.phase("collectives"):
        comm.allreduce(np.zeros(4), order="rank")
        comm.allgather(np.zeros(2))
        comm.bcast(np.zeros(5), 0)
        comm.barrier()
    with comm.phase("exchange"):
        comm.alltoallv(np.zeros(size), [1] * size)
        comm.alltoall(np.zeros(2 * size, np.int32))
        comm.dup().allreduce(np.zeros(1))
    c = comm.counters
    assert (c["messages"].calls, c["messages"].messages, c["messages"].bytes) == (3, int(size > 1), 80 * (size > 1))
    assert c["collectives"].bytes == (32 + 16 + 40 * (rank == 0)) * (size > 1)
    assert (c["collectives"].collectives, c["collectives"].messages) == (4, 0)
    assert (c["exchange"].collectives, c["exchange"].messages) == (3, 2 * others)
    assert c["exchange"].bytes == 16 * others + 8 * (size > 1)
    assert c["messages"].seconds >= 0
    return [(k, v.calls, v.messages, v.bytes, v.collectives) for k, v in c.items() if k]


def bad_arguments(comm):
    size = comm.size
    refuses(comm.send, np.zeros((4, 4))[:, 1], 0)
    refuses(comm.send, np.zeros(1), size)
    refuses(comm.send, np.zeros(1), -3)
    refuses(comm.send, np.zeros(1), 0, -1)
    refuses(comm.send, np.zeros(1), 0, 32768)
    refuses(comm.send, np.array([None]), 0)
    refuses(comm.send, [1, 2], 0)
    refuses(comm.send, (np.zeros(3), Layout.contiguous(4)), 0)
    refuses(comm.recv, np.zeros(1), size)
    refuses(comm.recv, np.zeros(1), 0, 40000)
    refuses(comm.recv, b"abc", 0)
    refuses(comm.bcast, np.zeros(1), size)
    refuses(comm.reduce, np.zeros(1), None, SUM, -1)
    refuses(comm.allreduce, np.zeros(2), np.zeros(3))
    refuses(comm.allreduce, np.zeros(2), np.zeros(2, np.float32))
    refuses(comm.allreduce, np.zeros(2), order="random")
    refuses(comm.alltoallv, np.zeros(2), [3] * size, np.zeros(9), [0] * size)
    refuses(comm.alltoallv, np.zeros(2), [0] * (size + 1))
    refuses(comm.allgatherv, np.zeros(1), np.zeros(size), [1] * size, [size] * size)
    refuses(comm.cart, [size + 1])
    refuses(comm.grid, size, 2)
    refuses(comm.split, -5)
    refuses(comm.graph, [size], [])
    refuses(comm.choose, allreduce="magic")
    refuses(comm.choose, magic="ring")
    comm.barrier()


CHECKS = [
    awkward_messages, self_messages, nobody, messages_do_not_overtake, wildcards, truncated, repeated, repeated_long, requests, batches, reductions,
    matrices_in_rank_order, every_algorithm, gathers, unequal_exchange, layouts, groups_of_ranks, boxes, graphs, trees, plans, windows,
    coordinated, counted, bad_arguments,
]  # fmt: skip


def everything(comm, skip=()):
    """All checks, each on a communicator of its own; what each returned, by name."""
    answers = {}
    for check in CHECKS:
        if check.__name__ in skip:
            continue
        own = comm.dup()
        answers[check.__name__] = check(own)
        comm.barrier()
    return answers
