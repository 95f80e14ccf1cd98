"""The programs directly on torch.distributed, which most people use today, with Gloo between processes and NCCL between GPUs.

PyTorch Distributed: Experiences on Accelerating Data Parallel Training, VLDB 2020. NCCL 2: NVIDIA, 2017.
"""

from __future__ import annotations

import importlib.util
import socket
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.arena import NotForThisCase
from armillary.network.backends.programs import Array, Body, RowBlock, Sweeps
from armillary.network.backends.twin import Twin


@dataclass(frozen=True)
class TorchDistributed(Twin):
    """torch.distributed with Gloo, in the processes of an MPI job, beside the native twin."""

    texts: ClassVar[str] = "armillary.network.backends.torch_distributed"
    backends: ClassVar[frozenset[str]] = frozenset({"mpi", "gloo"})

    def check(self, backend: str, program: str) -> None:
        """Declines what needs torch if it is missing, and NCCL, where it is the native twin."""
        if backend == "nccl":
            raise NotForThisCase("on nccl, torch.distributed is the native twin: nccl-native")
        super().check(backend, program)
        if importlib.util.find_spec("torch") is None:
            raise NotForThisCase("torch is not installed; pip install 'armillary[learn]'")


@dataclass(frozen=True)
class NcclNative(Twin):
    """NCCL called directly through torch.distributed, with grouped sends and receives on the stream."""

    texts: ClassVar[str] = "armillary.network.backends.torch_distributed"
    backends: ClassVar[frozenset[str]] = frozenset({"nccl"})


def jacobi(comm: Any, n: int, iterations: int, periodic: bool = False) -> Body:
    """Prepares Jacobi sweeps of an n x n grid, whose rows are dealt to the ranks with a halo row above and below; the upper edge is 1."""
    import torch.distributed as dist

    group, zeros = _ready(comm)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    block = -(-n // size)
    rows = max(0, min(n, (rank + 1) * block) - rank * block)
    one, two = zeros((rows + 2, n)), zeros((rows + 2, n))
    tops, bottoms, uppers, lowers = [[a[i] for a in (two, one)] for i in (1, rows, 0, rows + 1)]
    sweeps = Sweeps(_computed(one), _computed(two), rank == 0)
    up = rank - 1 if rank > 0 else size - 1 if periodic else None
    down = rank + 1 if rank + 1 < size else 0 if periodic else None

    def body() -> Array:
        sweeps.start()
        for i in range(iterations):
            sweeps.step(i)
            top, bottom, upper, lower = tops[i % 2], bottoms[i % 2], uppers[i % 2], lowers[i % 2]
            operations = []
            if up is not None:
                operations.append(dist.P2POp(dist.isend, top, up, group))
            if down is not None:
                operations.append(dist.P2POp(dist.isend, bottom, down, group))
                operations.append(dist.P2POp(dist.irecv, lower, down, group))
            if up is not None:
                operations.append(dist.P2POp(dist.irecv, upper, up, group))
            if operations:
                for work in dist.batch_isend_irecv(operations):
                    work.wait()
        return _computed((two if iterations % 2 else one)[1 : rows + 1])

    return body


def cg(comm: Any, grid: int, path: str | None = None, tolerance: float = 1e-10, order: str | None = None) -> Body:
    """Prepares conjugate gradients by row blocks, with one allgatherv and two allreduces per iteration; gives (iterations, own part)."""
    import torch
    import torch.distributed as dist

    group, zeros = _ready(comm)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    one = zeros(1)
    own = RowBlock(rank, size, grid, path, like=_computed(one))
    direction = zeros(own.n)
    # The library gathers equal parts only, so a short one is filled up.
    most, mine = max(own.counts), own.counts[rank]
    parts, padded = zeros(size * most), zeros(most)
    # Newer releases have another name for it.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    pieces = list(torch.split(direction, list(own.counts)))
    equal = min(own.counts) == most

    def total(value: Any) -> float:
        one[0] = float(value) if isinstance(value, np.floating) else value
        dist.all_reduce(one, group=group)
        return float(one[0])

    def body() -> tuple[int, Array]:
        x, r, p = own.start()
        send = torch.from_numpy(p) if isinstance(p, np.ndarray) else p
        rho = total(r.dot(r))
        goal = rho * tolerance**2
        for i in range(own.n):
            if rho <= goal:
                return i, x
            if equal:
                gather(direction, send, group=group)
            else:
                padded[:mine] = send
                gather(parts, padded, group=group)
                for piece, part in zip(pieces, parts.view(size, most)):
                    piece[:] = part[: len(piece)]
            q = own.times(_computed(direction))
            alpha = rho / total(p.dot(q))
            before, rho = rho, own.step(x, r, p, q, alpha, total)
            own.turn(p, r, rho / before)
        return own.n, x

    return body


def pingpong(comm: Any, nbytes: int, exchanges: int) -> Body:
    """Prepares `exchanges` messages to the other rank and back, or to itself if it is alone."""
    import torch.distributed as dist

    group, zeros = _ready(comm)
    rank = dist.get_rank(group)
    data, room = zeros(nbytes, np.uint8), zeros(nbytes, np.uint8)
    data[:] = rank + 1
    first, other = rank == 0, 1 - rank
    if dist.get_world_size(group) == 1:

        def alone() -> Array:
            for _ in range(2 * exchanges):
                for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, data, 0, group), dist.P2POp(dist.irecv, room, 0, group)]):
                    work.wait()
            return _computed(room)

        return alone

    def body() -> Array:
        for _ in range(exchanges):
            if first:
                dist.send(data, other, group)
                dist.recv(room, other, group)
            else:
                dist.recv(room, other, group)
                dist.send(data, other, group)
        return _computed(room)

    return body


