"""Ozaki scheme II around one kernel of int8 products, for PyTorch tensors on a CUDA device: six launches, and 3 bytes read back.

Each matrix is read once for its scales and once for its residues. All int8 products run in one launch that writes the sums modulo their
modulus as bytes, a quarter of what int32 sums take, and the last kernel puts the bytes together by the remainder theorem. The meaning of
every step is in `ozaki2`.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from .cuda_kernels import _power

#: Rows and columns of a tile of the products, inner size of a step, tiles of rows that share their columns, stages and warps: the fastest
#: of those tried on an H200 (benchmarks/gpu/README.md).
TILE = (256, 128, 128, 16, 4, 8)
#: Bits of the flags: an infinity or NaN; a row whose squares may leave float64's range.
NOT_FINITE, FAR = 1, 2
#: Largest exponent whose squares stay far inside the range.
_FAR = 400
#: From this many moduli on, scaled numbers may need more than 63 bits.
_WIDE_FROM = 17


@triton.jit
def _statistics(x, most, squares, rows, inner, row_step, inner_step, chunk, ROWS: tl.constexpr, INNER: tl.constexpr):
    """Stores the largest bits of |x| and the sum of squares of one chunk of each row."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    start = tl.program_id(1) * chunk
    largest = tl.zeros((ROWS,), tl.int64)
    total = tl.zeros((ROWS,), tl.float64)
    for place in range(start, min(start + chunk, inner), INNER):
        column = place + tl.arange(0, INNER)
        inside = (row[:, None] < rows) & (column[None, :] < inner)
        value = tl.load(x + row[:, None].to(tl.int64) * row_step + column[None, :].to(tl.int64) * inner_step, mask=inside, other=0.0)
        bits = value.to(tl.int64, bitcast=True) & 0x7FFFFFFFFFFFFFFF
        largest = tl.maximum(largest, tl.max(bits, axis=1))
        total += tl.sum(value * value, axis=1)
    out = tl.program_id(1) * rows + row
    tl.store(most + out, largest, mask=row < rows)
    tl.store(squares + out, total, mask=row < rows)


@triton.jit
def _scales(most, squares, scale, flags, half, safe, far, rows, chunks, SIZE: tl.constexpr):
    """Stores the exponent that scales each row's norm to just below 2^half, and what stands in the way of it."""
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = row < rows
    largest = tl.zeros((SIZE,), tl.int64)
    total = tl.zeros((SIZE,), tl.float64)
    for chunk in range(chunks):
        largest = tl.maximum(largest, tl.load(most + chunk * rows + row, mask=inside, other=0))
        total += tl.load(squares + chunk * rows + row, mask=inside, other=0.0)
    exponent = (largest >> 52).to(tl.int32) - 1022
    not_finite = exponent > 1024
    too_far = (largest > 0) & ((exponent > far) | (exponent < -far))
    tl.atomic_or(flags, tl.max(not_finite.to(tl.int32) | (too_far.to(tl.int32) << 1), axis=0))
    logarithm = tl.extra.cuda.libdevice.log2(tl.where(total > 0, total, 1.0)) / 2
    tl.store(scale + row, tl.extra.cuda.libdevice.floor(half - logarithm - safe).to(tl.int32), mask=inside)


def scales(x: Any, half: float, safe: float, flags: Any) -> Any:
    """Returns the exponents (int32) that scale the norms of the rows of `x` to just below 2^half, and notes in `flags` what forbids it."""
    rows, inner = x.shape
    tall, wide = (8, 512) if x.stride(1) == 1 else (128, 32)
    chunk = 1024
    chunks = triton.cdiv(inner, chunk)
    most = torch.empty((chunks, rows), dtype=torch.int64, device=x.device)
    squares = torch.empty((chunks, rows), dtype=torch.float64, device=x.device)
    scale = torch.empty(rows, dtype=torch.int32, device=x.device)
    _statistics[(triton.cdiv(rows, tall), chunks)](
        x, most, squares, rows, inner, x.stride(0), x.stride(1), chunk, ROWS=tall, INNER=wide, num_warps=4
    )
    _scales[(triton.cdiv(rows, 256),)](most, squares, scale, flags, half, safe, _FAR, rows, chunks, SIZE=256)
    return scale


