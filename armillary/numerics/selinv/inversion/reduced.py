"""The reduced system has the blocks that are left of every rank, 2p−1 of the same structure, and one of three strategies factors it.

With `allgather`, every rank holds the whole system and does the same work, so nothing is sent back. With `gather-scatter`, rank 0 does it
and sends each rank its blocks. With `nested` (our design), groups of neighbouring ranks give their blocks to a leader, and the leaders,
about √p of them, treat theirs as they would treat a whole matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from armillary import arrays
from armillary.errors import unknown

from ..blocks.chains import Chain
from ..blocks.kernels import adjoint, cholesky, hermitian, inverse_of, left_solve, log_of_diagonal
from ..blocks.partitions import Part
from ..costs.work import charge, whole_work
from .elimination import Boundary, backward, eliminate, forward, invert

if TYPE_CHECKING:
    from armillary.comm import Communicator

STRATEGIES = ("allgather", "gather-scatter", "nested")
Solution = tuple[list[Any], Any]


class Reduced(Protocol):
    """A factored reduced system, as one rank sees it."""

    #: Σ log L_kk of its blocks, the same on every rank.
    logs: float

    def inverse(self) -> Boundary:
        """Returns the blocks of the inverse at this rank's places."""

    def solve(self, rhs: list[Any], rhs_t: Any) -> Solution:
        """Returns the solution at this rank's places and at the tip; `rhs` are its one or two blocks (b, k), `rhs_t` its share of the
        tip's.
        """


class Whole:
    """A chain that one process factors alone, such as the reduced system, or the whole matrix on one rank."""

    def __init__(self, chain: Chain, labels: Sequence[int], tip: Any) -> None:
        xp = arrays.namespace(tip)
        boundary, logs = eliminate(chain, labels, tip, middle=False, closes=True)
        assert boundary is not None
        self.chain = chain.turned()
        self.count = len(labels)
        self.tip = boundary.tip
        if tip.shape[0]:
            self.tip = cholesky(boundary.tip, "tip")
            logs = logs + log_of_diagonal(self.tip)
        self.logs = float(xp.asarray(logs))

    def tip_inverse(self) -> Any:
        """Returns X_tt."""
        if not self.tip.shape[0]:
            return self.tip
        w = inverse_of(self.tip)
        return hermitian(adjoint(w) @ w)

    def solve(self, rhs: Any, rhs_t: Any) -> tuple[Any, Any]:
        """Returns the solution in place: `rhs` (count, b, k), `rhs_t` (a, k)."""
        y, y_t = forward(self.chain, self.count, rhs, rhs_t, middle=False, closes=True)
        if self.tip.shape[0]:
            y_t = left_solve(self.tip, left_solve(self.tip, y_t), turned=True)
        return backward(self.chain, self.count, y, y_t, middle=False, closes=True), y_t


