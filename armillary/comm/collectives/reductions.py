"""Reductions as algorithms over point-to-point messages.

Each function takes a communicator and one-dimensional arrays, and `send` may be `recv` itself. Every algorithm combines neighbouring runs
of ranks in the order of the ranks, so an operation need not be commutative, and all ranks get the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from armillary.comm.collectives.operations import Op
from armillary.comm.messages.buffers import Array

if TYPE_CHECKING:
    from armillary.comm.communicator import Communicator


def dissemination(comm: Communicator) -> None:
    """Barrier in ceil(log2 P) rounds: in round k, a rank signals the rank 2^k after it and hears from the rank 2^k before it."""
    nothing = np.zeros(0, np.uint8)
    distance = 1
    while distance < comm.size:
        comm.sendrecv(nothing, (comm.rank + distance) % comm.size, nothing.copy(), (comm.rank - distance) % comm.size)
        distance *= 2


def binomial_reduce(comm: Communicator, send: Array, recv: Array | None, op: Op, root: int) -> None:
    """Reduce to rank 0 along a binomial tree, then send the result to the root."""
    held = send.copy()
    other = np.empty_like(held)
    distance = 1
    while distance < comm.size:
        if comm.rank & distance:
            comm.send(held, comm.rank - distance)
            break
        if comm.rank + distance < comm.size:
            comm.recv(other, comm.rank + distance)
            held[...] = op(held, other)
        distance *= 2
    if comm.rank == 0 and root != 0:
        comm.send(held, root)
    if comm.rank == root and recv is not None:
        if root == 0:
            recv[...] = held
        else:
            comm.recv(recv, 0)


def linear_reduce(comm: Communicator, send: Array, recv: Array | None, op: Op, root: int) -> None:
    """Send everything to the root, which combines from the left: ((x0 op x1) op x2) ..."""
    if comm.rank != root:
        comm.send(send, root)
        return
    assert recv is not None
    held = np.empty_like(send, shape=(comm.size, send.size))
    held[root] = send
    for rank in range(comm.size):
        if rank != root:
            comm.recv(held[rank], rank)
    recv[...] = _fold(held, op)


def recursive_doubling(comm: Communicator, send: Array, recv: Array, op: Op) -> None:
    """Allreduce in log2 P exchanges of the whole buffer. Ranks beyond a power of two join a neighbour first."""
    _copy(recv, send)
    place, rest = _fold_in(comm, recv, op)
    other = np.empty_like(recv)
    distance = 1
    power = _power(comm.size)
    while place >= 0 and distance < power:
        partner = _rank_at(place ^ distance, rest)
        comm.sendrecv(recv, partner, other, partner)
        recv[...] = op(recv, other) if partner > comm.rank else op(other, recv)
        distance *= 2
    _fold_out(comm, recv, rest)


def rabenseifner(comm: Communicator, send: Array, recv: Array, op: Op) -> None:
    """Allreduce by halving, then doubling. Each round exchanges half of what is left, so a rank sends about twice its buffer in total."""
    power = _power(comm.size)
    if not op.elementwise or recv.size < power:
        recursive_doubling(comm, send, recv, op)
        return
    _copy(recv, send)
    place, rest = _fold_in(comm, recv, op)
    if place >= 0:
        low, high = 0, recv.size
        spans = []
        distance = 1
        other = np.empty_like(recv)
        while distance < power:
            partner = _rank_at(place ^ distance, rest)
            middle = (low + high) // 2
            spans.append((low, middle, high, partner))
            keep, give = ((low, middle), (middle, high)) if partner > comm.rank else ((middle, high), (low, middle))
            comm.sendrecv(recv[slice(*give)], partner, other[slice(*keep)], partner)
            mine, theirs = recv[slice(*keep)], other[slice(*keep)]
            mine[...] = op(mine, theirs) if partner > comm.rank else op(theirs, mine)
            low, high = keep
            distance *= 2
        for low, middle, high, partner in reversed(spans):
            kept, given = ((low, middle), (middle, high)) if partner > comm.rank else ((middle, high), (low, middle))
            comm.sendrecv(recv[slice(*kept)], partner, recv[slice(*given)], partner)
    _fold_out(comm, recv, rest)


def ring_allreduce(comm: Communicator, send: Array, recv: Array, op: Op) -> None:
    """Allreduce around a ring: P-1 steps combine one block each, and P-1 more pass the finished blocks on.

    The ring serves commutative, elementwise operations; others use recursive doubling.
    """
    if not (op.elementwise and op.commutative) or comm.size == 1:
        recursive_doubling(comm, send, recv, op)
        return
    _copy(recv, send)
    blocks = np.array_split(recv, comm.size)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for step in range(comm.size - 1):
        mine = blocks[(comm.rank - step - 1) % comm.size]
        other = np.empty_like(mine)
        comm.sendrecv(blocks[(comm.rank - step) % comm.size], right, other, left)
        mine[...] = op(other, mine)
    for step in range(comm.size - 1):
        comm.sendrecv(blocks[(comm.rank + 1 - step) % comm.size], right, blocks[(comm.rank - step) % comm.size], left)


def reduce_then_bcast(comm: Communicator, send: Array, recv: Array, op: Op) -> None:
    """Allreduce as a reduction to rank 0 and a broadcast."""
    binomial_reduce(comm, send, recv, op, 0)
    comm.bcast(recv, 0)


def rank_order(comm: Communicator, send: Array, recv: Array, op: Op) -> None:
    """Allreduce that combines from the left in the order of the ranks, ((x0 op x1) op x2) ..., for the same bits on every backend.

    For an elementwise operation the buffer is cut into P blocks, one for each rank to combine, so no rank holds more than two buffers.
    """
    size = comm.size
    if size == 1:
        _copy(recv, send)
        return
    if op.elementwise and send.size >= size:
        counts = [block.size for block in np.array_split(send, size)]
        mine = counts[comm.rank]
        held = np.empty_like(send, shape=mine * size)
        comm.alltoallv(send, counts, held, [mine] * size)
        comm.allgatherv(_fold(held.reshape(size, mine), op), recv, counts)
    else:
        held = np.empty_like(send, shape=send.size * size)
        comm.allgather(send, held)
        recv[...] = _fold(held.reshape(size, send.size), op)


def doubling_scan(comm: Communicator, send: Array, recv: Array, op: Op) -> None:
    """Inclusive scan in ceil(log2 P) rounds: in round k, a rank takes in what the rank 2^k before it has gathered."""
    _copy(recv, send)
    _scan_rounds(comm, recv, recv, op)


def doubling_exscan(comm: Communicator, send: Array, recv: Array, op: Op) -> None:
    """Exclusive scan in ceil(log2 P) rounds. The buffer of rank 0 stays as it is."""
    gathered = send.copy()
    before = np.empty_like(send)
    if _scan_rounds(comm, gathered, before, op):
        recv[...] = before


def linear_scan(comm: Communicator, send: Array, recv: Array, op: Op) -> None:
    """Inclusive scan along a chain, combined from the left."""
    _copy(recv, send)
    if comm.rank > 0:
        before = np.empty_like(recv)
        comm.recv(before, comm.rank - 1)
        recv[...] = op(before, recv)
    if comm.rank + 1 < comm.size:
        comm.send(recv, comm.rank + 1)


def linear_exscan(comm: Communicator, send: Array, recv: Array, op: Op) -> None:
    """Exclusive scan along a chain, combined from the left. The buffer of rank 0 stays as it is."""
    through = send.copy()
    if comm.rank > 0:
        before = np.empty_like(send)
        comm.recv(before, comm.rank - 1)
        through = op(before, through)
        recv[...] = before
    if comm.rank + 1 < comm.size:
        comm.send(through, comm.rank + 1)


def pairwise_reduce_scatter(comm: Communicator, sends: list[Array], recv: Array, op: Op) -> None:
    """Each rank collects its block from all ranks and combines from the left, which gives the bits of `rank_order`."""
    held = np.empty_like(recv, shape=(comm.size, recv.size))
    held[comm.rank] = sends[comm.rank]
    for step in range(1, comm.size):
        dest, source = (comm.rank + step) % comm.size, (comm.rank - step) % comm.size
        comm.sendrecv(sends[dest], dest, held[source], source)
    recv[...] = _fold(held, op)


def halving_reduce_scatter(comm: Communicator, sends: list[Array], recv: Array, op: Op) -> None:
    """Recursive halving if P is a power of two and the operation is commutative and elementwise; otherwise pairwise."""
    size = comm.size
    if size != _power(size) or not (op.commutative and op.elementwise):
        pairwise_reduce_scatter(comm, sends, recv, op)
        return
    held = [block.copy() for block in sends]
    low, high = 0, size
    while high - low > 1:
        half = (high - low) // 2
        partner = comm.rank ^ half
        upper = bool(comm.rank & half)
        keep = (low + half, high) if upper else (low, low + half)
        give = (low, low + half) if upper else (low + half, high)
        theirs = np.empty_like(recv, shape=sum(held[i].size for i in range(*keep)))
        comm.sendrecv(np.concatenate(held[slice(*give)]), partner, theirs, partner)
        for i in range(*keep):
            part, theirs = theirs[: held[i].size], theirs[held[i].size :]
            held[i] = op(part, held[i]) if upper else op(held[i], part)
        low, high = keep
    recv[...] = held[comm.rank]


def _copy(recv: Array, send: Array) -> None:
    if recv is not send:
        recv[...] = send


def _fold(rows: Array, op: Op) -> Array:
    held: Array = rows[0].copy()
    for row in rows[1:]:
        held = op(held, row)
    return held


def _power(size: int) -> int:
    return 1 << (size.bit_length() - 1)


def _rank_at(place: int, rest: int) -> int:
    return 2 * place + 1 if place < rest else place + rest


def _fold_in(comm: Communicator, held: Array, op: Op) -> tuple[int, int]:
    """Let the first 2r ranks join in pairs so that a power of two remains.

    Returns the place of this rank among those that remain, or -1 if it handed its buffer to its neighbour, and r.
    """
    rest = comm.size - _power(comm.size)
    if comm.rank >= 2 * rest:
        return comm.rank - rest, rest
    if comm.rank % 2 == 0:
        comm.send(held, comm.rank + 1)
        return -1, rest
    other = np.empty_like(held)
    comm.recv(other, comm.rank - 1)
    held[...] = op(other, held)
    return comm.rank // 2, rest


def _fold_out(comm: Communicator, held: Array, rest: int) -> None:
    if comm.rank < 2 * rest:
        if comm.rank % 2:
            comm.send(held, comm.rank - 1)
        else:
            comm.recv(held, comm.rank + 1)


def _scan_rounds(comm: Communicator, gathered: Array, answer: Array, op: Op) -> bool:
    """Make `gathered` the reduction over the ranks up to this one, and `answer`, if it is another array, over those before it.

    Returns True if there are ranks before this one.
    """
    other = np.empty_like(gathered)
    any_before = False
    distance = 1
    while distance < comm.size:
        requests = []
        if comm.rank + distance < comm.size:
            requests.append(comm.isend(gathered.copy(), comm.rank + distance))
        if comm.rank >= distance:
            comm.recv(other, comm.rank - distance)
            if answer is not gathered:
                answer[...] = op(other, answer) if any_before else other
            gathered[...] = op(other, gathered)
            any_before = True
        comm.waitall(requests)
        distance *= 2
    return any_before
