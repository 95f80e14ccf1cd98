"""The steps around the int8 products as Triton kernels, for PyTorch tensors on a CUDA device: each reads its input once.

They give the same bits as the array code of `exponents`, `slices` and `digit_products`, which says what they mean.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from .slices import lowest_digit

_TILE = 64
#: The exponent field of infinities and NaNs, and what stands for zeros.
_SPECIAL = 2047
_NOTHING = -(1 << 20)


def available(*tensors: Any) -> bool:
    """Says whether these are float64 tensors on a CUDA device."""
    return all(isinstance(x, torch.Tensor) and x.device.type == "cuda" and x.dtype == torch.float64 for x in tensors)


@triton.jit
def _extremes(x, high, low, rows, inner, blocks, row_step, inner_step, BLOCK: tl.constexpr, TILE: tl.constexpr):
    """Returns largest and smallest exponent of each block of each row; 1024 marks what is not finite."""
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    block = tl.program_id(1)
    column = block * BLOCK + tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < inner)
    bits = tl.load(x + row[:, None].to(tl.int64) * row_step + column[None, :].to(tl.int64) * inner_step, mask=inside, other=0)
    field = ((bits >> 52) & 2047).to(tl.int32)
    size = bits & 0x7FFFFFFFFFFFFFFF
    # A subnormal's exponent is that of its highest bit; float64 conversion of its bits finds it.
    small = size.to(tl.float64).to(tl.int64, bitcast=True)
    exponent = tl.where(field == 0, ((small >> 52) & 2047).to(tl.int32) - 1023 - 1074, field - 1023)
    exponent = tl.where(size == 0, -(1 << 20), exponent)
    largest = tl.max(tl.where(inside, exponent, -(1 << 20)), axis=1)
    smallest = tl.min(tl.where(inside, exponent, 1 << 20), axis=1)
    place = row.to(tl.int64) * blocks + block
    tl.store(high + place, largest, mask=row < rows)
    tl.store(low + place, smallest, mask=row < rows)


@triton.jit
def _spans(a_high, a_low, b_high, b_low, alpha, beta, found, rows, columns, blocks, TILE: tl.constexpr):
    """Returns found[0]: the widest span; found[1]: whether zeros hide some dot product. Blocks come first in all four tables."""
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    in_i, in_j = i < rows, j < columns
    best = tl.full((TILE, TILE), -(1 << 21), tl.int32)
    for block in range(blocks):
        ah = tl.load(a_high + block * rows + i, mask=in_i, other=-(1 << 20))
        al = tl.load(a_low + block * rows + i, mask=in_i, other=-(1 << 20))
        bh = tl.load(b_high + block * columns + j, mask=in_j, other=-(1 << 20))
        bl = tl.load(b_low + block * columns + j, mask=in_j, other=-(1 << 20))
        best = tl.maximum(best, tl.maximum(ah[:, None] + bl[None, :], al[:, None] + bh[None, :]))
    top = tl.load(alpha + i, mask=in_i, other=-(1 << 20))[:, None] + tl.load(beta + j, mask=in_j, other=-(1 << 20))[None, :]
    there = top > -(1 << 19)
    hidden = there & (best < -(1 << 19))
    wide = tl.where(there & ~hidden, top - best + 1, 0)
    tl.atomic_max(found, tl.max(tl.max(wide, axis=1), axis=0))
    tl.atomic_max(found + 1, tl.max(tl.max(hidden.to(tl.int32), axis=1), axis=0))


def look(a: Any, b: Any, block: int) -> tuple[bool, int, bool]:
    """Returns whether all is finite, the span of a·b from blocks of `block`, and whether zeros hid a dot product; reads back 12 bytes."""
    tables = []
    for x in (a, b.T):
        rows, inner = x.shape
        blocks = triton.cdiv(inner, block)
        high = torch.empty((rows, blocks), dtype=torch.int32, device=x.device)
        low = torch.empty_like(high)
        width = triton.next_power_of_2(block)
        if width != block:
            raise ValueError("blocks are powers of two")
        tile = max(1, min(_TILE, 4096 // block))
        grid = (triton.cdiv(rows, tile), blocks)
        _extremes[grid](x.view(torch.int64), high, low, rows, inner, blocks, x.stride(0), x.stride(1), BLOCK=block, TILE=tile)
        tables.append((high.amax(dim=1), high.T.contiguous(), low.T.contiguous()))
    (alpha, a_high, a_low), (beta, b_high, b_low) = tables
    found = torch.zeros(3, dtype=torch.int32, device=a.device)
    found[2] = torch.maximum(alpha.amax(), beta.amax())
    grid = (triton.cdiv(a.shape[0], _TILE), triton.cdiv(b.shape[1], _TILE))
    _spans[grid](a_high, a_low, b_high, b_low, alpha, beta, found, a.shape[0], b.shape[1], a_high.shape[0], TILE=_TILE)
    span, hidden, largest = found.tolist()
    return largest < 1024, span, bool(hidden)


@triton.jit
def _cut(x, scale, planes, rows, inner, row_step, inner_step, S: tl.constexpr, REVERSED: tl.constexpr, TILE: tl.constexpr):
    """Returns balanced digits of every number, written as rows × digits × inner."""
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = (row[:, None] < rows) & (column[None, :] < inner)
    bits = tl.load(x + row[:, None].to(tl.int64) * row_step + column[None, :].to(tl.int64) * inner_step, mask=inside, other=0)
    field = ((bits >> 52) & 2047).to(tl.int64)
    whole = (bits & 0xFFFFFFFFFFFFF) | tl.where(field == 0, 0, 1 << 52)
    whole = tl.where(bits < 0, -whole, whole)
    lowest = tl.load(scale + row, mask=row < rows, other=0).to(tl.int64)
    shift = tl.maximum(field, 1) - 1075 - lowest[:, None]
    carry = tl.zeros((TILE, TILE), tl.int64)
    out = planes + row[:, None].to(tl.int64) * (S * inner) + column[None, :]
    for place in tl.static_range(S):
        step = shift - 8 * place
        left = tl.minimum(tl.maximum(step, 0), 8)
        right = tl.minimum(tl.maximum(-step, 0), 63)
        digit = (whole << left) >> right
        if place < S - 1:
            digit = (digit & 255) + carry
            carry = (digit >= 128).to(tl.int64)
            digit = digit - 256 * carry
        else:
            digit = digit + carry
        plane = place if REVERSED else S - 1 - place
        tl.store(out + plane * inner, digit.to(tl.int8), mask=inside)


def cut(x: Any, s: int, top_first: bool) -> tuple[Any, Any]:
    """Returns digits of the rows of `x` (rows × s × inner), the highest first or last, and the exponents of the lowest digit."""
    rows, inner = x.shape
    largest = torch.linalg.vector_norm(x, ord=float("inf"), dim=1)
    scale = lowest_digit(largest, s, signed=False)
    planes = torch.empty((rows, s, inner), dtype=torch.int8, device=x.device)
    grid = (triton.cdiv(rows, _TILE), triton.cdiv(inner, _TILE))
    _cut[grid](
        x.view(torch.int64), scale, planes, rows, inner, x.stride(0), x.stride(1), S=s, REVERSED=not top_first, TILE=_TILE, num_warps=8
    )
    return planes, scale


@triton.jit
def _power(exponent):
    return ((exponent + 1023) << 52).to(tl.float64, bitcast=True)


@triton.jit
def _join(parts, row_scale, column_scale, product, rows, columns, S: tl.constexpr, BITS: tl.constexpr, SIZE: tl.constexpr):
    """Returns diagonals of digit products to float64: four to an int64, those in pairs of float64 from the smallest on."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    inside = column < columns
    plane = rows.to(tl.int64) * columns
    high = tl.zeros((SIZE,), tl.float64)
    low = tl.zeros((SIZE,), tl.float64)
    total = tl.zeros((SIZE,), tl.int64)
    for back in tl.static_range(S):
        # d = S − 1 − back; its group of four ends with min(4·(d // 4) + 3, S − 1) and is complete when d is its first.
        part = tl.load(parts + (S - 1 - back) * plane + row * columns + column, mask=inside, other=0).to(tl.int64)
        total += part << (BITS * (min((S - 1 - back) // 4 * 4 + 3, S - 1) - (S - 1 - back)))
        if (S - 1 - back) % 4 == 0:
            unit = _power(row * 0 - BITS * min(S - 1 - back + 3, S - 1))
            whole = total.to(tl.float64)
            rest = (total - whole.to(tl.int64)).to(tl.float64)
            term = whole * unit
            new = high + term
            part_of = new - high
            low = low + (((high - (new - part_of)) + (term - part_of)) + rest * unit)
            high = new
            total = tl.zeros((SIZE,), tl.int64)
    exponent = (
        tl.load(row_scale + row).to(tl.int64) + tl.load(column_scale + column, mask=inside, other=0).to(tl.int64) + 2 * BITS * (S - 1)
    )
    exponent = tl.minimum(tl.maximum(exponent, -2000), 2000)
    half = exponent >> 1
    value = (high + low) * _power(half) * _power(exponent - half)
    tl.store(product + row * columns + column, value, mask=inside)


def multiply(left: Any, left_scale: Any, right: Any, right_scale: Any, bits: int) -> Any:
    """Returns the product of digits as `cut` lays them out, `left` highest first, `right` highest last; (s·inner) must fit int32 sums."""
    rows, s, inner = left.shape
    columns = right.shape[0]
    a, b = _padded(left), _padded(right)
    parts = torch.empty((s, a.shape[0], b.shape[0]), dtype=torch.int32, device=left.device)
    inner = a.shape[2]
    a, b = a.reshape(a.shape[0], s * inner), b.reshape(b.shape[0], s * inner)
    for d in range(s):
        torch._int_mm(a[:, : (d + 1) * inner], b[:, (s - 1 - d) * inner :].T, out=parts[d])
    if parts.shape[1:] != (rows, columns):
        parts = parts[:, :rows, :columns].contiguous()
    product = torch.empty((rows, columns), dtype=torch.float64, device=left.device)
    _join[(rows, triton.cdiv(columns, 1024))](parts, left_scale, right_scale, product, rows, columns, S=s, BITS=bits, SIZE=1024)
    return product


def _padded(planes: Any) -> Any:
    """Pads with zeros to sizes that the int8 units take: more than 16 rows, rows and inner sizes in multiples of 16."""
    rows, _, inner = planes.shape
    more_rows, more_inner = max(32 - rows, -rows % 16), -inner % 16
    return torch.nn.functional.pad(planes, (0, more_inner, 0, 0, 0, more_rows)) if more_rows or more_inner else planes