class Wire:
    """Sends blocks over a communicator, packed into one buffer on the host; those of a device are copied there and counted."""

    def __init__(self, comm: Communicator, like: Any) -> None:
        self.comm = comm
        self.like = like
        self.dtype = np.dtype(str(like.dtype).removeprefix("torch."))

    def pack(self, blocks: Sequence[Any]) -> Any:
        """Packs blocks into one flat buffer."""
        flat = [np.ascontiguousarray(arrays.to_host(x)).reshape(-1) for x in blocks]
        return np.concatenate(flat) if flat else np.empty(0, self.dtype)

    def unpack(self, buffer: Any, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
        """Unpacks blocks of these shapes, to where the other blocks are."""
        xp, found, start = arrays.namespace(self.like), [], 0
        for shape in shapes:
            size = math.prod(shape)
            found.append(xp.asarray(buffer[start : start + size].reshape(shape).copy(), device=arrays.device_of(self.like)))
            start += size
        return found

    def sum(self, x: Any) -> Any:
        """Returns x added up over the ranks in their order, on every rank."""
        (total,) = self.unpack(self.comm.allreduce(self.pack([x]), order="rank"), [tuple(x.shape)])
        return total


def shapes_of(rank: int, size: int, b: int, a: int) -> list[tuple[int, ...]]:
    """Returns the shapes that a rank gives to the reduced system: blocks [top,] last, their arrows, (last, top), (next top, last)."""
    own = 1 if rank == 0 else 2
    return [*[(b, b)] * own, *[(a, b)] * own, *[(b, b)] * (own - 1 + (rank + 1 < size))]


def elements_of(rank: int, size: int, b: int, a: int) -> int:
    """Returns how many numbers the shapes of `shapes_of` hold."""
    return sum(math.prod(shape) for shape in shapes_of(rank, size, b, a))


def boundary_of(blocks: list[Any], rank: int, size: int, tip: Any) -> Boundary:
    """Returns these blocks as a `Boundary`."""
    own = 1 if rank == 0 else 2
    rest = blocks[2 * own :]
    coupling = rest.pop(0) if own == 2 else None
    return Boundary(tuple(blocks[:own]), tuple(blocks[own : 2 * own]), coupling, rest[0] if rank + 1 < size else None, tip)


def assembled(boundaries: Sequence[Boundary], tip: Any, labels: Sequence[int]) -> Part:
    """Returns the boundaries of neighbouring ranks as one chain."""
    xp = arrays.namespace(tip)
    lower = [x for one in boundaries for x in (one.coupling, one.out) if x is not None]
    b = boundaries[0].diagonals[0]
    none = xp.zeros((0, *b.shape), dtype=b.dtype, device=arrays.device_of(b))
    diagonals = [x for one in boundaries for x in one.diagonals]
    arrows = [x for one in boundaries for x in one.arrows]
    return Part(xp.stack(diagonals), xp.stack(lower) if lower else none, xp.stack(arrows), tip, tuple(labels))


def cut_inverse(blocks: dict[str, Any], ranks: Sequence[int], size: int, tip: Any) -> list[Boundary]:
    """Undoes `assembled`: returns what each of these neighbouring ranks of `size` gets of an inverted chain."""
    found, at = [], 0
    for rank in ranks:
        own = 1 if rank == 0 else 2
        d, t = (tuple(blocks[name][at + i] for i in range(own)) for name in ("diagonal", "arrow"))
        coupling = blocks["lower"][at] if own == 2 else None
        out = blocks["lower"][at + own - 1] if rank + 1 < size else None
        found.append(Boundary(d, t, coupling, out, tip))
        at += own
    return found


def reduced_labels(bounds: Sequence[int], rank: int) -> list[int]:
    """Returns the blocks of the whole matrix that a rank leaves over."""
    last = bounds[rank + 1] - 1
    return [last] if rank == 0 else [bounds[rank], last]


def reduce_system(strategy: str, comm: Communicator, own: Boundary, tip: Any, bounds: Sequence[int]) -> Reduced:
    """Factors the reduced system; collective. `tip` is the whole matrix's, `own.tip` is what this rank adds to it."""
    if strategy not in STRATEGIES:
        raise unknown("strategy", strategy, STRATEGIES)
    labels = [reduced_labels(bounds, rank) for rank in range(comm.size)]
    wire = Wire(comm, tip)
    with comm.phase("reduce"):
        tip = tip + wire.sum(own.tip) if tip.shape[0] else tip
        if strategy == "allgather":
            return _Everywhere(wire, own, tip, labels)
        if strategy == "gather-scatter":
            return _AtRoot(wire, own, tip, labels)
        return _Nested(wire, own, tip, labels)


class _Everywhere:
    def __init__(self, wire: Wire, own: Boundary, tip: Any, labels: list[list[int]]) -> None:
        comm = wire.comm
        self.wire, self.size = wire, comm.size
        b, a = own.diagonals[0].shape[0], tip.shape[0]
        counts = [elements_of(rank, comm.size, b, a) for rank in range(comm.size)]
        flat = comm.allgatherv(wire.pack(own.parts()), counts=counts)
        boundaries = _unpacked(wire, flat, range(comm.size), b, a, tip)
        part = assembled(boundaries, tip, [label for some in labels for label in some])
        self.whole, self.blocks = _factored(comm, part)
        self.logs = self.whole.logs

    def inverse(self) -> Boundary:
        part, tip = _inverted(self.wire.comm, self.whole, self.blocks)
        return cut_inverse(part, range(self.size), self.size, tip)[self.wire.comm.rank]

    def solve(self, rhs: list[Any], rhs_t: Any) -> Solution:
        comm = self.wire.comm
        with comm.phase("solve"):
            b, k = rhs[0].shape
            counts = [(1 if rank == 0 else 2) * b * k for rank in range(comm.size)]
            flat = comm.allgatherv(self.wire.pack(rhs), counts=counts)
            rhs_t = self.wire.sum(rhs_t) if rhs_t.shape[0] else rhs_t
            (whole,) = self.wire.unpack(flat, [(2 * comm.size - 1, b, k)])
        x, x_t = self.whole.solve(whole, rhs_t)
        return [x[i] for i in _places(comm.rank)], x_t


class _AtRoot:
    def __init__(self, wire: Wire, own: Boundary, tip: Any, labels: list[list[int]]) -> None:
        comm = wire.comm
        self.wire, self.b, self.a = wire, int(own.diagonals[0].shape[0]), int(tip.shape[0])
        self.counts = [elements_of(rank, comm.size, self.b, self.a) for rank in range(comm.size)]
        flat = comm.gatherv(wire.pack(own.parts()), counts=self.counts)
        logs = np.zeros(1)
        if comm.rank == 0:
            boundaries = _unpacked(wire, flat, range(comm.size), self.b, self.a, tip)
            part = assembled(boundaries, tip, [label for some in labels for label in some])
            self.whole, self.blocks = _factored(comm, part)
            logs[0] = self.whole.logs
        comm.bcast(logs)
        self.logs = float(logs[0])

    def inverse(self) -> Boundary:
        comm, tip = self.wire.comm, np.empty(self.a * self.a, self.wire.dtype)
        send = None
        with comm.phase("scatter"):
            if comm.rank == 0:
                part, x_tip = _inverted(comm, self.whole, self.blocks)
                pieces = cut_inverse(part, range(comm.size), comm.size, x_tip)
                send, tip = self.wire.pack([x for piece in pieces for x in piece.parts()]), self.wire.pack([x_tip])
            mine = comm.scatterv(send, self.counts, np.empty(self.counts[comm.rank], self.wire.dtype))
            if self.a:
                comm.bcast(tip)
        (x_tip,) = self.wire.unpack(tip, [(self.a, self.a)])
        blocks = self.wire.unpack(mine, shapes_of(comm.rank, comm.size, self.b, self.a))
        return boundary_of(blocks, comm.rank, comm.size, x_tip)

    def solve(self, rhs: list[Any], rhs_t: Any) -> Solution:
        comm, k = self.wire.comm, int(rhs[0].shape[1])
        counts = [len(_places(rank)) * self.b * k for rank in range(comm.size)]
        with comm.phase("solve"):
            flat = comm.gatherv(self.wire.pack(rhs), counts=counts)
            rhs_t = self.wire.sum(rhs_t) if self.a else rhs_t
            tip, send = np.empty(self.a * k, self.wire.dtype), None
            if comm.rank == 0:
                (whole,) = self.wire.unpack(flat, [(2 * comm.size - 1, self.b, k)])
                x, x_t = self.whole.solve(whole, rhs_t)
                send, tip = self.wire.pack([x]), self.wire.pack([x_t])
            mine = comm.scatterv(send, counts, np.empty(counts[comm.rank], self.wire.dtype))
            if self.a:
                comm.bcast(tip)
        (x_t,) = self.wire.unpack(tip, [(self.a, k)])
        return self.wire.unpack(mine, [(self.b, k)] * len(_places(comm.rank))), x_t


class _Nested:
    def __init__(self, wire: Wire, own: Boundary, tip: Any, labels: list[list[int]]) -> None:
        from .factorisation import factor_part

        comm = wire.comm
        self.wire, self.b, self.a = wire, int(own.diagonals[0].shape[0]), int(tip.shape[0])
        groups = np.array_split(np.arange(comm.size), math.isqrt(comm.size - 1) + 1)
        mine = next(i for i, group in enumerate(groups) if comm.rank in group)
        self.ranks = [int(rank) for rank in groups[mine]]
        group = comm.split(mine)
        leaders = comm.split(0 if comm.rank == self.ranks[0] else None)
        assert group is not None
        self.group, self.leads = group, leaders is not None
        self.counts = [elements_of(rank, comm.size, self.b, self.a) for rank in self.ranks]
        flat = group.gatherv(wire.pack(own.parts()), counts=self.counts)
        logs = np.zeros(1)
        if leaders is not None:
            boundaries = _unpacked(wire, flat, self.ranks, self.b, self.a, tip, comm.size)
            part = assembled(boundaries, tip, [label for rank in self.ranks for label in labels[rank]])
            self.factor = factor_part(part, leaders)
            logs[0] = self.factor.logdet() / 2
        group.bcast(logs)
        self.logs = float(logs[0])

    def inverse(self) -> Boundary:
        comm, tip, send = self.wire.comm, np.empty(self.a * self.a, self.wire.dtype), None
        if self.leads:
            from .factorisation import selected_inverse

            x = selected_inverse(self.factor)
            blocks = {"diagonal": x.part.diagonal, "lower": x.part.lower, "arrow": x.part.arrow}
            pieces = cut_inverse(blocks, self.ranks, comm.size, x.part.tip)
            send, tip = self.wire.pack([y for piece in pieces for y in piece.parts()]), self.wire.pack([x.part.tip])
        with comm.phase("scatter"):
            mine = self.group.scatterv(send, self.counts, np.empty(self.counts[self.group.rank], self.wire.dtype))
            if self.a:
                self.group.bcast(tip)
        (x_tip,) = self.wire.unpack(tip, [(self.a, self.a)])
        return boundary_of(self.wire.unpack(mine, shapes_of(comm.rank, comm.size, self.b, self.a)), comm.rank, comm.size, x_tip)

    def solve(self, rhs: list[Any], rhs_t: Any) -> Solution:
        k, comm = int(rhs[0].shape[1]), self.wire.comm
        counts = [len(_places(rank)) * self.b * k for rank in self.ranks]
        with comm.phase("solve"):
            flat = self.group.gatherv(self.wire.pack(rhs), counts=counts)
            rhs_t = self.wire.sum(rhs_t) if self.a else rhs_t
        tip, send = np.empty(self.a * k, self.wire.dtype), None
        if self.leads:
            (part,) = self.wire.unpack(flat, [(sum(counts) // (self.b * k), self.b, k)])
            # Every leader holds the tip's whole right-hand side, and only the first one adds it.
            x, x_t = self.factor.solve_part(part, rhs_t if self.ranks[0] == 0 else rhs_t * 0)
            send, tip = self.wire.pack([x]), self.wire.pack([x_t])
        with comm.phase("solve"):
            mine = self.group.scatterv(send, counts, np.empty(counts[self.group.rank], self.wire.dtype))
            if self.a:
                self.group.bcast(tip)
        (x_t,) = self.wire.unpack(tip, [(self.a, k)])
        return self.wire.unpack(mine, [(self.b, k)] * len(_places(comm.rank))), x_t


def _places(rank: int) -> range:
    """Returns a rank's blocks in the reduced system."""
    return range(1) if rank == 0 else range(2 * rank - 1, 2 * rank + 1)


def _unpacked(wire: Wire, flat: Any, ranks: Sequence[int], b: int, a: int, tip: Any, size: int | None = None) -> list[Boundary]:
    size, found, start = size or len(ranks), [], 0
    for rank in ranks:
        count = elements_of(rank, size, b, a)
        found.append(boundary_of(wire.unpack(flat[start : start + count], shapes_of(rank, size, b, a)), rank, size, tip))
        start += count
    return found


def _factored(comm: Communicator, part: Part) -> tuple[Whole, dict[str, Any]]:
    blocks = {"diagonal": part.diagonal, "lower": part.lower, "arrow": part.arrow}
    charge(comm, whole_work(part.m, part.diagonal.shape[1], part.tip.shape[0], inverse=False))
    return Whole(Chain(blocks, blocks), part.labels, part.tip), blocks


def _inverted(comm: Communicator, whole: Whole, blocks: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    n, b, a = blocks["diagonal"].shape[0], blocks["diagonal"].shape[1], whole.tip.shape[0]
    both, factored = whole_work(n, b, a), whole_work(n, b, a, inverse=False)
    charge(comm, both + factored * -1)
    xp = arrays.namespace(blocks["diagonal"])
    target = {name: xp.zeros_like(x) for name, x in blocks.items()}
    tip = whole.tip_inverse()
    invert(whole.chain.turned(target), n, tip, None)
    return target, tip
