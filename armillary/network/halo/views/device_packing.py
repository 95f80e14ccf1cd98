"""The same packing on a GPU: one Triton launch copies the regions of all fields, whose addresses stand in a table on the device.

A row of the table is (address of the region's first element, elements per plane, per row of the region, its columns, strides of planes and
rows in elements, start in the buffer), all as 64-bit integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

_BLOCK = 256
Array = Any


@triton.jit
def move_kernel(table, buffer, UNPACK: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Copies one block of one region, to the buffer or from it."""
    row = table + tl.program_id(0) * 7
    planes, columns = tl.load(row + 1), tl.load(row + 3)
    count = planes * tl.load(row + 2) * columns
    i = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    line = i // columns
    per_plane = tl.load(row + 2)
    place = (line // per_plane) * tl.load(row + 4) + (line % per_plane) * tl.load(row + 5) + i % columns
    field = tl.load(row).to(tl.pointer_type(buffer.dtype.element_ty)) + place
    packed = buffer + tl.load(row + 6) + i
    if UNPACK:
        tl.store(field, tl.load(packed, mask=inside), mask=inside)
    else:
        tl.store(packed, tl.load(field, mask=inside), mask=inside)


def movers(regions: Sequence[tuple[Array, int]], buffer: Array, unpack: bool) -> Callable[[], None]:
    """Return the launch that packs (region, start in the buffer) pairs, or unpacks them; its table and grid are made here, once."""
    rows, most = [], 1
    for region, start in regions:
        shape = (1,) * (3 - region.ndim) + tuple(region.shape)
        steps = (0,) * (3 - region.ndim) + tuple(region.stride())
        rows.append([region.data_ptr(), shape[0], shape[1], shape[2], steps[0], steps[1], start])
        most = max(most, region.numel())
    table = torch.tensor(rows, dtype=torch.int64, device=buffer.device)
    grid = (len(rows), -(-most // _BLOCK))
    launch = move_kernel[grid]

    def moved() -> None:
        launch(table, buffer, UNPACK=unpack, BLOCK=_BLOCK)

    return moved
