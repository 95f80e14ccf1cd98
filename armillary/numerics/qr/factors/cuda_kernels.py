"""Triton kernels for tall QR on one CUDA device: passes over the rows, and programs of their own for the small triangles.

Matrices are row-major float64. Small ones are padded to N×N, with N = 16, 32 or 64 and ones on the padded diagonal. Rows are divided by a
triangle in blocks of 16 columns, of which the diagonal ones are multiplied with as inverses. No kernel adds atomically, so that every run
gives the same bits.
"""

# mypy: disable-error-code="assignment, misc"
# Tuples of tiles grow in loops that the compiler unrolls.

from __future__ import annotations

import triton
import triton.language as tl

#: Columns of a block of a triangle.
WIDTH = 16


@triton.jit
def _beside(a, b, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    return tl.reshape(tl.permute(tl.join(a, b), (0, 2, 1)), (ROWS, 2 * COLUMNS))


@triton.jit(do_not_specialize=["rows", "each"])
def gram_rows(x, partial, rows, n, each, N: tl.constexpr, ROWS: tl.constexpr):
    """Stores one partial sum of xᵀx per program."""
    column = tl.arange(0, N)
    row = tl.arange(0, ROWS)
    offset = row[:, None] * n + column[None, :]
    total = tl.zeros((N, N), tl.float64)
    first = tl.program_id(0).to(tl.int64) * ROWS
    tile = tl.load(x + first * n + offset, mask=(first + row < rows)[:, None] & (column < n)[None, :], other=0.0)
    for _ in range(each):
        # The next tile is on its way while this one is multiplied.
        first += tl.num_programs(0) * ROWS
        ahead = tl.load(x + first * n + offset, mask=(first + row < rows)[:, None] & (column < n)[None, :], other=0.0)
        total = tl.dot(tl.trans(tile), tile, total, out_dtype=tl.float64)
        tile = ahead
    tl.store(partial + tl.program_id(0) * N * N + column[:, None] * N + column[None, :], total)


@triton.jit
def _strips(x, first, rows, n, offset, row, inner, BLOCKS: tl.constexpr, WIDTH: tl.constexpr):
    there = (first + row < rows)[:, None]
    strips = ()
    for j in tl.static_range(BLOCKS):
        inside = there & (j * WIDTH + inner < n)[None, :]
        strips = strips + (tl.load(x + first * n + offset + j * WIDTH, mask=inside, other=0.0),)  # noqa: RUF005
    return strips


@triton.jit(do_not_specialize=["rows", "each"])
def divide_rows(
    x, out, triangle, inverses, partial, rows, n, each, GRAM: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    """Stores x·r⁻¹ in `out`, which may be x, and with GRAM one partial sum of the answer's Gram matrix per program."""
    N: tl.constexpr = BLOCKS * WIDTH
    inner = tl.arange(0, WIDTH)
    row = tl.arange(0, ROWS)
    offset = row[:, None] * n + inner[None, :]
    total = tl.zeros((N, N), tl.float64)
    first = tl.program_id(0).to(tl.int64) * ROWS
    given = _strips(x, first, rows, n, offset, row, inner, BLOCKS, WIDTH)
    for _ in range(each):
        there = (first + row < rows)[:, None]
        done = ()
        for j in tl.static_range(BLOCKS):
            value = given[j]
            for i in tl.static_range(j):
                block = tl.load(triangle + (i * WIDTH + inner)[:, None] * N + (j * WIDTH + inner)[None, :])
                value -= tl.dot(done[i], block, out_dtype=tl.float64)
            inverse = tl.load(inverses + j * WIDTH * WIDTH + inner[:, None] * WIDTH + inner[None, :])
            value = tl.dot(value, inverse, out_dtype=tl.float64)
            tl.store(out + first * n + offset + j * WIDTH, value, mask=there & (j * WIDTH + inner < n)[None, :])
            done = done + (value,)  # noqa: RUF005
        # The next tile is on its way while this one is multiplied.
        first += tl.num_programs(0) * ROWS
        given = _strips(x, first, rows, n, offset, row, inner, BLOCKS, WIDTH)
        if GRAM:
            if BLOCKS == 4:
                left = _beside(done[0], done[1], ROWS, WIDTH)
                right = _beside(done[2], done[3], ROWS, WIDTH)
                tile = _beside(left, right, ROWS, 2 * WIDTH)
            elif BLOCKS == 2:
                tile = _beside(done[0], done[1], ROWS, WIDTH)
            else:
                tile = done[0]
            total = tl.dot(tl.trans(tile), tile, total, out_dtype=tl.float64)
    if GRAM:
        column = tl.arange(0, N)
        tl.store(partial + tl.program_id(0) * N * N + column[:, None] * N + column[None, :], total)


@triton.jit(do_not_specialize=["count"])
def added(partial, gram, count, SIZE: tl.constexpr, CHUNK: tl.constexpr, TOGETHER: tl.constexpr):
    """Stores the sum of `count` partial sums of SIZE words, of which each program adds CHUNK words in a fixed order."""
    word = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    number = tl.arange(0, TOGETHER)
    total = tl.zeros((TOGETHER, CHUNK), tl.float64)
    for first in range(0, count, TOGETHER):
        total += tl.load(partial + (first + number)[:, None] * SIZE + word[None, :], mask=(first + number < count)[:, None], other=0.0)
    tl.store(gram + word, tl.sum(total, axis=0))


@triton.jit
def _invert(triangle, inverses, conditions, N: tl.constexpr, WIDTH: tl.constexpr):
    """Stores the inverses of the diagonal blocks, and how each is conditioned after columns and then rows are scaled to size one."""
    BLOCKS: tl.constexpr = N // WIDTH
    block = tl.arange(0, BLOCKS)[:, None, None]
    i = tl.arange(0, WIDTH)[None, :, None]
    j = tl.arange(0, WIDTH)[None, None, :]
    given = tl.load(triangle + (block * WIDTH + i) * N + block * WIDTH + j)
    left = tl.where(i == j, 1.0, 0.0) + tl.zeros((BLOCKS, WIDTH, WIDTH), tl.float64)
    found = tl.zeros((BLOCKS, WIDTH, WIDTH), tl.float64)
    # Row k of the inverse is known once the rows below it are subtracted.
    for step in range(WIDTH):
        k = WIDTH - 1 - step
        column = tl.sum(tl.where(j == k, given, 0.0), axis=2)[:, :, None]
        pivot = tl.sum(tl.where((i == k) & (j == k), given, 0.0), axis=2)
        pivot = tl.sum(pivot, axis=1)[:, None, None]
        row = tl.sum(tl.where(i == k, left, 0.0), axis=1)[:, None, :] / pivot
        found = tl.where(i == k, row, found)
        left -= tl.where(i < k, column, 0.0) * row
    tl.store(inverses + block * WIDTH * WIDTH + i * WIDTH + j, found)
    # A scaled column of r is a scaled column of x, whose digits do not change; so the condition is that of a block with scaled columns.
    whole = tl.load(triangle + tl.arange(0, N)[None, :, None] * N + block * WIDTH + j)
    scale = tl.max(tl.abs(whole), axis=1)
    size = tl.abs(given) / scale[:, None, :]
    largest = tl.max(size, axis=2)
    sums = tl.sum(size, axis=2) / largest
    others = tl.sum(tl.abs(found) * largest[:, None, :], axis=2) * scale
    tl.store(conditions + tl.arange(0, BLOCKS), tl.max(sums, axis=1) * tl.max(others, axis=1))


@triton.jit(do_not_specialize=["some"])
def sampled(x, chosen, sample, some, n, LANES: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr):
    """Stores `some` rows of x, with zeros around them, as groups of N×LANES in which they are columns."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, N)
    place = tl.load(chosen + row, mask=row < some, other=0)
    inside = (row < some)[:, None] & (column < n)[None, :]
    given = tl.load(x + place[:, None] * n + column[None, :], mask=inside, other=0.0)
    tl.store(sample + ((row // LANES) * N * LANES + row % LANES)[:, None] + column[None, :] * LANES, given)


@triton.jit(do_not_specialize=["some"])
def upper_of_sample(
    sample, triangle, inverses, conditions, some, n, GROUPS: tl.constexpr, LANES: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr
):
    """Stores U of the LU with partial pivoting of `some` rows, with a positive diagonal, and what `_invert` finds; one program."""
    # In each group the compiler lays rows along the lanes of a warp and deals columns among warps, which makes both sums below cheap.
    place = tl.arange(0, N)
    lane = tl.arange(0, LANES)
    work = ()
    free = ()
    for g in tl.static_range(GROUPS):
        work = work + (tl.load(sample + (g * N + place)[:, None] * LANES + lane[None, :]),)  # noqa: RUF005
        free = free + (g * LANES + lane < some,)  # noqa: RUF005
    for k in range(n):
        lines = ()
        sizes = tl.full((LANES,), -1.0, tl.float64)
        for g in tl.static_range(GROUPS):
            line = tl.sum(tl.where((place == k)[:, None], work[g], 0.0), axis=0)
            sizes = tl.maximum(sizes, tl.where(free[g], tl.abs(line), -1.0))
            lines = lines + (line,)  # noqa: RUF005
        most = tl.max(sizes, axis=0)
        names = tl.full((LANES,), GROUPS * LANES, tl.int32)
        for g in tl.static_range(GROUPS):
            names = tl.minimum(names, tl.where(free[g] & (tl.abs(lines[g]) == most), g * LANES + lane, GROUPS * LANES))
        best = tl.min(names, axis=0)
        pivots = tl.zeros((LANES,), tl.float64)
        uppers = tl.zeros((N, LANES), tl.float64)
        for g in tl.static_range(GROUPS):
            here = g * LANES + lane == best
            pivots = tl.where(here, lines[g], pivots)
            uppers = tl.where(here[None, :], work[g], uppers)
        pivot = tl.sum(pivots, axis=0)
        upper = tl.sum(uppers, axis=1)
        tl.store(triangle + k * N + place, tl.where(place >= k, upper, 0.0) * tl.where(pivot < 0, -1.0, 1.0))
        upper = tl.where(place > k, upper, 0.0)
        reciprocal = 1.0 / pivot
        left = ()
        kept = ()
        for g in tl.static_range(GROUPS):
            still = free[g] & (g * LANES + lane != best)
            left = left + (work[g] - upper[:, None] * tl.where(still, lines[g] * reciprocal, 0.0)[None, :],)  # noqa: RUF005
            kept = kept + (still,)  # noqa: RUF005
        work = left
        free = kept
    for k in range(n, N):
        tl.store(triangle + k * N + place, tl.where(place == k, 1.0, 0.0))
    tl.debug_barrier()
    _invert(triangle, inverses, conditions, N, WIDTH)


@triton.jit
def cholesky(gram, triangle, inverses, diagonal, conditions, n, N: tl.constexpr, WIDTH: tl.constexpr):
    """Stores R with gram = RᵀR (no numbers from where a pivot is not positive), gram's diagonal, and what `_invert` finds; one program."""
    row = tl.arange(0, N)[:, None]
    column = tl.arange(0, N)
    work = tl.load(gram + row * N + column[None, :])
    tl.store(diagonal + column, tl.sum(tl.where(row == column[None, :], work, 0.0), axis=0))
    for k in range(n):
        line = tl.sum(tl.where(row == k, work, 0.0), axis=0)
        pivot = tl.sum(tl.where(column == k, line, 0.0), axis=0)
        root = tl.sqrt(pivot)
        line = tl.where(column > k, line * (1.0 / root), tl.where(column == k, root, 0.0))
        tl.store(triangle + k * N + column, line)
        work -= line[:, None] * line[None, :]
    for k in range(n, N):
        tl.store(triangle + k * N + column, tl.where(column == k, 1.0, 0.0))
    tl.debug_barrier()
    _invert(triangle, inverses, conditions, N, WIDTH)
