"""The programs directly on mpi4py, as a careful person writes them, with NumPy buffers, nonblocking calls and one Waitall.

mpi4py: Status Update After 12 Years of Development, Computing in Science & Engineering, 2021.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.network.backends.programs import Array, Body, RowBlock, Sweeps
from armillary.network.backends.twin import Twin


@dataclass(frozen=True)
class Mpi4pyNative(Twin):
    """MPI called directly through mpi4py."""

    texts: ClassVar[str] = "armillary.network.backends.mpi4py_native"
    backends: ClassVar[frozenset[str]] = frozenset({"mpi"})


def jacobi(comm: Any, n: int, iterations: int, periodic: bool = False) -> Body:
    """Prepares Jacobi sweeps of an n x n grid, whose rows are dealt to the ranks with a halo row above and below; the upper edge is 1."""
    from mpi4py import MPI

    native = comm.native
    rank, size = native.Get_rank(), native.Get_size()
    block = -(-n // size)
    rows = max(0, min(n, (rank + 1) * block) - rank * block)
    one, two = np.zeros((rows + 2, n)), np.zeros((rows + 2, n))
    tops, bottoms, uppers, lowers = [[a[i] for a in (two, one)] for i in (1, rows, 0, rows + 1)]
    sweeps = Sweeps(one, two, rank == 0)

    def body() -> Array:
        sweeps.start()
        for i in range(iterations):
            sweeps.step(i)
            top, bottom, upper, lower = tops[i % 2], bottoms[i % 2], uppers[i % 2], lowers[i % 2]
            requests = []
            if rank > 0:
                requests.append(native.Isend(top, rank - 1))
                requests.append(native.Irecv(upper, rank - 1))
            if rank + 1 < size:
                requests.append(native.Isend(bottom, rank + 1))
                requests.append(native.Irecv(lower, rank + 1))
            MPI.Request.Waitall(requests)
        return (two if iterations % 2 else one)[1 : rows + 1]

    return body


def cg(comm: Any, grid: int, path: str | None = None, tolerance: float = 1e-10, order: str | None = None) -> Body:
    """Prepares conjugate gradients by row blocks, with one allgatherv and two allreduces per iteration; gives (iterations, own part)."""
    from mpi4py import MPI

    native = comm.native
    own = RowBlock(native.Get_rank(), native.Get_size(), grid, path)
    direction = np.zeros(own.n)
    room = [direction, list(own.counts), [sum(own.counts[:i]) for i in range(native.Get_size())], MPI.DOUBLE]
    send, recv = np.zeros(1), np.zeros(1)
    total = _in_rank_order(native, send, recv) if order == "rank" else None

    def plain_total(value: Any) -> float:
        send[0] = value
        native.Allreduce(send, recv, MPI.SUM)
        return float(recv[0])

    total = total or plain_total

    def body() -> tuple[int, Array]:
        x, r, p = own.start()
        rho = total(r.dot(r))
        goal = rho * tolerance**2
        for i in range(own.n):
            if rho <= goal:
                return i, x
            native.Allgatherv(p, room)
            q = own.times(direction)
            alpha = rho / total(p.dot(q))
            before, rho = rho, own.step(x, r, p, q, alpha, total)
            own.turn(p, r, rho / before)
        return own.n, x

    return body


def _in_rank_order(native: Any, send: Array, recv: Array) -> Callable[[Any], float]:
    """Adds the parts from the left in the order of ranks."""
    everything = np.zeros(native.Get_size())

    def total(value: Any) -> float:
        send[0] = value
        native.Allgather(send, everything)
        answer = 0.0
        for i, part in enumerate(everything.tolist()):
            answer = part if i == 0 else answer + part
        return answer

    return total


def pingpong(comm: Any, nbytes: int, exchanges: int) -> Body:
    """Prepares `exchanges` messages to the other rank and back."""
    native = comm.native
    data, room = np.full(nbytes, native.Get_rank() + 1, np.uint8), np.zeros(nbytes, np.uint8)
    first, other = native.Get_rank() == 0, 1 - native.Get_rank()

    def body() -> Array:
        for _ in range(exchanges):
            if first:
                native.Send(data, other)
                native.Recv(room, other)
            else:
                native.Recv(room, other)
                native.Send(data, other)
        return room

    return body


def bandwidth(comm: Any, nbytes: int, exchanges: int, window: int = 64) -> Body:
    """Prepares `exchanges` windows of messages one way, each with a word back."""
    from mpi4py import MPI

    native = comm.native
    data, room = np.full(nbytes, native.Get_rank() + 1, np.uint8), np.zeros(nbytes, np.uint8)
    word, heard = np.zeros(1, np.uint8), np.zeros(1, np.uint8)
    first = native.Get_rank() == 0

    def body() -> Array:
        for _ in range(exchanges):
            if first:
                MPI.Request.Waitall([native.Isend(data, 1) for _ in range(window)])
                native.Recv(heard, 1)
            else:
                MPI.Request.Waitall([native.Irecv(room, 0) for _ in range(window)])
                native.Send(word, 0)
        return room

    return body


def allreduce(comm: Any, nbytes: int, exchanges: int) -> Body:
    """Prepares `exchanges` sums of a float64 array over all ranks."""
    from mpi4py import MPI

    native = comm.native
    send, recv = np.full(nbytes // 8, native.Get_rank() + 1.0), np.zeros(nbytes // 8)

    def body() -> Array:
        for _ in range(exchanges):
            native.Allreduce(send, recv, MPI.SUM)
        return recv

    return body
