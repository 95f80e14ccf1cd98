"""A block of float64 rows on a CUDA device: each step reads the block once, writes it once, and needs no second one.

Substitution goes by blocks of 32 or 16 columns, of which the inverses of the diagonal ones are multiplied with. A program keeps the
columns that it has finished in registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from ..factors.triangles import Array

#: Columns of a block, the wider one where it is conditioned well, and the most columns that fit the registers.
WIDTHS, MOST_COLUMNS = (32, 16), 64
_ROWS, _WARPS = 128, 4
#: Programs of a pass that only reads.
_PROGRAMS = 1056
_BATCH = 4096


def fits(x: Any) -> bool:
    """Says whether `x` is a block that these kernels take, which run on the current device."""
    return (
        isinstance(x, torch.Tensor)
        and x.device.type == "cuda"
        and x.device.index == torch.cuda.current_device()
        and x.dtype == torch.float64
        and 0 < x.shape[1] <= MOST_COLUMNS
        and x.shape[0] > 0
        and x.is_contiguous()
    )


@triton.jit
def _magnitudes(x, most, rows, n, each, WIDE: tl.constexpr, ROWS: tl.constexpr):
    column = tl.arange(0, WIDE)
    largest = tl.zeros((WIDE,), tl.int64)
    first = tl.program_id(0).to(tl.int64) * each * ROWS
    for step in range(each):
        row = first + step * ROWS + tl.arange(0, ROWS)
        inside = (row[:, None] < rows) & (column[None, :] < n)
        bits = tl.load(x + row[:, None] * n + column[None, :], mask=inside, other=0) & 0x7FFFFFFFFFFFFFFF
        largest = tl.maximum(largest, tl.max(bits, axis=0))
    tl.atomic_max(most + column, largest, mask=column < n)


def magnitudes(x: Any) -> Array:
    """Returns the largest |entry| of each column on the host; NaN where a column holds one."""
    rows, n = x.shape
    most = torch.zeros(n, dtype=torch.int64, device=x.device)
    each = triton.cdiv(triton.cdiv(rows, _ROWS), _PROGRAMS)
    wide = max(16, triton.next_power_of_2(n))
    _magnitudes[(_PROGRAMS,)](x.view(torch.int64), most, rows, n, each, WIDE=wide, ROWS=_ROWS, num_warps=4)
    found: Array = most.cpu().numpy().view(np.float64)
    return found


def gram(x: Any) -> Array:
    """Returns xᵀx on the host, as a sum over batches that the device takes side by side."""
    rows, n = x.shape
    whole = rows // _BATCH * _BATCH
    total = x[whole:].T @ x[whole:]
    if whole:
        batches = x[:whole].view(-1, _BATCH, n)
        total += torch.bmm(batches.transpose(1, 2), batches).sum(0)
    found: Array = total.cpu().numpy()
    return found


@triton.jit
def _substitute(x, out, blocks, factors, rows, n, BLOCKS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inner = tl.arange(0, WIDTH)
    square = inner[:, None] * WIDTH + inner[None, :]
    done = ()
    for j in tl.static_range(BLOCKS):
        column = j * WIDTH + inner
        inside = (row[:, None] < rows) & (column[None, :] < n)
        place = row[:, None] * n + column[None, :]
        value = tl.load(x + place, mask=inside, other=0.0) * tl.load(factors + column, mask=column < n, other=0.0)[None, :]
        for i in tl.static_range(j):
            value -= tl.dot(done[i], tl.load(blocks + (i * BLOCKS + j) * WIDTH * WIDTH + square), out_dtype=tl.float64)
        value = tl.dot(value, tl.load(blocks + (j * BLOCKS + j) * WIDTH * WIDTH + square), out_dtype=tl.float64)
        tl.store(out + place, value, mask=inside)
        done = done + (value,)  # type: ignore[assignment]  # noqa: RUF005


def steps(r: Array, most: float) -> Array | None:
    """Returns the blocks of an upper triangle with its diagonal blocks inverted (blocks × blocks × width × width), of the largest width for
    which the rows of all of these are conditioned at most like `most`, or None.
    """
    if not np.diagonal(r).all():
        return None
    return next((cut for width in WIDTHS if (cut := _cut(r, width, most)) is not None), None)


def _cut(r: Array, width: int, most: float) -> Array | None:
    n = r.shape[0]
    count = -(-n // width)
    whole = np.eye(count * width)
    whole[:n, :n] = r
    cut = np.ascontiguousarray(whole.reshape(count, width, count, width).transpose(0, 2, 1, 3))
    diagonal = cut[np.arange(count), np.arange(count)]
    largest = np.abs(diagonal).max(axis=2, keepdims=True)
    inverses = np.triu(np.linalg.inv(diagonal))
    # The condition after each row is scaled to size one: the scaled rows' sums times those of the inverse with scaled columns.
    condition = np.abs(diagonal / largest).sum(axis=2).max(axis=1) * np.abs(inverses * largest.transpose(0, 2, 1)).sum(axis=2).max(axis=1)
    if not (condition <= most).all():
        return None
    cut[np.arange(count), np.arange(count)] = inverses
    return cut


def divide(x: Any, out: Any, blocks: Array, factors: Array | None = None) -> None:
    """Stores x·diag(factors)·r⁻¹ in `out`, which may be x itself, with r as `steps` cuts it."""
    rows, n = x.shape
    scale = np.ones(n) if factors is None else np.asarray(factors, np.float64)
    table = torch.from_numpy(np.concatenate([blocks.reshape(-1), scale])).to(x.device, non_blocking=True)
    _substitute[(triton.cdiv(rows, _ROWS),)](
        x, out, table, table[blocks.size :], rows, n, BLOCKS=blocks.shape[0], ROWS=_ROWS, WIDTH=blocks.shape[3], num_warps=_WARPS
    )
