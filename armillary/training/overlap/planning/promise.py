"""Closed forms: how long a schedule takes by its own model, T = T_launch + max(T_compute, T_comm) + T_non-overlapped + T_sync.

A plan promises this; the simulator delivers. Waves of equal tiles, links at the mechanism's rate, and what the schedule cannot hide: the
tile before the first transfer, the transfer after the last tile, the last stage of a ring.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from armillary.training.overlap.machine.mechanisms import (
    CALL_S,
    EPSILON,
    FINE_BYTES,
    FLAG_S,
    LAUNCH_S,
    SIGNAL_S,
    STAGING,
    STREAM_S,
    Gpu,
)
from armillary.training.overlap.programs.catalogue import REDUCING
from armillary.training.overlap.programs.template import BOX, WARP, TileProgram
from armillary.training.overlap.simulation.tracing import tile_seconds
from armillary.training.overlap.workload import PLAIN, Operator


@dataclass(frozen=True)
class Work:
    """What a program does, in seconds of one SM and in bytes: tiles of the busiest device, one tile, and bytes over its busiest link.

    `fan` is how many bytes cross the busiest link for each byte that the SMs of one device drive: a multicast reaches n − 1 links.
    """

    tiles: int
    tile_s: float
    bytes: float
    registers: bool
    fan: float = 1.0

    def compute_s(self, sms: int) -> float:
        """Seconds of all tiles in waves."""
        return math.ceil(self.tiles / sms) * self.tile_s if self.tiles else 0.0


def work_of(program: TileProgram, gpu: Gpu) -> Work:
    """The work of a program's busiest device."""
    op, n = program.operator, program.devices
    counts = [program.tasks(dev) for dev in range(n)]
    busiest = int(np.argmax(counts))
    tile_s = 0.0
    if counts[busiest]:
        some = range(0, counts[busiest], max(1, counts[busiest] // 64))
        if op.causal:
            busiest = n - 1
        tile_s = float(np.mean([tile_seconds(program, gpu, busiest, t) for t in some]))
    in_fabric = op.op in REDUCING and not (getattr(program, "style", "in-fabric") != "in-fabric" or not getattr(program, "fabric", True))
    return Work(counts[busiest], tile_s, crossing(program, in_fabric), in_fabric, _fan(program, in_fabric))


def _fan(program: TileProgram, in_fabric: bool) -> float:
    op, n = program.op, program.devices
    if in_fabric:
        return float(n) if op == "reduce_scatter" else (n + 1) / 2
    if op in ("ag_gemm", "all_gather"):
        return float(max(1, n - 1))
    if op == "gemm_ar" and getattr(program, "style", "") == "two-shot":
        # Storers add the tiles to their owner, so communicators drive the multicast of the sums alone.
        return float(max(1, 2 * (n - 1)))
    return max(1.0, 2 * (n - 1) / n) if op == "all_reduce" else 1.0


def crossing(program: TileProgram, in_fabric: bool) -> float:
    """Bytes over the busiest direction of the busiest link."""
    op, n = program.operator, program.devices
    if n == 1:
        return 0.0
    if op.op in ("gemm_ar", "all_reduce"):
        if in_fabric:
            return op.payload * (1 + 1 / n)
        return op.payload * (n - 1) if getattr(program, "style", "") == "one-shot" else float(op.crossing[0])
    if op.op == "reduce_scatter" and in_fabric:
        return op.payload
    if op.op == "moe_dispatch_gemm":
        sent = np.asarray(op.counts, np.float64).reshape(n, n, -1).sum(2)
        up = (sent.sum(1) - np.diag(sent)).max() * op.hidden * op.bytes_per_element
        return float(max(op.crossing.max(), up))
    return float(op.crossing[0])


def rate_of(work: Work, gpu: Gpu, comm_sms: int) -> float:
    """Bytes/s of the busiest link, with this many communicator SMs; 0 stands for communicators in all SMs."""
    if work.registers:
        return gpu.registers.rate(WARP, comm_sms * work.fan)
    return gpu.tma.rate(BOX, (comm_sms or gpu.sms) * work.fan)


def fused_seconds(program: TileProgram, gpu: Gpu, comm_sms: int) -> float:
    """Seconds of a fused program."""
    op, n, work = program.operator, program.devices, work_of(program, gpu)
    sms = gpu.sms - comm_sms
    compute, tile = work.compute_s(sms), work.tile_s
    if n == 1:
        return LAUNCH_S + compute
    comm = work.bytes / rate_of(work, gpu, comm_sms)
    if comm_sms == 0:
        # A tile is slower while its SM sends.
        compute += EPSILON * min(comm, compute)
    if op.op in PLAIN:
        return LAUNCH_S + SIGNAL_S + FLAG_S + comm
    if op.op == "ring_attention":
        stage = compute / n
        return LAUNCH_S + (n - 1) * max(stage, comm / (n - 1) + SIGNAL_S) + stage
    waves = max(1, math.ceil(work.tiles / sms))
    if op.op == "gemm_rs":
        return LAUNCH_S + max(compute, tile + comm)
    if op.op == "gemm_ar":
        return LAUNCH_S + max(compute + comm / waves, tile + comm) + 2 * SIGNAL_S
    if op.op == "ag_gemm":
        return LAUNCH_S + max(compute, comm + tile + SIGNAL_S)
    if op.op == "ulysses_attention":
        out = comm / 4 / waves
        first = 0.75 * comm / max(1, op.batch * op.heads // n)
        return LAUNCH_S + max(compute + first, 0.75 * comm + tile) + out + SIGNAL_S
    blocks = max(1, work.tiles // max(1, -(-op.ffn // program.tile.n)))
    return LAUNCH_S + max(compute + comm / blocks * n, comm + tile) + SIGNAL_S


def library_seconds(kind: str, payload: float, op: Operator, gpu: Gpu) -> float:
    """Seconds of one library call."""
    n = op.devices
    if n == 1:
        return 0.0
    peak = gpu.registers.peak * gpu.registers.efficiency(1 << 20)
    share = {"all-reduce": 2 * (n - 1) / n, "send": 1.0}.get(kind, (n - 1) / n)
    if kind == "all-reduce" and gpu.in_fabric:
        share = min(share, (n + 1) / n)
    fine = payload < FINE_BYTES if kind == "send" else payload / n < FINE_BYTES
    return CALL_S + 2 * SIGNAL_S + share * payload / peak * (STAGING if fine else 1.0)


def split_seconds(
    op: Operator, gpu: Gpu, work: Work, pieces: int, comm_s: float, held: int, overlap: bool, reduces_after: float = 0.0
) -> float:
    """Seconds of kernels in pieces whose transfers, `comm_s` per piece, run beside the next piece's kernel."""
    if not overlap:
        return LAUNCH_S + STREAM_S + work.compute_s(gpu.sms) + comm_s + reduces_after
    tiles = work.tiles / pieces
    alone = math.ceil(tiles / gpu.sms) * work.tile_s + STREAM_S
    beside = math.ceil(tiles / (gpu.sms - held)) * work.tile_s + STREAM_S
    return LAUNCH_S + alone + (pieces - 1) * max(beside, comm_s) + comm_s + reduces_after
