"""The programs over `Coordinator`, written once for every backend.

A program is a function of the communicator that prepares and returns the callable to time, which returns this rank's part of the answer.
The computing parts (`Sweeps`, `RowBlock`) are shared with the native twins, which differ only in their calls of the library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from armillary.comm import Coordinator

Array = np.ndarray[Any, Any]
Body = Callable[[], Any]


def jacobi(comm: Any, n: int, iterations: int, periodic: bool = False) -> Body:
    """Prepares Jacobi sweeps of an n x n grid, whose rows are dealt to the ranks with a halo row above and below; the upper edge is 1.

    `periodic` joins the upper and lower edge, so that a rank alone exchanges halos with itself.
    """
    coord = Coordinator(comm)
    rank, size = comm.rank, comm.size
    block, rows = -(-n // size), len(comm.local_range(n))
    one, two = coord.alloc((block + 2, n)), coord.alloc((block + 2, n))
    above, below = coord.alloc(1, np.int64), coord.alloc(1, np.int64)
    sweeps = Sweeps(one[: rows + 2], two[: rows + 2], rank == 0)
    up = rank - 1 if rank > 0 else size - 1 if periodic else None
    down = rank + 1 if rank + 1 < size else 0 if periodic else None
    # The place of a lower halo depends on the rows of its owner, because the last rank may have fewer than the others.
    last = n - (size - 1) * block
    owner = block if up is not None and up + 1 < size else last
    tops, bottoms, uppers, lowers, theirs = [[a[i] for a in (two, one)] for i in (1, rows, 0, rows + 1, owner + 1)]
    turn = 0

    def body() -> Array:
        nonlocal turn
        sweeps.start()
        # No rank may post into a halo that its owner has yet to empty.
        comm.barrier()
        for i in range(iterations):
            sweeps.step(i)
            comm.compute(flops=4 * rows * n, bytes=88 * rows * n)
            top, bottom, upper, lower = tops[i % 2], bottoms[i % 2], uppers[i % 2], lowers[i % 2]
            turn += 1
            with coord.batch():
                if up is not None:
                    coord.post(top, theirs[i % 2], n, below, turn, up)
                if down is not None:
                    coord.post(bottom, upper, n, above, turn, down)
                    coord.acknowledge(lower, n, below, turn, down)
                if up is not None:
                    coord.acknowledge(upper, n, above, turn, up)
        return (two if iterations % 2 else one)[1 : rows + 1]

    return body


def cg(comm: Any, grid: int, path: str | None = None, tolerance: float = 1e-10, order: str | None = None) -> Body:
    """Prepares conjugate gradients by row blocks, with one allgatherv and two allreduces per iteration; gives (iterations, own part)."""
    coord = Coordinator(comm)
    own = RowBlock(comm.rank, comm.size, grid, path, like=coord.alloc(1))
    direction, counts = coord.alloc(own.n), own.counts
    send, recv = coord.alloc(1), coord.alloc(1)

    def total(value: Any) -> float:
        send[0] = value
        coord.allreduce(send, recv, order=order)
        return float(recv[0])

    def body() -> tuple[int, Array]:
        x, r, p = own.start()
        rho = total(r.dot(r))
        goal = rho * tolerance**2
        for i in range(own.n):
            if rho <= goal:
                return i, x
            coord.allgatherv(p, direction, counts)
            q = own.times(direction)
            comm.compute(flops=own.flops, bytes=own.bytes)
            alpha = rho / total(p.dot(q))
            before, rho = rho, own.step(x, r, p, q, alpha, total)
            own.turn(p, r, rho / before)
        return own.n, x

    return body


def pingpong(comm: Any, nbytes: int, exchanges: int) -> Body:
    """Prepares `exchanges` messages to the other rank and back."""
    coord = Coordinator(comm)
    data, room, signal = coord.alloc(nbytes, np.uint8), coord.alloc(nbytes, np.uint8), coord.alloc(1, np.int64)
    data[:] = comm.rank + 1
    other, first, turn = 1 - comm.rank, comm.rank == 0, 0
    if comm.size == 1:
        return _to_itself(coord, data, room, signal, exchanges)

    def body() -> Array:
        nonlocal turn
        for _ in range(exchanges if comm.rank < 2 else 0):
            turn += 1
            if first:
                coord.post(data, room, nbytes, signal, turn, other)
                coord.acknowledge(room, nbytes, signal, turn, other)
            else:
                coord.acknowledge(room, nbytes, signal, turn, other)
                coord.post(data, room, nbytes, signal, turn, other)
        return room

    return body


def _to_itself(coord: Coordinator, data: Array, room: Array, signal: Array, exchanges: int) -> Body:
    turn, count = 0, len(data)

    def body() -> Array:
        nonlocal turn
        for _ in range(2 * exchanges):
            turn += 1
            with coord.batch():
                coord.post(data, room, count, signal, turn, 0)
                coord.acknowledge(room, count, signal, turn, 0)
        return room

    return body


def bandwidth(comm: Any, nbytes: int, exchanges: int, window: int = 64) -> Body:
    """Prepares `exchanges` windows of messages one way, each with a word back."""
    coord = Coordinator(comm)
    data, room, signal = coord.alloc(nbytes, np.uint8), coord.alloc(nbytes, np.uint8), coord.alloc(1, np.int64)
    word, heard, answered = coord.alloc(1, np.uint8), coord.alloc(1, np.uint8), coord.alloc(1, np.int64)
    data[:] = comm.rank + 1
    first, turn = comm.rank == 0, 0

    def body() -> Array:
        nonlocal turn
        for _ in range(exchanges if comm.rank < 2 else 0):
            with coord.batch():
                for i in range(turn + 1, turn + window + 1):
                    if first:
                        coord.post(data, room, nbytes, signal, i, 1)
                    else:
                        coord.acknowledge(room, nbytes, signal, i, 0)
            turn += window
            if first:
                coord.acknowledge(heard, 1, answered, turn, 1)
            else:
                coord.post(word, heard, 1, answered, turn, 0)
        return room

    return body


def allreduce(comm: Any, nbytes: int, exchanges: int) -> Body:
    """Prepares `exchanges` sums of a float64 array over all ranks."""
    coord = Coordinator(comm)
    send, recv = coord.alloc(nbytes // 8), coord.alloc(nbytes // 8)
    send[:] = comm.rank + 1.0

    def body() -> Array:
        for _ in range(exchanges):
            coord.allreduce(send, recv)
        return recv

    return body


class Sweeps:
    """Sweeps over one rank's rows, from one array to the other and back, without temporaries."""

    def __init__(self, one: Array, two: Array, upper_edge: bool) -> None:
        self._arrays = (one, two)
        self._add, self._multiply = _arithmetic(one)
        self._upper_edge = upper_edge
        self._views = [(a[:-2, 1:-1], a[2:, 1:-1], a[1:-1, :-2], a[1:-1, 2:], b[1:-1, 1:-1]) for a, b in ((one, two), (two, one))]

    def start(self) -> None:
        """Sets both arrays to zero, and the upper edge to 1 if this rank has it."""
        for array in self._arrays:
            array[...] = 0.0
            if self._upper_edge:
                array[0] = 1.0

    def step(self, i: int) -> None:
        """Makes sweep number i, in which every inner value becomes the mean of its four neighbours."""
        up, down, left, right, new = self._views[i % 2]
        add = self._add
        add(up, down, out=new)
        add(new, left, out=new)
        add(new, right, out=new)
        self._multiply(new, 0.25, out=new)


