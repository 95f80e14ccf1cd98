"""Programs for ranks that are processes of torch.distributed."""

from __future__ import annotations

import os
import signal

import comm_checks
import numpy as np
import pytest

from armillary.comm import Truncated


def fails(comm):
    comm.barrier()
    if comm.rank == 1:
        raise KeyError("no such key")
    comm.recv(np.zeros(1), 1)


def leaves(comm, code):
    comm.barrier()
    if comm.rank == 1:
        os._exit(code)
    comm.allreduce(np.zeros(1))


def in_pieces(comm):
    """Long messages travel in pieces, and one without enough room is thrown away piece by piece."""
    import tracemalloc

    from armillary.comm.torch_distributed import post

    whole, post.PIECE = post.PIECE, 1 << 16
    try:
        comm.barrier()
        for nbytes in (1 << 16, (1 << 16) + 1, 300_001):
            comm_checks.sized(comm, nbytes)
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        tracemalloc.start()
        send = comm.isend(np.arange(3_000_000, dtype=np.uint8), right, 5)
        own = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        with pytest.raises(Truncated):
            comm.recv(np.zeros(100, np.uint8), left, 5)
        taken = tracemalloc.get_traced_memory()[1] - own
        tracemalloc.stop()
        send.wait()
        assert taken < 200_000
        comm.barrier()
    finally:
        post.PIECE = whole


def survives(comm, kills, steps):
    """Add up ranks' numbers for some steps; each (step, rank) of `kills` ends that process there, once.

    A rank keeps what the one before it had, as a checkpoint in memory would, so that the process in its place goes on from there.
    """
    from armillary.comm import Aborted

    def swapped(state):
        theirs = np.zeros_like(state)
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        comm.sendrecv(state, right, theirs, left)
        return theirs

    state, kept = np.zeros(2), np.zeros(2)
    fresh = comm.generation > 0
    while True:
        try:
            if comm.generation and fresh is not None:
                # Who is new asks the next rank, which holds its state; all go back to the earliest step.
                known = comm.allgather(np.array([-1.0 if fresh else state[0]]))
                theirs = np.zeros(2)
                left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
                comm.sendrecv(kept, left, theirs, right)
                if fresh:
                    state = theirs
                earliest = comm.allgather(np.array([state[0]])).min()
                assert (known >= 0).any()
                assert state[0] - earliest in (0, 1)
                if state[0] > earliest:
                    state = np.array([earliest, state[1] - sum(earliest * 10 + rank for rank in range(comm.size))])
                fresh = None
            while state[0] < steps:
                if (state[0], comm.rank) in {(step, rank) for step, rank in kills[comm.generation : comm.generation + 1]}:
                    os.kill(os.getpid(), signal.SIGKILL)
                kept = swapped(state)
                total = comm.allreduce(np.array([state[0] * 10 + comm.rank]))
                state = np.array([state[0] + 1, state[1] + total[0]])
            comm.barrier()
            return [float(state[0]), float(state[1]), comm.generation]
        except Aborted:
            comm, fresh = comm.renewed(), False


def natively(comm):
    import torch

    if comm.rank == 1:
        print("from rank 1", flush=True)
    calls = []

    class Counting:
        def __init__(self, native):
            self.native = native

        def __getattr__(self, name):
            calls.append(name)
            return getattr(self.native, name)

    post = comm._post
    everybody = tuple(range(comm.size))
    post._groups[everybody] = Counting(post._groups[everybody])
    comm.allreduce(np.ones(3))
    comm.bcast(np.ones(3))
    comm.allgather(np.ones(3))
    comm.alltoallv(np.ones(comm.size), [1] * comm.size, np.ones(comm.size), [1] * comm.size)
    comm.reduce_scatter(np.ones(comm.size))
    comm.reduce(np.ones(3))
    comm.barrier()
    assert calls == ["allreduce", "broadcast", "allgather", "alltoall_base", "reduce_scatter", "reduce", "barrier"]
    comm.allreduce(np.ones(3, np.int16))
    comm.allreduce(np.ones(3), order="rank")
    assert "allreduce" not in calls[7:]
    post._groups[everybody] = post._groups[everybody].native
    total = comm.allreduce(torch.full((2, 2), comm.rank))
    assert isinstance(total, torch.Tensor)
    assert total.tolist() == [[3, 3], [3, 3]]
    comm_checks.refuses(comm.window, 8)
    backwards = comm.split(0, -comm.rank)
    assert backwards.native.rank() == backwards.rank == comm.size - 1 - comm.rank
    return backwards.allgather(np.array(comm.rank)).tolist()