@triton.jit
def _residue_planes(
    x, scale, planes, rows, inner, width, row_step, inner_step, N: tl.constexpr, MODULI: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """Stores the symmetric residues of whole numbers: three pieces of 20 bits (with WIDE of a significand) meet in 32 bits."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * INNER + tl.arange(0, INNER)
    inside = (row[:, None] < rows) & (column[None, :] < inner)
    value = tl.load(x + row[:, None].to(tl.int64) * row_step + column[None, :].to(tl.int64) * inner_step, mask=inside, other=0.0)
    exponent = tl.load(scale + row, mask=row < rows, other=0).to(tl.int64)
    half = exponent >> 1
    value = value * _power(half)[:, None] * _power(exponent - half)[:, None]
    first = tl.zeros((ROWS, INNER), tl.int32)
    second = tl.zeros((ROWS, INNER), tl.int32)
    if WIDE:
        # Numbers from 2^53 on are a signed significand and a power of two of at most 2^24.
        bits = value.to(tl.int64, bitcast=True)
        step = ((bits >> 52) & 2047).to(tl.int32) - 1075
        large = step > 0
        size = (bits & 0xFFFFFFFFFFFFF) | (1 << 52)
        whole = tl.where(large, tl.where(value < 0, -size, size), tl.where(large, 0.0, value).to(tl.int64))
        step = tl.where(large, tl.minimum(step, 24), 0)
        first = tl.minimum(step, 12)
        second = step - first
    else:
        whole = value.to(tl.int64)
    lower = (whole & 0xFFFFF).to(tl.int32)
    middle = ((whole >> 20) & 0xFFFFF).to(tl.int32)
    upper = (whole >> 40).to(tl.int32)
    out = planes + row[:, None].to(tl.int64) * width + column[None, :]
    stored = (row[:, None] < rows) & (column[None, :] < width)
    plane = rows.to(tl.int64) * width
    for t in tl.static_range(N):
        # `upper` has 24 signed bits: the offset, a multiple of the modulus, keeps the sum positive and below 2^32.
        total = lower + middle * ((1 << 20) % MODULI[t]) + upper * ((1 << 40) % MODULI[t])
        shifted = total.to(tl.uint32, bitcast=True) + (((1 << 31) // MODULI[t]) * MODULI[t] + MODULI[t] // 2)
        rest = shifted % MODULI[t]
        if WIDE:
            rest = (rest + MODULI[t] - MODULI[t] // 2) % MODULI[t]
            rest = ((((rest << first.to(tl.uint32)) % MODULI[t]) << second.to(tl.uint32)) + MODULI[t] // 2) % MODULI[t]
        tl.store(out + t * plane, (rest.to(tl.int32) - MODULI[t] // 2).to(tl.int8), mask=stored)


def residues(x: Any, scale: Any, moduli: tuple[int, ...]) -> Any:
    """Returns the residues of x · 2^scale, cut off towards zero, by row for each modulus: moduli × rows × inner rounded up to 16, int8."""
    rows, inner = x.shape
    width = triton.cdiv(inner, 16) * 16
    planes = torch.empty((len(moduli), rows, width), dtype=torch.int8, device=x.device)
    by_row = x.stride(1) == 1
    tile = (8, 256) if by_row else (32, 64)
    grid = (triton.cdiv(rows, tile[0]), triton.cdiv(width, tile[1]))
    _residue_planes[grid](
        x, scale, planes, rows, inner, width, x.stride(0), x.stride(1), N=len(moduli), MODULI=moduli, WIDE=len(moduli) >= _WIDE_FROM,
        ROWS=tile[0], INNER=tile[1], num_warps=4,
    )  # fmt: skip
    return planes


@triton.jit
def _products(
    a, b, out, table, rows, columns, inner, width, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Stores a_t·b_tᵀ modulo the t-th modulus for one tile: the programs of one modulus follow those of the one before."""
    down, across = tl.cdiv(rows, BM), tl.cdiv(columns, BN)
    t = tl.program_id(0) // (down * across)
    tile = tl.program_id(0) % (down * across)
    group = tile // (GROUP * across)
    tall = tl.minimum(down - group * GROUP, GROUP)
    m = (group * GROUP + (tile % (GROUP * across)) % tall) * BM
    n = (tile % (GROUP * across)) // tall * BN
    total = tl.zeros((BM, BN), tl.int32)
    for k in range(0, inner, BK):
        left = a.load([t * rows + m, k])
        right = b.load([t * columns + n, k])
        total = tl.dot(left, right.T, total, out_dtype=tl.int32)
    modulus = tl.load(table + t * 3).to(tl.uint32)
    magic = tl.load(table + t * 3 + 1).to(tl.uint32)
    shifted = total.to(tl.uint32, bitcast=True) + tl.load(table + t * 3 + 2).to(tl.uint32)
    # The quotient is exact or one too small, as `magic` is 2^32 divided by the modulus and rounded down.
    rest = shifted - tl.umulhi(shifted, tl.broadcast_to(magic, (BM, BN))) * modulus
    rest = tl.where(rest >= modulus, rest - modulus, rest)
    row, column = m + tl.arange(0, BM), n + tl.arange(0, BN)
    place = out + (t.to(tl.int64) * rows + row[:, None]) * width + column[None, :]
    tl.store(place, rest.to(tl.uint8), mask=(row[:, None] < rows) & (column[None, :] < width))


@functools.lru_cache(maxsize=64)
def _table(moduli: tuple[int, ...], device: Any) -> Any:
    """Returns for each modulus itself, 2^32 over it, and a multiple of it near 2^31 that makes every int32 sum positive."""
    return torch.tensor([[p, (1 << 32) // p, -(-(1 << 31) // p) * p] for p in moduli], dtype=torch.int64, device=device)


def products(left: Any, right: Any, moduli: tuple[int, ...], tile: tuple[int, ...] = TILE) -> Any:
    """Returns a·b modulo each modulus: moduli × rows × columns rounded up to 16, uint8, from residues as `residues` gives them."""
    count, rows, inner = left.shape
    columns = right.shape[1]
    bm, bn, bk, group, stages, warps = tile
    width = triton.cdiv(columns, 16) * 16
    out = torch.empty((count, rows, width), dtype=torch.uint8, device=left.device)
    a = TensorDescriptor.from_tensor(left.view(count * rows, inner), [bm, bk])
    b = TensorDescriptor.from_tensor(right.view(count * columns, inner), [bn, bk])
    grid = (triton.cdiv(rows, bm) * triton.cdiv(columns, bn) * count,)
    _products[grid](
        a, b, out, _table(moduli, left.device), rows, columns, inner, width, BM=bm, BN=bn, BK=bk, GROUP=group,
        num_stages=stages, num_warps=warps,
    )  # fmt: skip
    return out


@triton.jit
def _join(
    parts, constants, row_scale, column_scale, product, rows, columns, width, N: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Stores the numbers whose residues are given, unscaled: Σ residue · weight modulo the product of the moduli."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    inside = column < columns
    plane = rows.to(tl.int64) * width
    upper = tl.zeros((SIZE,), tl.float64)
    lower = tl.zeros((SIZE,), tl.float64)
    for t in tl.static_range(N):
        rest = tl.load(parts + t * plane + row * width + column, mask=inside, other=0).to(tl.float64)
        upper += rest * tl.load(constants + t)
        lower += rest * tl.load(constants + N + t)
    times = tl.extra.cuda.libdevice.rint((upper + lower) * tl.load(constants + 2 * N + 2))
    value = (upper - times * tl.load(constants + 2 * N)) + (lower - times * tl.load(constants + 2 * N + 1))
    exponent = -tl.load(row_scale + row).to(tl.int64) - tl.load(column_scale + column, mask=inside, other=0).to(tl.int64)
    half = exponent >> 1
    tl.store(product + row * columns + column, value * _power(half) * _power(exponent - half), mask=inside)


@functools.lru_cache(maxsize=64)
def _constants(weights: Any, device: Any) -> Any:
    values = [*weights.high, *weights.low, weights.product_high, weights.product_low, 1 / weights.product]
    return torch.tensor(values, dtype=torch.float64, device=device)


def join(parts: Any, weights: Any, row_scale: Any, column_scale: Any) -> Any:
    """Returns the product (rows × columns, float64) from its residues, by the remainder theorem, unscaled."""
    count, rows, width = parts.shape
    columns = column_scale.shape[0]
    product = torch.empty((rows, columns), dtype=torch.float64, device=parts.device)
    _join[(rows, triton.cdiv(columns, 1024))](
        parts, _constants(weights, parts.device), row_scale, column_scale, product, rows, columns, width, N=count, SIZE=1024
    )
    return product


def scaled_product(a: Any, b: Any, rows: Any, columns: Any, moduli: tuple[int, ...], weights: Any) -> Any:
    """Returns a·b with the exponents that scale the rows of a and the columns of b."""
    parts = products(residues(a, rows, moduli), residues(b.T, columns, moduli), moduli)
    return join(parts, weights, rows, columns)


def product(a: Any, b: Any, moduli: tuple[int, ...], weights: Any, half: float, safe: float) -> tuple[Any, int]:
    """Returns a·b, and the flags that say whether it can be trusted; they are read when all is on its way, so that nothing waits.

    The launches of small products are recorded, because they take the host longer than the device.
    """
    with torch.cuda.device(a.device):
        if _small(a, b) and not torch.cuda.is_current_stream_capturing():
            with _lock:
                recording = _recording(a, b, moduli, weights, half, safe)
                if recording is not None:
                    return recording.replay(a, b)
        flags = torch.zeros(1, dtype=torch.int32, device=a.device)
        return _launched(a, b, flags, moduli, weights, half, safe), int(flags.item())


def _launched(a: Any, b: Any, flags: Any, moduli: tuple[int, ...], weights: Any, half: float, safe: float) -> Any:
    return scaled_product(a, b, scales(a, half, safe, flags), scales(b.T, half, safe, flags), moduli, weights)


def _small(a: Any, b: Any) -> bool:
    most = max(a.numel(), b.numel(), a.shape[0] * b.shape[1])
    return bool(most <= RECORDED and most * _BYTES * _PART <= torch.cuda.get_device_properties(a.device).total_memory)


class _Recording:
    """The launches of one product as a CUDA graph, with places of its own for the factors and the product."""

    def __init__(self, a: Any, b: Any, moduli: tuple[int, ...], weights: Any, half: float, safe: float) -> None:
        self._a, self._b = torch.zeros_like(a), torch.zeros_like(b)
        self._flags = torch.zeros(1, dtype=torch.int32, device=a.device)
        # Whatever is still to be compiled for these places cannot be compiled while recording.
        _launched(self._a, self._b, self._flags, moduli, weights, half, safe)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._flags.zero_()
            self._product = _launched(self._a, self._b, self._flags, moduli, weights, half, safe)

    def replay(self, a: Any, b: Any) -> tuple[Any, int]:
        """Returns the product and the flags. Reading these waits, so that no other stream finds the places in use."""
        self._a.copy_(a)
        self._b.copy_(b)
        self._graph.replay()
        found = self._product.clone()
        return found, int(self._flags.item())


#: The most elements of a matrix whose product is recorded, how often a product is seen before, and how many recordings are kept.
RECORDED, _SEEN, _KEPT = 1 << 22, 2, 4
#: Bytes that a recording holds for each element, with residues, factors and product, and the part of the device's memory that it may take.
_BYTES, _PART = 70, 100
_lock = threading.Lock()
#: By what decides the launches, the oldest first: how often they were seen, or their recording.
_recordings: OrderedDict[Any, int | _Recording] = OrderedDict()


def _recording(a: Any, b: Any, moduli: tuple[int, ...], weights: Any, half: float, safe: float) -> _Recording | None:
    """Returns the recording of such a product from its third call on, because recording pays only for what is called again."""
    key = a.device, a.shape, a.stride(), b.shape, b.stride(), moduli, half
    found = _recordings.pop(key, 0)
    if isinstance(found, int) and found < _SEEN:
        found += 1
    elif isinstance(found, int):
        try:
            found = _Recording(a, b, moduli, weights, half, safe)
        except torch.cuda.OutOfMemoryError:
            found = 0
    _recordings[key] = found
    while len(_recordings) > _KEPT:
        _recordings.popitem(last=False)
    return None if isinstance(found, int) else found