def _arithmetic(array: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Addition and multiplication into an array, from the array's own library."""
    if isinstance(array, np.ndarray):
        return np.add, np.multiply
    import torch

    return torch.add, torch.multiply


class RowBlock:
    """One rank's rows of a system, and the arithmetic of conjugate gradients on them."""

    def __init__(self, rank: int, size: int, grid: int, path: str | None, like: Any = None) -> None:
        from armillary.network.backends.matrices import system

        (starts, columns, values), rhs = system(grid, path)
        #: The number of all rows, and of those of each rank.
        self.n = len(rhs)
        block = -(-self.n // size)
        self.counts = tuple(max(0, min(self.n, (i + 1) * block) - i * block) for i in range(size))
        begin = min(self.n, rank * block)
        end = begin + self.counts[rank]
        first, last = starts[begin], starts[end]
        own = (starts[begin : end + 1] - first, columns[first:last], values[first:last])
        #: The operations and bytes of one iteration: a product of the rows and a vector (values and columns read once), and six passes over
        #: vectors.
        self.flops = 2.0 * int(last - first) + 10.0 * (end - begin)
        self.bytes = 12.0 * int(last - first) + 120.0 * (end - begin)
        self._rhs: Any = rhs[begin:end]
        if like is None or isinstance(like, np.ndarray):
            from scipy import sparse

            self._rows: Any = sparse.csr_array((own[2], own[1].astype(np.int32), own[0].astype(np.int32)), shape=(end - begin, self.n))
        else:
            import torch

            tensors = [torch.from_numpy(np.array(part)).to(like.device) for part in own]
            self._rows = torch.sparse_csr_tensor(tensors[0], tensors[1], tensors[2], size=(end - begin, self.n))
            self._rhs = torch.from_numpy(self._rhs.copy()).to(like.device)
        self._vectors = (self._rhs * 0.0, self._rhs + 0.0, self._rhs + 0.0)

    def start(self) -> tuple[Array, Array, Array]:
        """The first guess (zeros), its residual, and the first direction."""
        x, r, p = self._vectors
        x[:] = 0.0
        r[:] = self._rhs
        p[:] = self._rhs
        return x, r, p

    def times(self, direction: Array) -> Array:
        """The rows times the whole direction."""
        return self._rows @ direction

    def step(self, x: Array, r: Array, p: Array, q: Array, alpha: float, total: Callable[[Any], float]) -> float:
        """Moves x and r along the direction; returns the new squared residual over all ranks."""
        x += alpha * p
        r -= alpha * q
        return total(r.dot(r))

    def turn(self, p: Array, r: Array, beta: float) -> None:
        """Turns p into the next direction."""
        p *= beta
        p += r