def exchanged(ranks):
    """Messages both ways, a wildcard, and collective calls: the first rank's number at every rank, and all numbers."""
    right, left = (ranks.rank + 1) % ranks.size, (ranks.rank - 1) % ranks.size
    got = np.empty(1, np.int64)
    status = ranks.sendrecv(np.array([ranks.rank]), right, got, left, 5)
    assert (status.source, status.tag, got[0]) == (left, 5, left)
    ranks.send(np.array([ranks.rank]), ranks.rank, 6)
    assert ranks.recv(got).tag == 6
    assert ranks.allreduce(np.array([1.0]))[0] == ranks.size
    return ranks.dup().allgather(np.array(ranks.rank)).tolist() == list(range(ranks.size))


def adopts_mpi(comm):
    from mpi4py import MPI

    from armillary.comm import Communicator

    native = MPI.COMM_WORLD.Split(comm.rank % 2, -comm.rank)
    ranks = Communicator.adopt(native)
    assert ranks.native is native
    assert (ranks.rank, ranks.size) == (native.rank, native.size)
    assert exchanged(ranks)
    comm_checks.refuses(Communicator.adopt, MPI.COMM_NULL)

    return ranks.allgather(np.array(comm.rank)).tolist()


def adopts_torch(comm):
    import torch
    import torch.distributed as dist

    from armillary.comm import Communicator

    group = dist.new_group([0, 2])
    if comm.rank == 1:
        comm_checks.refuses(Communicator.adopt, group)
        return None
    ranks = Communicator.adopt(group)
    assert ranks.native is group
    assert (ranks.rank, ranks.size) == (dist.get_rank(group), 2)
    assert exchanged(ranks)
    assert exchanged(Communicator.adopt(group))
    # What it gives back works as before.
    one = torch.ones(1)
    dist.all_reduce(one, group=ranks.native)
    assert float(one) == 2
    assert comm.native is dist.group.WORLD
    values = ranks.allgather(np.array(comm.rank)).tolist()
    ranks.close()
    return values


def devices(comm):
    """The calls of ranks with a device, on tensors in main memory over the same group: against NumPy."""
    import torch
    import torch.distributed as dist

    from armillary.comm import ANY_SOURCE, IN_PLACE, MAX, MIN, PROC_NULL, PROD, SUM, Op
    from armillary.comm.counters import Tally
    from armillary.comm.torch_distributed.nccl import DeviceRanks

    refuses = comm_checks.refuses
    ranks = DeviceRanks(dist.group.WORLD, Tally(), 0)
    size, rank = ranks.size, ranks.rank
    right, left = (rank + 1) % size, (rank - 1) % size
    table = np.random.default_rng(5).integers(-9, 10, (size, 12))
    mine = torch.from_numpy(table[rank].copy())

    def equal(got, expected):
        assert isinstance(got, torch.Tensor)
        assert np.array_equal(got.numpy(), expected), (got, expected)

    got = torch.empty_like(mine)
    assert ranks.sendrecv(mine, right, got, left).nbytes == 96
    equal(got, table[left])
    with ranks.group():
        ranks.send(mine, rank)
        ranks.recv(got, rank)
    equal(got, table[rank])
    request = ranks.irecv(got, left)
    ranks.isend(mine, right).wait()
    assert request.wait().source == left
    equal(got, table[left])
    ranks.send(mine, PROC_NULL)
    for op, function in ((SUM, np.add), (PROD, np.multiply), (MIN, np.minimum), (MAX, np.maximum)):
        prefix = function.accumulate(table, axis=0)
        for order in (None, "rank"):
            equal(ranks.allreduce(mine, op=op, order=order), prefix[-1])
            total = ranks.reduce(mine, op=op, root=1, order=order)
            assert (total is None) == (rank != 1)
            assert total is None or np.array_equal(total.numpy(), prefix[-1])
            equal(ranks.scan(mine, op=op, order=order), prefix[rank])
            equal(ranks.exscan(mine, op=op, order=order), prefix[rank - 1] if rank else np.zeros(12))
            equal(ranks.reduce_scatter(mine, op=op, order=order), np.split(prefix[-1], size)[rank])
            equal(ranks.reduce_scatter(mine, op=op, order=order, counts=[5, 0, 7]), np.split(prefix[-1], [5, 5])[rank])
    keep_lower = Op(lambda lower, higher: lower)
    equal(ranks.allreduce(mine, op=keep_lower), table[0])
    again = mine.clone()
    ranks.allreduce(IN_PLACE, again)
    equal(again, table.sum(0))
    whole = ranks.allreduce(torch.complex(mine.double(), -mine.double()))
    equal(whole, table.sum(0) * (1 - 1j))
    refuses(ranks.allreduce, mine.to(torch.int16))
    equal(ranks.bcast(mine.clone(), 2), table[2])
    equal(ranks.allgather(mine.view(3, 4)), table.reshape(size, 3, 4))
    room = torch.zeros((size, 12), dtype=torch.int64)
    room[rank] = mine
    equal(ranks.allgather(IN_PLACE, room), table)
    part = mine[: rank + 2].clone()
    parts = np.concatenate([table[r, : r + 2] for r in range(size)])
    equal(ranks.allgatherv(part), parts)
    gathered = ranks.gatherv(part, root=1)
    assert (gathered is None) == (rank != 1)
    assert gathered is None or np.array_equal(gathered.numpy(), parts)
    rows = ranks.gather(mine, root=2)
    assert rows is None or np.array_equal(rows.numpy(), table)
    equal(ranks.scatter(rows, torch.empty_like(mine), 2), table[rank])
    counts = [r + 2 for r in range(size)]
    equal(ranks.scatterv(gathered, counts if rank == 1 else None, torch.empty_like(part), root=1), table[rank, : rank + 2])
    equal(ranks.alltoall(mine), table.reshape(size, size, 4)[:, rank].reshape(-1))
    unequal = np.array([[(r + 2 * s) % 4 for s in range(size)] for r in range(size)])
    send = torch.cat([torch.full((int(n),), 10 * rank + s) for s, n in enumerate(unequal[rank])])
    equal(ranks.alltoallv(send, unequal[rank]), [10 * r + rank for r in range(size) for _ in range(unequal[r, rank])])
    # The places are the receiver's own.
    room = torch.full((5 * size,), -1)
    ranks.alltoallv(send, unequal[rank], room, unequal[:, rank], None, [5 * r for r in range(size)])
    expected = np.full(5 * size, -1)
    for r in range(size):
        expected[5 * r : 5 * r + unequal[r, rank]] = 10 * r + rank
    equal(room, expected)
    pair = ranks.split(rank % 2)
    equal(pair.allgather(torch.tensor(rank)), [r for r in range(size) if r % 2 == rank % 2])
    equal(ranks.dup().allreduce(mine), table.sum(0))
    ranks.barrier()
    assert ranks.native is dist.group.WORLD
    assert ranks.alloc((2, 3)).shape == (2, 3)
    with ranks.phase("counted"):
        ranks.sendrecv(mine, right, got, left)
        ranks.allreduce(mine)
        ranks.alltoall(mine)
    c = ranks.counters["counted"]
    refuses(ranks.send, mine, right, 3)
    refuses(ranks.recv, got, ANY_SOURCE)
    refuses(ranks.recv, got, left, 3)
    refuses(ranks.send, mine, rank)
    refuses(ranks.send, mine, size)
    refuses(ranks.probe)
    refuses(ranks.iprobe)
    refuses(ranks.window, 8)
    refuses(ranks.send, np.zeros(3), right)
    refuses(ranks.send, mine[::2], right)
    refuses(ranks.send, torch.empty(3, device="meta"), right)
    refuses(ranks.allreduce, mine, torch.empty(3, dtype=torch.int64))
    refuses(ranks.allreduce, mine, torch.empty(12))
    refuses(ranks.alltoallw, mine, [], got, [])
    refuses(comm.allreduce, torch.empty(3, device="meta"))
    return c.calls, c.messages, c.bytes, c.collectives


