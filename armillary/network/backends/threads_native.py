"""The programs directly on threads, with shared memory, copies into the neighbour's halo, a token in a queue for each copy, and barriers.

Threads as of POSIX (IEEE Std 1003.1c-1995), through Python's `threading` and `queue.SimpleQueue`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, ClassVar

import numpy as np

from armillary.network.backends.programs import Array, Body, RowBlock, Sweeps
from armillary.network.backends.twin import Twin


@dataclass(frozen=True)
class ThreadsNative(Twin):
    """Shared memory and queues without a library."""

    texts: ClassVar[str] = "armillary.network.backends.threads_native"
    backends: ClassVar[frozenset[str]] = frozenset({"threads"})


class Team:
    """The memory, queues and barrier that the threads of one program share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size)
        #: The arrays that each thread shares with the others.
        self.open: list[Any] = [None] * size
        #: The queues of tokens from one thread to another.
        self.tokens = {(i, j): SimpleQueue() for i in range(size) for j in range(size)}  # type: ignore[var-annotated]

    def share(self, rank: int, mine: Any) -> list[Any]:
        """Shares an array; returns those of every thread."""
        self.open[rank] = mine
        self.barrier.wait()
        everything = list(self.open)
        self.barrier.wait()
        return everything


def jacobi(comm: Any, n: int, iterations: int, periodic: bool = False) -> Body:
    """Prepares Jacobi sweeps of an n x n grid, whose rows are dealt to the ranks with a halo row above and below; the upper edge is 1."""
    rank, team = comm.rank, comm.team
    size, tokens, barrier = team.size, team.tokens, team.barrier
    block = -(-n // size)
    rows = max(0, min(n, (rank + 1) * block) - rank * block)
    one, two = np.zeros((rows + 2, n)), np.zeros((rows + 2, n))
    arrays = team.share(rank, (two, one))
    tops, bottoms = [[a[i] for a in (two, one)] for i in (1, rows)]
    lowers = [a[-1] for a in arrays[rank - 1]] if rank > 0 else []
    uppers = [a[0] for a in arrays[rank + 1]] if rank + 1 < size else []
    sweeps = Sweeps(one, two, rank == 0)

    def body() -> Array:
        sweeps.start()
        barrier.wait()
        for i in range(iterations):
            sweeps.step(i)
            if rank > 0:
                lowers[i % 2][...] = tops[i % 2]
                tokens[rank, rank - 1].put(i)
            if rank + 1 < size:
                uppers[i % 2][...] = bottoms[i % 2]
                tokens[rank, rank + 1].put(i)
                tokens[rank + 1, rank].get()
            if rank > 0:
                tokens[rank - 1, rank].get()
        return (two if iterations % 2 else one)[1 : rows + 1]

    return body


def cg(comm: Any, grid: int, path: str | None = None, tolerance: float = 1e-10, order: str | None = None) -> Body:
    """Prepares conjugate gradients by row blocks, with one allgatherv and two allreduces per iteration; gives (iterations, own part)."""
    rank, team = comm.rank, comm.team
    own = RowBlock(rank, team.size, grid, path)
    barrier = team.barrier
    # There are two of each, used in turn, because the next one may be written while a slow thread still reads this one.
    sums = team.share(0, [np.zeros(team.size), np.zeros(team.size)])[0] if rank == 0 else team.share(rank, None)[0]
    shared = team.share(0, [np.zeros(own.n), np.zeros(own.n)])[0] if rank == 0 else team.share(rank, None)[0]
    start = sum(own.counts[:rank])
    turn = 0

    def total(value: Any) -> float:
        nonlocal turn
        turn += 1
        parts = sums[turn % 2]
        parts[rank] = value
        barrier.wait()
        answer = parts[0]
        for i in range(1, team.size):
            answer += parts[i]
        return float(answer)

    def body() -> tuple[int, Array]:
        x, r, p = own.start()
        rho = total(r.dot(r))
        goal = rho * tolerance**2
        for i in range(own.n):
            if rho <= goal:
                return i, x
            direction = shared[i % 2]
            direction[start : start + p.size] = p
            barrier.wait()
            q = own.times(direction)
            alpha = rho / total(p.dot(q))
            before, rho = rho, own.step(x, r, p, q, alpha, total)
            own.turn(p, r, rho / before)
        return own.n, x

    return body


def pingpong(comm: Any, nbytes: int, exchanges: int) -> Body:
    """Prepares `exchanges` messages to the other rank and back."""
    rank, team = comm.rank, comm.team
    data, room = np.full(nbytes, rank + 1, np.uint8), np.zeros(nbytes, np.uint8)
    there = team.share(rank, room)[1 - rank]
    out, back, first = team.tokens[rank, 1 - rank], team.tokens[1 - rank, rank], rank == 0

    def body() -> Array:
        for _ in range(exchanges):
            if first:
                there[...] = data
                out.put(None)
                back.get()
            else:
                back.get()
                there[...] = data
                out.put(None)
        return room

    return body


def bandwidth(comm: Any, nbytes: int, exchanges: int, window: int = 64) -> Body:
    """Prepares `exchanges` windows of messages one way, each with a word back."""
    rank, team = comm.rank, comm.team
    data, room = np.full(nbytes, rank + 1, np.uint8), np.zeros(nbytes, np.uint8)
    there = team.share(rank, room)[1 - rank]
    out, back, first = team.tokens[rank, 1 - rank], team.tokens[1 - rank, rank], rank == 0

    def body() -> Array:
        for _ in range(exchanges):
            for _ in range(window):
                if first:
                    there[...] = data
                    out.put(None)
                else:
                    back.get()
            if first:
                back.get()
            else:
                out.put(None)
        return room

    return body


def allreduce(comm: Any, nbytes: int, exchanges: int) -> Body:
    """Prepares `exchanges` sums of a float64 array over all ranks."""
    rank, team = comm.rank, comm.team
    mine, recv = np.full(nbytes // 8, rank + 1.0), np.zeros(nbytes // 8)
    both = [team.share(rank, np.zeros(nbytes // 8)) for _ in (0, 1)]
    barrier, turn = team.barrier, 0

    def body() -> Array:
        nonlocal turn
        for _ in range(exchanges):
            turn += 1
            parts = both[turn % 2]
            parts[rank][...] = mine
            barrier.wait()
            np.add(parts[0], parts[1], out=recv)
            for part in parts[2:]:
                np.add(recv, part, out=recv)
        return recv

    return body
