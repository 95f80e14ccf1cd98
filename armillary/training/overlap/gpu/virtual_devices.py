"""The executor `gpu`: n virtual devices on one GPU, each with its own operands and results, and kernels that cross between them.

from armillary.training.overlap.gpu.virtual_devices import gemm_ar, gemm_rs
c = gemm_rs(a, b)                # a: n × M × K, b: n × K × N -> n × M/n × N, float32
c = gemm_ar(a, b, comm_sms=8)    # -> n × M × N, equal on every device

What crosses a link between real devices crosses the memory of one GPU here, so these runs show that the programs are right, and what
signals and atomic adds cost, but no overlap with NVLink.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import torch

from armillary.errors import InputError

from . import kernels

#: Polls before a wait gives up; one poll takes about a microsecond, so that is some ten seconds.
SPINS = 10_000_000


@dataclass(frozen=True)
class Tile:
    """The tile of a product, the step along K, the rows of tiles that a wave shares, and how a program runs."""

    m: int = 128
    n: int = 256
    k: int = 64
    group: int = 8
    warps: int = 8
    stages: int = 3

    def options(self) -> dict[str, int]:
        """The options of a launch."""
        return {"TM": self.m, "TN": self.n, "TK": self.k, "GROUP": self.group, "num_warps": self.warps, "num_stages": self.stages}


def gemm_rs(a: Any, b: Any, *, tile: Tile = Tile(), programs: int | None = None) -> Any:  # noqa: B008
    """The rows of Σ a[d]·b[d] that each device owns, as devices × (M / devices) × N in float32.

    `a` is devices × M × K and `b` is devices × K × N, contiguous, of one type. Adds arrive in any order, so the last bits may differ
    from run to run, as they do on real devices.
    """
    devices, m, n, k = _checked(a, b)
    if m % devices:
        raise InputError(f"{m} rows over {devices} devices: expected a multiple")
    out = torch.zeros((devices, m // devices, n), dtype=torch.float32, device=a.device)
    tiles_m, tiles_n = -(-m // tile.m), -(-n // tile.n)
    grid = _resident(a, devices, programs)
    kernels.reduce_scatter_kernel[(grid,)](a, b, out, m, n, k, tiles_m, tiles_n, devices, **tile.options())
    return out


def gemm_ar(
    a: Any, b: Any, *, comm_sms: int = 8, tile: Tile = Tile(), programs: int | None = None, spins: int = SPINS  # noqa: B008
) -> Any:  # fmt: skip
    """Σ a[d]·b[d] on every device, as devices × M × N in the type of `a`; all devices get the same bits, in every run.

    `comm_sms` programs of the GPU communicate, at least one per device, and the others compute.
    """
    devices, m, n, k = _checked(a, b)
    grid = _resident(a, devices, programs)
    comm = max(1, comm_sms // devices)
    if comm >= grid // devices:
        raise InputError(f"{comm_sms} programs of {grid} communicate; expected at most {grid - 2 * devices + 1}, so that some compute")
    tiles_m, tiles_n = -(-m // tile.m), -(-n // tile.n)
    partial = torch.empty((devices, m, n), dtype=a.dtype, device=a.device)
    out = torch.empty_like(partial)
    flags = torch.zeros(tiles_m * tiles_n, dtype=torch.int32, device=a.device)
    stuck = torch.full((1,), -1, dtype=torch.int32, device=a.device)
    kernels.all_reduce_kernel[(grid,)](
        a, b, partial, out, flags, stuck, m, n, k, tiles_m, tiles_n, devices, spins, COMM=comm, **tile.options()
    )
    lost = int(stuck.item())
    if lost >= 0:
        raise RuntimeError(f"the communicator of tile {lost} gave up before it saw {devices} signals")
    return out


def product(a: Any, b: Any, *, tile: Tile = Tile()) -> Any:  # noqa: B008
    """a·b of one device with the same tiles and no communication, M × N in the type of `a`."""
    _, m, n, k = _checked(a[None], b[None])
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    tiles_m, tiles_n = -(-m // tile.m), -(-n // tile.n)
    kernels.product_kernel[(tiles_m * tiles_n,)](a, b, c, m, n, k, tiles_m, tiles_n, **tile.options())
    return c


def signal_seconds(rounds: int = 10_000) -> float:
    """Seconds from a signal through device memory to its wait on another SM, half of a round trip."""
    flags = torch.zeros(64, dtype=torch.int32, device="cuda")
    stuck = torch.full((1,), -1, dtype=torch.int32, device="cuda")

    def run(count: int) -> float:
        flags.zero_()
        event: Any = torch.cuda.Event
        start, end = event(enable_timing=True), event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        kernels.ping_pong_kernel[(2,)](flags, stuck, count, SPINS, num_warps=1)
        end.record()
        torch.cuda.synchronize()
        if int(stuck.item()) >= 0:
            raise RuntimeError(f"signal {int(stuck.item())} was lost")
        return float(start.elapsed_time(end)) / 1e3

    counts = (rounds, rounds // 2)
    for count in counts:  # Each is compiled by itself if only one is a multiple of sixteen.
        run(count)
    more, fewer = (statistics.median(run(count) for _ in range(5)) for count in counts)
    return (more - fewer) / (2 * (rounds - rounds // 2))


def _checked(a: Any, b: Any) -> tuple[int, int, int, int]:
    """Devices, M, N and K of the operands, which must be of one type, contiguous and on one device."""
    if a.ndim != 3 or b.ndim != 3 or a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1] or 0 in (*a.shape, *b.shape):
        raise InputError(f"operands of {tuple(a.shape)} and {tuple(b.shape)}: expected devices × M × K and devices × K × N")
    if a.dtype != b.dtype or a.device != b.device or not (a.is_contiguous() and b.is_contiguous()):
        raise InputError("expected contiguous operands of one type on one device")
    return int(a.shape[0]), int(a.shape[1]), int(b.shape[2]), int(a.shape[2])


def _resident(a: Any, devices: int, programs: int | None) -> int:
    """The number of programs, a multiple of `devices`, which is at most the number of SMs, because waits spin."""
    sms = torch.cuda.get_device_properties(a.device).multi_processor_count if a.device.type == "cuda" else 4 * devices
    grid = (sms if programs is None else programs) // devices * devices
    if not devices <= grid <= sms:
        raise InputError(f"{programs or sms} programs for {devices} devices on {sms} SMs: expected at least one per device, all resident")
    return grid
