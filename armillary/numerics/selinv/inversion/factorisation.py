"""Factors a chain with an arrow as A = L·Lᴴ over one rank or many, and computes blocks of the inverse, log det and solutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary import arrays
from armillary.arrays.kinds import dtype_name
from armillary.errors import InputError, unknown

from ..blocks.block_arrow import BlockArrow
from ..blocks.chains import BUFFERS, Chain, StreamCounters, StreamedChain
from ..blocks.partitions import Part, part_of, partition
from ..costs.work import charge, inversion, part_work, whole_work
from .elimination import backward, eliminate, forward, invert
from .reduced import STRATEGIES, Reduced, Whole, Wire, reduce_system

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from armillary.comm import Communicator


def factor(
    matrix: BlockArrow,
    comm: Communicator | None = None,
    *,
    strategy: str = "allgather",
    balance: float | str = "auto",
    stream: bool | str = "auto",
    device: str | None = None,
    device_bytes: int | None = None,
    overwrite: bool = False,
    check: bool = True,
) -> Factor:
    """Returns the factor of a positive definite matrix; on several ranks collective, each with the whole matrix, of which it uses its part.

    `strategy` is who factors the reduced system of 2p−1 blocks: "allgather", "gather-scatter", "nested", or "auto" (nested where the
    reduced system is longer than a rank's part). `balance`: see `partition`. `device` computes elsewhere than the blocks are: "cuda"
    (PyTorch), "cupy". `stream` leaves the blocks on the host and passes them through two buffers; "auto" does so where the blocks and
    what is made of them exceed `device_bytes` (by default what the device has free). `overwrite` writes L over the matrix's blocks.
    `check` looks for infinities and blocks that are not Hermitian first.

    Between ranks, blocks travel through the host: those of a device are copied there and counted (`arrays.copied_bytes`).
    """
    if check:
        matrix.check()
    if strategy not in (*STRATEGIES, "auto"):
        raise unknown("strategy", str(strategy), (*STRATEGIES, "auto"))
    size = 1 if comm is None else comm.size
    bounds = partition(matrix.n, size, balance, matrix.b, matrix.a)
    if strategy == "auto":
        strategy = "nested" if size > 3 and 2 * size - 1 > matrix.n / size else "allgather"
    part = part_of(matrix, bounds, 0 if comm is None else comm.rank)
    return _factor(part, comm, bounds, strategy, matrix.sizes, _Place(stream, device, device_bytes), overwrite)


def factor_part(
    part: Part,
    comm: Communicator | None = None,
    *,
    strategy: str = "allgather",
    stream: bool | str = "auto",
    device: str | None = None,
    device_bytes: int | None = None,
    overwrite: bool = False,
) -> Factor:
    """Factors the matrix where each rank holds its own blocks alone; collective.

    Rank 0 needs at least one block, every other at least two.
    """
    counts = [part.m] if comm is None else comm.allgather(np.array([part.m])).reshape(-1).tolist()
    bounds = tuple(np.concatenate([[0], np.cumsum(counts)]).tolist())
    for rank, count in enumerate(counts):
        if count < (1 if rank == 0 else 2):
            raise InputError(f"rank {rank} has {count} blocks; expected at least {1 if rank == 0 else 2}", where="factor_part")
    return _factor(part, comm, bounds, strategy, (), _Place(stream, device, device_bytes), overwrite)


class _Place:
    """Where the blocks are worked on."""

    def __init__(self, stream: bool | str, device: str | None, device_bytes: int | None) -> None:
        if stream not in (True, False, "auto"):
            raise InputError(f'found {stream!r}; expected True, False or "auto"', where="stream")
        self.stream, self.device, self.device_bytes = stream, device, device_bytes

    def chain(self, part: Part, overwrite: bool, middle: bool) -> tuple[Chain, Any]:
        """Returns the chain to factor, and the tip where it is worked on."""
        source = {"diagonal": part.diagonal, "lower": part.lower, "arrow": part.arrow}
        tip, device = part.tip, self.device
        if device not in (None, "cpu") and arrays.kind_of(tip) == "numpy" and device != "cupy":
            torch = import_module("torch")
            source, tip = {name: torch.from_numpy(x) for name, x in source.items()}, torch.from_numpy(tip)
        if device is not None and arrays.on_accelerator(tip):
            raise InputError("the blocks are on a device already; expected them on the host where device= is given", where="device")
        streams = self._streams(source, middle)
        chain: Chain
        if streams:
            if arrays.on_accelerator(tip):
                raise InputError("found blocks on a device; expected them on the host to be streamed", where="stream")
            where = device or "cpu"
            self._least(source, where)
            chain = StreamedChain(source, source, where)
        else:
            if device not in (None, "cpu"):
                source, overwrite = {name: _moved(x, device) for name, x in source.items()}, True
            chain = Chain(source, source)
        tip = chain.block(tip) if streams else _moved(tip, device)
        chain.target = dict(source) if overwrite else {name: chain.empty(x.shape[0], *x.shape[1:]) for name, x in source.items()}
        if middle:
            chain.target["fill"] = chain.empty(part.m, *source["diagonal"].shape[1:])
        return chain, tip

    def _streams(self, source: dict[str, Any], middle: bool) -> bool:
        if self.stream != "auto":
            return bool(self.stream)
        room = self.device_bytes if self.device_bytes is not None else _free(self.device)
        need = sum(int(x.nbytes) for x in source.values()) + (int(source["diagonal"].nbytes) if middle else 0)
        return room is not None and 2 * need > room

    def _least(self, source: dict[str, Any], where: str) -> None:
        block = max(int(source["diagonal"][0].nbytes), int(source["arrow"][0].nbytes))
        least = (4 * 2 * BUFFERS + 8) * block
        room = self.device_bytes if self.device_bytes is not None else _free(where)
        if room is not None and room < least:
            raise InputError(f"found {room} bytes; expected at least {least} for two buffers of each array", where="device_bytes")


def _moved(x: Any, device: str | None) -> Any:
    if device in (None, "cpu"):
        return x
    return import_module("cupy").asarray(x) if device == "cupy" else x.to(device)


def _free(device: str | None) -> int | None:
    if device in (None, "cpu"):
        return None
    if device == "cupy":
        return int(import_module("cupy").cuda.Device().mem_info[0])
    return int(import_module("torch").cuda.mem_get_info(device)[0])


def _factor(
    part: Part, comm: Communicator | None, bounds: tuple[int, ...], strategy: str, sizes: tuple[int, ...], place: _Place, overwrite: bool
) -> Factor:
    b, a = int(part.diagonal.shape[1]), int(part.tip.shape[0])
    if comm is None or comm.size == 1:
        chain, tip = place.chain(part, overwrite, False)
        charge(comm, whole_work(part.m, b, a, inverse=False))
        whole = Whole(chain, part.labels, tip)
        return Factor(comm, bounds, sizes, whole.chain, tip.shape[0], whole, None, whole.logs)
    middle = comm.rank > 0
    chain, tip = place.chain(part, overwrite, middle)
    boundary, logs = eliminate(chain, part.labels, tip * 0, middle=middle, closes=False)
    charge(comm, part_work(part.m, b, a, middle, inverse=False))
    assert boundary is not None
    reduced = reduce_system(strategy, comm, boundary, tip, bounds)
    with comm.phase("logdet"):
        own = float(comm.allreduce(np.array([float(logs)]), order="rank")[0])
    return Factor(comm, bounds, sizes, chain.turned(), tip.shape[0], None, reduced, own + reduced.logs)


class Factor:
    """L of the blocks of this rank, and of the reduced system where there are several ranks."""

    def __init__(
        self,
        comm: Communicator | None,
        bounds: tuple[int, ...],
        sizes: tuple[int, ...],
        chain: Chain,
        a: int,
        whole: Whole | None,
        reduced: Reduced | None,
        logs: float,
    ) -> None:
        self.comm, self.bounds, self.sizes, self.a = comm, bounds, sizes, a
        self.rank, self.size = (0, 1) if comm is None else (comm.rank, comm.size)
        self.count = bounds[self.rank + 1] - bounds[self.rank]
        self.b = int(chain.source["diagonal"].shape[1])
        self._chain: Chain | None = chain
        self._whole, self._reduced, self._logs = whole, reduced, logs

    @property
    def chain(self) -> Chain:
        """The blocks of L; gone after an inversion in place."""
        if self._chain is None:
            raise InputError("the factor was overwritten by its inverse; expected overwrite=False to use it again", where="factor")
        return self._chain

    @property
    def streamed(self) -> StreamCounters:
        """Counts of the streaming; `buffers` is 0 where blocks stayed on the device."""
        return self.chain.counters

    def logdet(self) -> float:
        """Returns log det A = 2·Σ log L_kk, the same on every rank."""
        return 2 * self._logs

    def solve(self, rhs: Any) -> Any:
        """Returns x with A·x = rhs, (N,) or (N, k) in the order of the matrix without padding, whole on every rank; collective."""
        rows = sum(self.sizes or (self.b,) * self.bounds[-1]) + self.a
        if rhs.ndim not in (1, 2) or rhs.shape[0] != rows:
            raise InputError(f"found a right-hand side of shape {tuple(rhs.shape)}; expected ({rows},) or ({rows}, k)", where="solve")
        like = self._like()
        vector, host = rhs.ndim == 1, arrays.to_host(rhs)
        if host.dtype.kind not in "biufc" or not np.isfinite(host).all():
            raise InputError("found an infinity, NaN or no numbers in the right-hand side; expected finite numbers", where="solve")
        dtype = np.dtype(dtype_name(like))
        if host.dtype.kind == "c" and dtype.kind != "c":
            raise InputError("found a complex right-hand side of a real matrix; expected a real one", where="solve")
        columns = host.reshape(rows, -1).astype(dtype)
        n, k = self.bounds[-1], columns.shape[1]
        padded = np.zeros((n * self.b, k), dtype)
        kept = _kept(self.sizes, n, self.b)
        padded[kept] = columns[: rows - self.a]
        xp, where = arrays.namespace(like), arrays.device_of(like)
        start, stop = self.bounds[self.rank], self.bounds[self.rank + 1]
        own = xp.asarray(padded.reshape(n, self.b, k)[start:stop].copy(), device=where)
        tip = columns[rows - self.a :] if self.rank == 0 else np.zeros((self.a, k), dtype)
        x, x_t = self.solve_part(own, xp.asarray(tip.copy(), device=where))
        if self.comm is not None and self.size > 1:
            wire = Wire(self.comm, like)
            counts = [(end - begin) * self.b * k for begin, end in zip(self.bounds, self.bounds[1:])]
            with self.comm.phase("collect"):
                (x,) = wire.unpack(self.comm.allgatherv(wire.pack([x]), counts=counts), [(n, self.b, k)])
        flat = xp.reshape(x, (n * self.b, k))
        if self.sizes:
            flat = flat[xp.asarray(np.flatnonzero(kept), device=where)]
        answer = xp.concat([flat, x_t]) if self.a else flat
        answer = answer[:, 0] if vector else answer
        return answer if arrays.kind_of(rhs) != "numpy" or arrays.kind_of(answer) == "numpy" else arrays.to_host(answer)

    def solve_part(self, rhs: Any, rhs_t: Any) -> tuple[Any, Any]:
        """Returns the solution at this rank's blocks and at the tip; `rhs` (m, b, k) is overwritten, the shares `rhs_t` (a, k) add up."""
        if self._whole is not None:
            self._like()  # refuses a factor that was overwritten
            return self._whole.solve(rhs, rhs_t)
        assert self._reduced is not None
        middle = self.rank > 0
        y, y_t = forward(self.chain, self.count, rhs, rhs_t, middle, closes=False)
        ends = [0, self.count - 1] if middle else [self.count - 1]
        solved, x_t = self._reduced.solve([y[i] for i in ends], y_t)
        for i, block in zip(ends, solved):
            y[i, ...] = block
        return backward(self.chain, self.count, y, x_t, middle, closes=False), x_t

    def _like(self) -> Any:
        """Returns an array where the work is done."""
        chain = self.chain
        return chain.block(chain.source["diagonal"][0])


def selected_inverse(f: Factor, overwrite: bool = False) -> SelectedInverse:
    """Returns the blocks of A⁻¹ at the places of A's blocks; collective.

    `overwrite` puts them in L's place; of `f` only log det remains then.
    """
    chain = f.chain
    names = ("diagonal", "lower", "arrow")
    target = (
        dict(chain.source)
        if overwrite
        else {name: chain.empty(x.shape[0], *x.shape[1:]) for name, x in chain.source.items() if name in names}
    )
    into = chain.turned(target)
    if f._whole is not None:
        tip = f._whole.tip_inverse()
        charge(f.comm, inversion(f.b, f.a) * f.count)
        invert(into, f.count, tip, None)
    else:
        assert f._reduced is not None
        boundary = f._reduced.inverse()
        tip = boundary.tip
        work = part_work(f.count, f.b, f.a, f.rank > 0)
        charge(f.comm, work + part_work(f.count, f.b, f.a, f.rank > 0, inverse=False) * -1)
        invert(into, f.count, tip, boundary)
    if overwrite:
        f._chain = None
    if arrays.on_accelerator(tip) and isinstance(chain, StreamedChain):
        tip = arrays.to_host(tip) if arrays.kind_of(target["diagonal"]) == "numpy" else tip.cpu()
    labels = tuple(range(f.bounds[f.rank], f.bounds[f.rank + 1]))
    return SelectedInverse(f, Part(target["diagonal"], target["lower"], target["arrow"], tip, labels))


class SelectedInverse:
    """This rank's blocks of the inverse in `part`; the methods gather those of all ranks and are collective."""

    def __init__(self, f: Factor, part: Part) -> None:
        self.part, self.comm, self.bounds, self.sizes = part, f.comm, f.bounds, f.sizes

    def diagonal(self) -> Any:
        """Returns the diagonal of A⁻¹ (N,), real, without padding: variances where A is a precision matrix."""
        xp = arrays.namespace(self.part.diagonal)
        own = xp.linalg.diagonal(self.part.diagonal)
        b = own.shape[1]
        own = self._gathered([own], [(b,)])[0]
        n = own.shape[0]
        flat = xp.reshape(own, (n * b,))
        if self.sizes:
            flat = flat[xp.asarray(np.flatnonzero(_kept(self.sizes, n, b)), device=arrays.device_of(flat))]
        whole = xp.concat([flat, xp.linalg.diagonal(self.part.tip)])
        return xp.real(whole) if dtype_name(whole).startswith("complex") else whole

    def blocks(self) -> BlockArrow:
        """Returns all wanted blocks, on every rank."""
        part = self.part
        b, a = part.diagonal.shape[1], part.tip.shape[0]
        diagonal, arrow = self._gathered([part.diagonal, part.arrow], [(b, b), (a, b)])
        (lower,) = self._gathered([part.lower], [(b, b)], short=True)
        return BlockArrow(diagonal, lower, arrow, part.tip, self.sizes)

    def to_sparse(self) -> csr_array:
        """Returns A⁻¹ at the places of A's blocks as a SciPy sparse array; everything else is not computed, and zero here."""
        return self.blocks().to_sparse()

    def _gathered(self, own: Sequence[Any], shapes: Sequence[tuple[int, ...]], short: bool = False) -> list[Any]:
        if self.comm is None or self.comm.size == 1:
            return list(own)
        wire, found = Wire(self.comm, self.part.tip), []
        counts = [end - begin for begin, end in zip(self.bounds, self.bounds[1:])]
        counts[-1] -= short
        with self.comm.phase("collect"):
            for x, shape in zip(own, shapes):
                sizes = [count * math.prod(shape) for count in counts]
                flat = self.comm.allgatherv(wire.pack([x]), counts=sizes)
                found += wire.unpack(flat, [(sum(counts), *shape)])
        return found


def _kept(sizes: Sequence[int], n: int, b: int) -> np.ndarray[Any, Any]:
    true = np.asarray(sizes or [b] * n)
    return (np.arange(b)[None, :] < true[:, None]).reshape(-1)
