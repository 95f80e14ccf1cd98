"""Traces of tensor accesses: our own, as `PrefetchTable.to_csv` writes it, and that of the published artifact.

Ours has one row per access of one iteration: `tensor_id,bytes,dtype,layer_id,layer_name,phase,start_ms,end_ms`, with phases fwd, bwd and,
if the update was recorded, opt. The artifact's has `Tensor_ID,Tensor_Size,Tensor_Element,Forward,Layer_ID,Layer_Name` beside waiting times
and no durations, which then come from `armillary.llm`: a matrix product with as many weights as the tensor has elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import Column, Table, column_names, read_table
from armillary.llm import chip
from armillary.llm.cost.operators import gemm_seconds
from armillary.training.offload.simulation.machine import Machine
from armillary.training.offload.workload import BACKWARD, FORWARD, MOST_ROWS, PERSISTENT, OffloadWork

WIDTH = {"fp32": 4, "float32": 4, "fp16": 2, "float16": 2, "bf16": 2, "bfloat16": 2, "fp8": 1, "int8": 1}
_MOST = 1 << 44
OURS = [
    Column("tensor_id", "str"),
    Column("bytes", "int", unit="bytes", least=1, most=_MOST),
    Column("dtype", "str", choices=tuple(WIDTH), default="fp16"),
    Column("layer_id", "int", least=-(1 << 31), most=1 << 31),
    Column("layer_name", "str", default=""),
    Column("phase", "str", choices=("fwd", "bwd", "opt")),
    Column("start_ms", "float", unit="milliseconds", least=0, most=1e12, not_decreasing=True),
    Column("end_ms", "float", unit="milliseconds", least=0, most=1e12),
]
ARTIFACT = [
    Column("Tensor_ID", "str"),
    Column("Tensor_Size", "int", unit="bytes", least=1, most=_MOST),
    Column("Tensor_Element", "int", least=1, most=_MOST),
    Column("Tensor_Location", "str", choices=("gpu", "cpu", "nvme", "not-nvme"), optional=True),
    Column("Forward", "bool"),
    Column("Layer_ID", "int", least=0, most=1 << 31),
    Column("Layer_Name", "str", default=""),
]


def read_trace(path: str | Path, machine: Machine, *, tokens: int = 2048, iterations: int = 4) -> OffloadWork:
    """The work in a trace of either kind, on this machine. `tokens` per iteration give the artifact's modules their seconds."""
    if "Tensor_ID" in column_names(path):
        return _artifact(path, machine, tokens, iterations)
    table = read_table(path, OURS, row_limit=MOST_ROWS)
    start, end = table["start_ms"], table["end_ms"]
    early = np.flatnonzero(end < start)
    if len(early):
        row = int(early[0])
        raise table.error(row, f"found {end[row]:g} for a start at {start[row]:g}; expected an end that is not before it", "end_ms")
    tensor, names = table.numbered("tensor_id")
    size = _sizes(table, tensor, "bytes", len(names))
    width = np.ones(len(names), np.int64)
    width[tensor] = [WIDTH[one] for one in table["dtype"]]
    phase, layer, module = table["phase"], table["layer_id"], table["layer_name"]
    ops: list[tuple[int, int, list[int], float]] = []
    update: dict[int, float] = {}
    key: tuple[Any, ...] | None = None
    for row in range(table.rows):
        if phase[row] == "opt":
            update[int(tensor[row])] = update.get(int(tensor[row]), 0.0) + float(end[row] - start[row]) / 1e3
            key = None
            continue
        same = (phase[row], int(layer[row]), module[row])
        seconds = float(end[row] - start[row]) / 1e3
        if same == key and int(tensor[row]) not in ops[-1][2]:
            kind, number, used, before = ops[-1]
            ops[-1] = (kind, number, [*used, int(tensor[row])], max(before, seconds))
        else:
            ops.append((FORWARD if phase[row] == "fwd" else BACKWARD, int(layer[row]), [int(tensor[row])], seconds))
        key = same
    elements = np.maximum(size // width, 1)
    return _checked(
        path, machine, size, ops, elements, names, iterations,
        update_s=[update.get(t, float(elements[t]) / machine.adam) for t in range(len(names))],
    )  # fmt: skip


def _artifact(path: str | Path, machine: Machine, tokens: int, iterations: int) -> OffloadWork:
    table = read_table(path, ARTIFACT, row_limit=MOST_ROWS)
    tensor, names = table.numbered("Tensor_ID")
    size = _sizes(table, tensor, "Tensor_Size", len(names))
    count = _sizes(table, tensor, "Tensor_Element", len(names))
    forward, layer = table["Forward"], table["Layer_ID"]
    # The file may hold several iterations; the first one ends where forward begins again.
    again = np.flatnonzero(forward[1:] & ~forward[:-1])
    rows = int(again[0]) + 1 if len(again) else table.rows
    on = chip(machine.device)
    sides = [max(1, math.isqrt(int(n))) for n in count]
    seconds = [0.0 if n < PERSISTENT else float(gemm_seconds(on, tokens, side, side)) for n, side in zip(count, sides, strict=True)]
    ops: list[tuple[int, int, list[int], float]] = []
    key: tuple[Any, ...] | None = None
    for row in range(rows):
        t, kind = int(tensor[row]), FORWARD if forward[row] else BACKWARD
        takes = seconds[t] * (1 if kind == FORWARD else 2)
        same = (kind, int(layer[row]))
        if same == key and t not in ops[-1][2]:
            ops[-1] = (kind, int(layer[row]), [*ops[-1][2], t], ops[-1][3] + takes)
        else:
            ops.append((kind, int(layer[row]), [t], takes))
        key = same
    return _checked(path, machine, size, ops, count, names, iterations, notes=("durations are modelled, the trace has none",))


def _sizes(table: Table, tensor: Any, column: str, tensors: int) -> Any:
    """The value that a tensor has in every one of its rows."""
    value = table[column]
    found = np.zeros(tensors, np.int64)
    found[tensor] = value
    odd = np.flatnonzero(found[tensor] != value)
    if len(odd):
        row = int(odd[0])
        raise table.error(row, f"found {value[row]} where the same tensor has {found[tensor[row]]} elsewhere; expected one value", column)
    return found


def _checked(
    path: str | Path, machine: Machine, size: Any, ops: list[tuple[int, int, list[int], float]], elements: Any, names: Sequence[str],
    iterations: int, **more: Any,
) -> OffloadWork:  # fmt: skip
    phases = {op[0] for op in ops}
    if FORWARD not in phases or BACKWARD not in phases:
        raise InputError("found one pass only; expected accesses of the forward and of the backward pass", where=str(path))
    work = OffloadWork.of(
        Path(path).name, machine, size, ops, elements=elements, names=[one_line(str(n), 60) for n in names], iterations=iterations,
        where=str(path), **more,
    )  # fmt: skip
    if work.capacity < int(work.size.max()):
        largest, room = int(work.size.max()), max(work.capacity, 0.0)
        raise InputError(f"the largest tensor has {largest} bytes, and the GPU has {room:.0f} for parameters", where=str(path))
    return work
