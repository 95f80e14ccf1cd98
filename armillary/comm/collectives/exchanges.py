"""Broadcasts, gathers and all-to-all exchanges as algorithms over point-to-point messages.

Each function takes a communicator and one-dimensional arrays. A buffer with one part per rank is given as the list of these parts, so one
function serves the calls with equal and with unequal counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from armillary.comm.messages.buffers import Array

if TYPE_CHECKING:
    from armillary.comm.communicator import Communicator


def binomial_bcast(comm: Communicator, buffer: Array, root: int) -> None:
    """Broadcast along a binomial tree, in which every rank that has the data passes it on, so that their number doubles each round."""
    size = comm.size
    place = (comm.rank - root) % size
    distance = 1
    while distance < size:
        if place & distance:
            comm.recv(buffer, (place - distance + root) % size)
            break
        distance *= 2
    distance //= 2
    while distance:
        if place + distance < size:
            comm.send(buffer, (place + distance + root) % size)
        distance //= 2


def scatter_allgather(comm: Communicator, buffer: Array, root: int) -> None:
    """Broadcast by scattering P blocks and gathering them on a ring, so that each rank receives the buffer once."""
    blocks = np.array_split(buffer, comm.size)
    mine = blocks[comm.rank]
    binomial_scatter(comm, blocks if comm.rank == root else None, mine, root, [block.size for block in blocks])
    ring_allgather(comm, mine, blocks)


def linear_bcast(comm: Communicator, buffer: Array, root: int) -> None:
    """Broadcast by one message from the root to each rank."""
    if comm.rank == root:
        comm.waitall([comm.isend(buffer, rank) for rank in range(comm.size) if rank != root])
    else:
        comm.recv(buffer, root)


def linear_gather(comm: Communicator, send: Array, blocks: list[Array] | None, root: int) -> None:
    """Gather by one message from each rank to the root."""
    if comm.rank != root:
        comm.send(send, root)
        return
    assert blocks is not None
    requests = [comm.irecv(blocks[rank], rank) for rank in range(comm.size) if rank != root]
    blocks[root][...] = send
    comm.waitall(requests)


def linear_scatter(comm: Communicator, blocks: list[Array] | None, recv: Array, root: int) -> None:
    """Scatter by one message from the root to each rank."""
    if comm.rank != root:
        comm.recv(recv, root)
        return
    assert blocks is not None
    requests = [comm.isend(blocks[rank], rank) for rank in range(comm.size) if rank != root]
    if recv is not blocks[root]:
        recv[...] = blocks[root]
    comm.waitall(requests)


def binomial_scatter(comm: Communicator, blocks: list[Array] | None, recv: Array, root: int, counts: list[int]) -> None:
    """Scatter along a binomial tree, halving the data each round. Every rank must know the `counts` of all ranks."""
    size = comm.size
    place = (comm.rank - root) % size
    held = [counts[(p + root) % size] for p in range(size)]
    span = 1
    while span < size and not place & span:
        span *= 2
    if blocks is not None and comm.rank == root:
        pile = np.concatenate([blocks[(p + root) % size] for p in range(size)])
    else:
        pile = np.empty_like(recv, shape=sum(held[place : place + span]))
        comm.recv(pile, (place - span + root) % size)
    span //= 2
    while span:
        if place + span < size:
            below = sum(held[place : place + span])
            comm.send(pile[below:], (place + span + root) % size)
            pile = pile[:below]
        span //= 2
    recv[...] = pile[: recv.size]


def ring_allgather(comm: Communicator, send: Array, blocks: list[Array]) -> None:
    """Gather on every rank in P-1 steps around a ring, in which each rank passes on what it received last."""
    size, rank = comm.size, comm.rank
    if blocks[rank] is not send:
        blocks[rank][...] = send
    for step in range(size - 1):
        comm.sendrecv(blocks[(rank - step) % size], (rank + 1) % size, blocks[(rank - step - 1) % size], (rank - 1) % size)


def bruck_allgather(comm: Communicator, send: Array, blocks: list[Array]) -> None:
    """Gather on every rank in ceil(log2 P) rounds for any P. Each round doubles the blocks that a rank holds, in order from its own on."""
    size, rank = comm.size, comm.rank
    held = [send]
    while len(held) < size:
        have = len(held)
        more = min(have, size - have)
        dest, source = (rank - have) % size, (rank + have) % size
        sizes = [blocks[(source + i) % size].size for i in range(more)]
        theirs = np.empty_like(send, shape=sum(sizes))
        comm.sendrecv(np.concatenate(held[:more]), dest, theirs, source)
        held.extend(np.split(theirs, np.cumsum(sizes)[:-1]))
    for i, block in enumerate(held):
        target = blocks[(rank + i) % size]
        if target is not block:
            target[...] = block


def doubling_allgather(comm: Communicator, send: Array, blocks: list[Array]) -> None:
    """Gather on every rank in log2 P exchanges, which double what is held, if P is a power of two; otherwise use Bruck's algorithm."""
    size, rank = comm.size, comm.rank
    if size & (size - 1):
        bruck_allgather(comm, send, blocks)
        return
    if blocks[rank] is not send:
        blocks[rank][...] = send
    distance = 1
    while distance < size:
        partner = rank ^ distance
        mine, theirs = rank & -distance, partner & -distance
        sizes = [block.size for block in blocks[theirs : theirs + distance]]
        room = np.empty_like(send, shape=sum(sizes))
        comm.sendrecv(np.concatenate(blocks[mine : mine + distance]), partner, room, partner)
        for block, part in zip(blocks[theirs : theirs + distance], np.split(room, np.cumsum(sizes)[:-1])):
            block[...] = part
        distance *= 2


def scattered_alltoall(comm: Communicator, sends: list[Array], recvs: list[Array]) -> None:
    """Post every receive, then every send, starting with the next rank so that not all ranks send to the same one first."""
    size, rank = comm.size, comm.rank
    requests = [comm.irecv(recvs[(rank - i) % size], (rank - i) % size) for i in range(1, size)]
    requests += [comm.isend(sends[(rank + i) % size], (rank + i) % size) for i in range(1, size)]
    recvs[rank][...] = sends[rank]
    comm.waitall(requests)


def pairwise_alltoall(comm: Communicator, sends: list[Array], recvs: list[Array]) -> None:
    """Exchange in P-1 steps, with one partner to send to and one to receive from in each."""
    size, rank = comm.size, comm.rank
    recvs[rank][...] = sends[rank]
    for step in range(1, size):
        dest, source = (rank + step) % size, (rank - step) % size
        comm.sendrecv(sends[dest], dest, recvs[source], source)


def bruck_alltoall(comm: Communicator, sends: list[Array], recvs: list[Array]) -> None:
    """Exchange equal, short blocks in ceil(log2 P) rounds. Round k moves every block whose distance has bit k set."""
    size, rank = comm.size, comm.rank
    count = sends[0].size
    held = np.stack([sends[(rank + i) % size] for i in range(size)])
    distance = 1
    while distance < size:
        chosen = [i for i in range(size) if i & distance]
        room = np.empty_like(held, shape=(len(chosen), count))
        comm.sendrecv(held[chosen], (rank + distance) % size, room, (rank - distance) % size)
        held[chosen] = room
        distance *= 2
    for i in range(size):
        recvs[(rank - i) % size][...] = held[i]