def tensors(comm):
    """Tensors in main memory travel as arrays do; what a call makes is of the kind that it was given."""
    import torch

    size, rank = comm.size, comm.rank
    right, left = (rank + 1) % size, (rank - 1) % size
    mine, got = torch.arange(6.0).view(2, 3) + rank, torch.zeros(2, 3)
    comm.sendrecv(mine, right, got, left)
    assert got.tolist() == (np.arange(6.0).reshape(2, 3) + left).tolist()
    # The same memory: nothing was copied back and forth on the way.
    comm.bcast(got, 0)
    assert got.tolist() == (np.arange(6.0).reshape(2, 3) + size - 1).tolist()
    made = [
        comm.allreduce(mine), comm.scan(mine), comm.exscan(mine), comm.allgather(mine), comm.allgatherv(mine), comm.alltoall(torch.zeros(2 * size)),
        comm.alltoallv(torch.zeros(size), [1] * size), comm.reduce_scatter(torch.ones(size)), comm.allreduce(mine, order="rank"),
    ]  # fmt: skip
    made += [comm.gather(mine), comm.gatherv(mine), comm.reduce(mine)] if rank == 0 else []
    if rank:
        comm.gather(mine), comm.gatherv(mine), comm.reduce(mine)
    assert all(isinstance(answer, torch.Tensor) and answer.dtype == torch.float32 for answer in made)
    assert made[0].tolist() == (np.arange(6.0).reshape(2, 3) * size + size * (size - 1) / 2).tolist()
    assert made[3].shape == (size, 2, 3)
    assert isinstance(comm.allreduce(mine.numpy()), np.ndarray)
    comm.allreduce(mine, got)
    assert got.tolist() == made[0].tolist()
    assert comm.allreduce(torch.ones(2, requires_grad=True)).tolist() == [size, size]
    for wrong in (mine[:, ::2], mine.to(torch.bfloat16), torch.zeros(2, device="meta"), mine.to_sparse()):
        comm_checks.refuses(comm.allreduce, wrong)
    return made[8].numpy()
