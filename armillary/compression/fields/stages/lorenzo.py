"""The stage `lorenzo` predicts a quantised value from its neighbours on the corner of a cube, all of which are quantised beforehand.

This is dual quantisation (cuSZ, PACT 2020): q = rint(x/(2ε)) comes first, then the residual d = q − Σ neighbours with the signs of
inclusion and exclusion, which is one difference along each axis. Both are free of loop-carried dependencies; the inverse is one prefix sum
along each axis, and x' = 2ε·q.

Layout. `codes`: uint16, one per value in C order; d + radius where −radius < d < radius, else 0. `outliers`: the residuals d of the zero
codes in their order, int32 (int64 where `quantise.wide`), modulo 2^32 (2^64); their places are those of the zero codes and are not
stored (our design). `raw_index`: uint32 places of violators, rising; `raw`: their bits. `block` restarts prediction at multiples of 256
in 1-D, 16 in 2-D, 8 in 3-D along each axis; the order of codes is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop
from armillary.parameters import parameter

from .quantise import NARROW, WIDE, collect_violators, quantise_row, room, wide
from .slabs import each, shares
from .stage import Context, Port, Stage

BLOCKS = {1: (1 << 62, 1 << 62, 256), 2: (1 << 62, 16, 16), 3: (8, 8, 8)}
NO_BLOCKS = (1 << 62, 1 << 62, 1 << 62)


@dataclass(frozen=True)
class Lorenzo(Stage):
    """Dual quantisation and Lorenzo prediction in 1, 2 or 3 dimensions; a fourth, slowest dimension is a batch."""

    radius: int = parameter(512, "residuals below it are codes, others outliers", range=(2, 32768))
    block: bool = parameter(False, "restart prediction in blocks that decode independently")

    name = "lorenzo"
    inputs = (Port("data", "float"), Port("bound", "float64"))
    outputs = (Port("codes", "codes"), Port("outliers", "ints"), Port("raw_index", "index"), Port("raw", "float"))

    def forward(self, ctx: Context, *, data: np.ndarray, bound: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns codes, residuals that have no code, and violators."""
        batch, z, y, x = ctx.shape
        integer, limit = (np.int64, WIDE) if wide(bound) else (np.int32, NARROW)
        eps, blocks = float(bound[0]), self._blocks(ctx)
        inverse = 0.5 / eps
        flat = data.reshape(batch * z * y, x)
        codes = np.empty(data.size, np.uint16)
        grid = codes.reshape(flat.shape)
        like = np.zeros(0, integer)

        if flat.shape[0] == 1:

            def part(start: int, stop: int) -> tuple:
                return _forward(flat, grid, 1, 1, 0, 1, start, stop, eps, inverse, limit, self.radius, *blocks, like)

            found = each(part, shares(x, ctx.threads, 1 << 14), ctx.threads)
        elif z > 1:

            def part(start: int, stop: int) -> tuple:
                return _forward(flat, grid, z, y, start * y, stop * y, 0, x, eps, inverse, limit, self.radius, *blocks, like)

            found = each(part, shares(batch * z, ctx.threads), ctx.threads)
        else:

            def part(start: int, stop: int) -> tuple:
                return _forward(flat, grid, 1, y, start, stop, 0, x, eps, inverse, limit, self.radius, *blocks, like)

            found = each(part, shares(batch * y, ctx.threads), ctx.threads)
        outliers, index, raw = (
            (np.concatenate([f[i] for f in found]) for i in range(3)) if found else (like, _index(), data[:0].reshape(-1))
        )
        return {"codes": codes, "outliers": outliers, "raw_index": index, "raw": raw}

    def inverse(  # type: ignore[override]
        self, ctx: Context, *, codes: np.ndarray, outliers: np.ndarray, raw_index: np.ndarray, raw: np.ndarray, bound: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Returns the values, within the bound."""
        integer = np.int64 if wide(bound) else np.int32
        check_codes(ctx, codes, outliers, integer)
        check_raw(ctx, raw_index, raw)
        batch, z, y, x = ctx.shape
        rows = batch * z * y
        out = np.empty((rows, x), raw.dtype)
        if not codes.size:
            return {"data": out.reshape(-1)}
        blocks = self._blocks(ctx)
        grid = codes.reshape(rows, x)
        sums = np.empty((rows, x), integer)
        width = 2.0 * float(bound[0])
        if rows == 1:
            parts = shares(x, ctx.threads, 1 << 14)
            zeros = each(lambda a, b: _zeros(codes[a:b]), parts, ctx.threads)
            if sum(zeros) != outliers.size:
                raise _mismatch(sum(zeros), outliers.size)
            starts = dict(zip(parts, np.concatenate([[0], np.cumsum(zeros)])[:-1], strict=True))
            each(lambda a, b: _along_x(grid, sums, outliers, starts[a, b], self.radius, 0, 1, a, b, blocks[2]), parts, ctx.threads)
            carry, carries = np.zeros(1, integer), {}
            with np.errstate(over="ignore"):
                for a, b in parts:
                    carries[a, b] = carry.copy()
                    restarted = (b - 1) // blocks[2] * blocks[2] >= a
                    carry = sums[0, b - 1 : b].copy() if restarted else carry + sums[0, b - 1 : b]
            each(lambda a, b: _carried(sums, out, a, b, carries[a, b], width, blocks[2]), parts, ctx.threads)
        else:
            parts = shares(rows, ctx.threads)
            zeros = each(lambda a, b: _zeros(codes[a * x : b * x]), parts, ctx.threads)
            if sum(zeros) != outliers.size:
                raise _mismatch(sum(zeros), outliers.size)
            starts = dict(zip(parts, np.concatenate([[0], np.cumsum(zeros)])[:-1], strict=True))
            each(lambda a, b: _along_x(grid, sums, outliers, starts[a, b], self.radius, a, b, 0, x, blocks[2]), parts, ctx.threads)
            each(lambda a, b: _along_yz(sums, out, z, y, a, b, width, blocks[0], blocks[1]), shares(x, ctx.threads, 16), ctx.threads)
        out.reshape(-1)[raw_index] = raw
        return {"data": out.reshape(-1)}

    def _blocks(self, ctx: Context) -> tuple[int, int, int]:
        return BLOCKS[ctx.dimensions] if self.block else NO_BLOCKS


def check_codes(ctx: Context, codes: np.ndarray, outliers: np.ndarray, integer: type, size: int | None = None) -> None:
    """Refuses codes and residuals that cannot be those of this chunk."""
    expected = ctx.size if size is None else size
    if codes.dtype != np.uint16 or codes.size != expected:
        raise InputError(f"codes: found {codes.size} of {codes.dtype}; expected {expected} of uint16")
    if outliers.dtype != integer:
        raise InputError(f"outliers: found {outliers.dtype}; expected {np.dtype(integer)}")


def check_raw(ctx: Context, raw_index: np.ndarray, raw: np.ndarray, size: int | None = None) -> None:
    """Refuses places of violators that are not in the chunk."""
    expected = ctx.size if size is None else size
    if raw_index.size != raw.size or (raw_index.size and int(raw_index.max()) >= expected):
        raise InputError(f"raw values: found {raw.size} with {raw_index.size} places; expected as many, below {expected}")


def _mismatch(zeros: int, outliers: int) -> InputError:
    return InputError(f"outliers: found {outliers}; expected {zeros}, one for each zero code")


def _index() -> np.ndarray:
    return np.zeros(0, np.uint32)


@loop
def _zeros(codes):
    count = 0
    for i in range(codes.size):
        count += np.int64(codes[i] == 0)
    return count


@loop
def _forward(x, codes, planes, rows, r0, r1, c0, c1, eps, inverse, limit, radius, bz, by, bx, like):
    # Rows r0..r1 of x (all rows of all planes), columns c0..c1. Differences along x, then y, then z: `above` keeps the row before,
    # differenced along x; `behind` the plane before, differenced along x and y. What comes before the slab is quantised again here.
    n = c1 - c0
    q = np.empty(n, like.dtype)
    across, residuals = np.empty(n, like.dtype), np.empty(n, like.dtype)
    above = np.zeros(n, like.dtype)
    behind = np.zeros((rows if planes > 1 else 1, n), like.dtype)
    outliers, found = np.empty(16, like.dtype), 0
    index, raw, spoilt = np.empty(16, np.uint32), np.empty(16, x.dtype), 0
    first = r0
    if planes > 1 and (r0 // rows) % planes != 0:
        first = r0 - rows
    elif planes == 1 and r0 % rows != 0:
        first = r0 - 1
    for r in range(first, r1):
        row, plane = r % rows, (r // rows) % planes
        bad = quantise_row(x[r, c0:c1], q, eps, inverse, limit)
        across[0] = q[0]
        if c0 > 0 and c0 % bx != 0:
            left = np.zeros(1, like.dtype)
            quantise_row(x[r, c0 - 1 : c0], left, eps, inverse, limit)
            across[0] = q[0] - left[0]
        for i in range(1, n):
            across[i] = q[i] - q[i - 1]
        if bx <= c1:
            for i in range(-(-c0 // bx) * bx, c1, bx):
                across[i - c0] = q[i - c0]
        if row % by == 0 or (r == first and planes == 1):
            above[:] = 0
        # The rows before the slab write to the place of its first row, which overwrites them.
        wanted = r >= r0
        depth = row if planes > 1 else 0
        if planes == 1 or plane % bz == 0 or not wanted:
            behind[depth] = 0
        outside = _code_row(across, above, behind[depth], residuals, codes[r if wanted else r0, c0:c1], radius, planes > 1)
        if not wanted:
            continue
        if outside:
            outliers = room(outliers, found, n)
            for i in range(n):
                if codes[r, c0 + i] == 0:
                    outliers[found] = residuals[i]
                    found += 1
        if bad:
            index, raw = room(index, spoilt, n), room(raw, spoilt, n)
            spoilt = collect_violators(x[r, c0:c1], r * x.shape[1] + c0, index, raw, spoilt, eps, inverse, limit)
    return outliers[:found], index[:spoilt], raw[:spoilt]


@loop
def _code_row(across, above, behind, residuals, codes, radius, deep):
    # Codes and residuals of a row, and whether one is an outlier; `above` becomes this row's difference along x, `behind` that
    # along x and y.
    shift = across.dtype.type(radius)
    outside = False
    for i in range(across.size):
        a = across[i]
        b = across.dtype.type(a - above[i])
        above[i] = a
        d = across.dtype.type(b - behind[i])
        behind[i] = b if deep else across.dtype.type(0)
        residuals[i] = d
        inside = (d > -shift) & (d < shift)
        codes[i] = np.uint16(across.dtype.type(d + shift) if inside else across.dtype.type(0))
        outside |= not inside
    return outside


@loop
def _along_x(codes, sums, outliers, taken, radius, r0, r1, c0, c1, bx):
    for r in range(r0, r1):
        start = c0
        while start < c1:
            stop = min(c1, (start // bx + 1) * bx)
            taken = _prefix_sum(codes[r, start:stop], sums[r, start:stop], outliers, taken, radius)
            start = stop


@loop
def _prefix_sum(codes, sums, outliers, taken, radius):
    total, shift = sums.dtype.type(0), sums.dtype.type(radius)
    for i in range(codes.size):
        code = codes[i]
        if code != 0:
            total = sums.dtype.type(total + (sums.dtype.type(code) - shift))
        else:
            total = sums.dtype.type(total + outliers[taken])
            taken += 1
        sums[i] = total
    return taken


@loop
def _carried(sums, out, c0, c1, carry, width, bx):
    # The carry reaches as far as the block that the part before was cut in.
    stop = min(c1, -(-c0 // bx) * bx) if bx < c1 else c1
    for c in range(c0, stop):
        out[0, c] = width * np.float64(sums.dtype.type(sums[0, c] + carry[0]))
    for c in range(stop, c1):
        out[0, c] = width * np.float64(sums[0, c])


@loop
def _along_yz(sums, out, planes, rows, c0, c1, width, bz, by):
    n = c1 - c0
    above = np.zeros(n, sums.dtype)
    behind = np.zeros((rows if planes > 1 else 1, n), sums.dtype)
    for r in range(sums.shape[0]):
        row, plane = r % rows, (r // rows) % planes
        if row % by == 0:
            above[:] = 0
        here, target = sums[r, c0:c1], out[r, c0:c1]
        if planes == 1:
            for i in range(n):
                total = sums.dtype.type(here[i] + above[i])
                above[i] = total
                target[i] = width * np.float64(total)
            continue
        was = behind[row]
        if plane % bz == 0:
            was[:] = 0
        for i in range(n):
            flat = sums.dtype.type(here[i] + above[i])
            above[i] = flat
            total = sums.dtype.type(was[i] + flat)
            was[i] = total
            target[i] = width * np.float64(total)
