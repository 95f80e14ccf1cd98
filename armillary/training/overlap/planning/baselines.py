"""Plans of the baselines: whole kernels with library calls or copy engines, each with its best number of pieces."""

from __future__ import annotations

from armillary.training.overlap.machine.mechanisms import CALL_SMS, COPY_LAUNCH_S, SIGNAL_S, Gpu
from armillary.training.overlap.programs.catalogue import program_for
from armillary.training.overlap.programs.template import Tile
from armillary.training.overlap.workload import Operator

from .decomposed import pieces_of, with_copies, with_library
from .plan import Plan, swept
from .promise import Work, library_seconds, split_seconds, work_of

PIECES = (1, 2, 4, 8, 16)


def sequential(op: Operator, gpu: Gpu, tile: Tile) -> Plan:
    """One stream, one piece."""
    return swept(lambda _: with_library(op, gpu, tile, 1, False), lambda _: _library_promise(op, gpu, tile, 1, False), [1])


def stream_overlap(op: Operator, gpu: Gpu, tile: Tile, pieces: int = 0) -> Plan:
    """Two streams; 0 tries all numbers of pieces, and one stream too."""
    if pieces:
        return swept(lambda k: with_library(op, gpu, tile, k, True), lambda k: _library_promise(op, gpu, tile, k, True), [pieces])
    counts = [k for k in PIECES if k <= pieces_of(op, tile)]
    if op.op == "ring_attention":
        counts = [1]

    def promise(k: int) -> float:
        return _library_promise(op, gpu, tile, max(k, 1), k > 0)

    return swept(lambda k: with_library(op, gpu, tile, max(k, 1), k > 0), promise, [0, *counts])


def copy_engine(op: Operator, gpu: Gpu, tile: Tile, pieces: int = 0) -> Plan:
    """Kernels in pieces with copy engines; 0 tries all numbers of pieces."""
    # A chunk of a ring goes to one device, and more copies than engines only add launches.
    tried = PIECES[:3] if op.op == "ring_attention" else PIECES
    counts = [pieces] if pieces else [k for k in tried if k <= pieces_of(op, tile, by_owner=True)] or [1]
    return swept(lambda k: with_copies(op, gpu, tile, k), lambda k: copy_promise(op, gpu, tile, k), counts)


def _work(op: Operator, gpu: Gpu, tile: Tile) -> Work:
    return work_of(program_for(op, tile, inter=False, fabric=False), gpu)


def _library_promise(op: Operator, gpu: Gpu, tile: Tile, pieces: int, overlap: bool) -> float:
    work, n = _work(op, gpu, tile), op.devices
    if op.op == "ring_attention":
        send, stage = library_seconds("send", op.payload, op, gpu), work.compute_s(gpu.sms) / n
        if not overlap:
            return 4e-6 + n * stage + (n - 1) * send
        # The call holds its SMs only while it sends.
        beside = stage + send * CALL_SMS / gpu.sms
        return 4e-6 + (n - 1) * max(beside, send) + stage
    kind = {"gemm_rs": "reduce-scatter", "ag_gemm": "all-gather", "gemm_ar": "all-reduce"}.get(op.op, "all-to-all")
    kind = op.op.replace("_", "-") if not work.tiles else kind
    moved = {"ulysses_attention": 2.0, "moe_dispatch_gemm": 2.0}.get(op.op, 0.0) * op.payload / gpu.memory
    comm = library_seconds(kind, op.payload / pieces, op, gpu)
    if op.op == "ulysses_attention":
        comm = sum(library_seconds(kind, share * op.payload / pieces, op, gpu) for share in (0.75, 0.25))
    if op.op == "moe_dispatch_gemm" and n > 1:
        comm *= work.bytes / ((n - 1) / n * op.payload)
    return split_seconds(op, gpu, work, pieces, comm, CALL_SMS * (n > 1), overlap, moved)


def copy_promise(op: Operator, gpu: Gpu, tile: Tile, pieces: int) -> float:
    """Seconds of kernels in pieces with copy engines, by closed form."""
    work, n = _work(op, gpu, tile), op.devices
    peak = gpu.copy_engine.peak
    if n == 1:
        return split_seconds(op, gpu, work, pieces, 0.0, 0, True)
    if op.op == "ring_attention":
        stage, send = work.compute_s(gpu.sms) / n, op.payload / peak + COPY_LAUNCH_S * -(-pieces // gpu.engines) + SIGNAL_S
        return 4e-6 + (n - 1) * max(stage, send) + stage
    adds = (n + 1) / n * op.payload / gpu.memory if op.op in ("gemm_rs", "gemm_ar", "reduce_scatter", "all_reduce") else 0.0
    packs = 2.0 * op.payload / gpu.memory if op.op == "moe_dispatch_gemm" else 0.0
    comm = work.bytes / peak / pieces + COPY_LAUNCH_S + SIGNAL_S
    turns = n if op.op in ("gemm_rs", "gemm_ar") else 1
    return split_seconds(op, gpu, work, pieces * turns, comm / turns, 0, True, adds / pieces + packs)