def bandwidth(comm: Any, nbytes: int, exchanges: int, window: int = 64) -> Body:
    """Prepares `exchanges` windows of messages one way, each with a word back."""
    import torch.distributed as dist

    group, zeros = _ready(comm)
    rank = dist.get_rank(group)
    data, room, word, heard = zeros(nbytes, np.uint8), zeros(nbytes, np.uint8), zeros(1, np.uint8), zeros(1, np.uint8)
    data[:] = rank + 1
    first = rank == 0

    def body() -> Array:
        for _ in range(exchanges):
            if first:
                works: list[Any] = [dist.isend(data, 1, group) for _ in range(window)]
            else:
                works = [dist.irecv(room, 0, group) for _ in range(window)]
            for work in works:
                work.wait()
            if first:
                dist.recv(heard, 1, group)
            else:
                dist.send(word, 0, group)
        return _computed(room)

    return body


def allreduce(comm: Any, nbytes: int, exchanges: int) -> Body:
    """Prepares `exchanges` sums of a float64 array over all ranks."""
    import torch.distributed as dist

    group, zeros = _ready(comm)
    mine, recv = zeros(nbytes // 8), zeros(nbytes // 8)
    mine[:] = dist.get_rank(group) + 1.0

    def body() -> Array:
        for _ in range(exchanges):
            recv.copy_(mine)
            dist.all_reduce(recv, group=group)
        return _computed(recv)

    return body


def _ready(comm: Any) -> tuple[Any, Any]:
    """The group of these ranks, and the function that makes its tensors; inside an MPI job a Gloo group is made once."""
    import torch
    import torch.distributed as dist

    group = comm.native if isinstance(getattr(comm, "native", None), dist.ProcessGroup) else comm.__dict__.get("_gloo")
    if group is None:
        group = comm.__dict__["_gloo"] = _gloo(comm)
    device = torch.device("cuda") if "nccl" in str(dist.get_backend(group)) else torch.device("cpu")

    def zeros(shape: Any, dtype: Any = np.float64) -> Any:
        return torch.zeros(shape, dtype=getattr(torch, np.dtype(dtype).name), device=device)

    return group, zeros


def _gloo(comm: Any) -> Any:
    import os
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    # The processes of a job share its cores.
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    port = np.zeros(1, np.int64)
    if comm.rank == 0:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port[0] = found.getsockname()[1]
    comm.bcast(port)
    library: Any = dist
    store = library.TCPStore("127.0.0.1", int(port[0]), comm.size, comm.rank == 0, timeout=timedelta(seconds=60))
    dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size, timeout=timedelta(seconds=120))
    return dist.group.WORLD


def _computed(tensor: Any) -> Any:
    """The array for arithmetic, which is NumPy's view of a tensor on the host, and the tensor itself on a device."""
    return tensor.numpy() if tensor.device.type == "cpu" else tensor
