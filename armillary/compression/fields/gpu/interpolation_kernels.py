"""Spline interpolation on a device, one launch per level and axis for all chunks, with the arithmetic of the host, bit for bit.

Every kernel runs over the *runs* of a batch: program (t, r) takes tile t of run r. A row of `jobs` says where a run's arrays start, and
`lattices` describes its points, the anchors in the first row and one pass in each further row (`interpolation.lattice_rows`). `facts` has
ε, 1/(2ε) and 2ε of each level, those of the anchors first. Launched with `enable_fp_fusion=False`, as `quantise_kernels`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .quantise_kernels import divided, less

#: Columns of `jobs` and `lattices`, and levels of `facts`.
JOB, ROW, LEVELS = tl.constexpr(10), tl.constexpr(24), tl.constexpr(18)


@triton.jit
def _number(row, column):
    return tl.load(row + column).to(tl.int32)


@triton.jit
def _points(row, i):
    """Returns the places of the points `i` of a lattice in their chunk, and their steps along z, y and x."""
    line = divided(i, tl.load(row + 17), _number(row, 18).to(tl.uint32))
    plane = divided(line, tl.load(row + 19), _number(row, 20).to(tl.uint32))
    item = divided(plane, tl.load(row + 21), _number(row, 22).to(tl.uint32))
    kx, ky, kz = i - line * _number(row, 13), line - plane * _number(row, 12), plane - item * _number(row, 11)
    z = _number(row, 5) + kz * _number(row, 8)
    y = _number(row, 6) + ky * _number(row, 9)
    x = _number(row, 7) + kx * _number(row, 10)
    return ((item * _number(row, 14) + z) * _number(row, 15) + y) * _number(row, 16) + x, kz, ky, kx


@triton.jit
def _guess(recon, job, row, i, valid):
    """Returns the places of points of a pass and their predictions from the points at ±s, ±3s (and −5s) along the axis."""
    place, kz, ky, kx = _points(row, i)
    axis, s = _number(row, 2), _number(row, 3)
    k = tl.where(axis == 3, kx, tl.where(axis == 2, ky, kz))
    nz, ny, nx = _number(row, 14), _number(row, 15), _number(row, 16)
    n = tl.where(axis == 3, nx, tl.where(axis == 2, ny, nz))
    reach = s * tl.where(axis == 3, 1, tl.where(axis == 2, nx, nx * ny))
    j = s + 2 * s * k
    linear = ((tl.load(job + 4) >> tl.load(row + 4)) & 1) != 0
    extended = tl.load(job + 5) != 0
    before, after, beyond = j >= 3 * s, j + s < n, j + 3 * s < n
    # At the end of a line: copied, or extrapolated from two or three points.
    past = (after == 0) & before & extended
    curved = past & (j >= 5 * s) & (linear == 0)
    cubic = after & before & beyond & (linear == 0)
    first = after & (before == 0) & beyond & (linear == 0)
    last = after & before & (beyond == 0) & (linear == 0)
    w0 = tl.where(cubic, -0.0625, tl.where(last, -0.125, tl.where(curved, -1.25, tl.where(past, -0.5, 0.0))))
    w1 = tl.where(cubic, 0.5625, tl.where(last, 0.75, tl.where(first, 0.375, 0.5)))
    w1 = tl.where(after, w1, tl.where(curved, 1.875, tl.where(past, 1.5, 1.0)))
    w2 = tl.where(cubic, 0.5625, tl.where(last, 0.375, tl.where(first, 0.75, tl.where(after, 0.5, 0.0))))
    w3 = tl.where(cubic, -0.0625, tl.where(first, -0.125, tl.where(curved, 0.375, 0.0)))
    p0 = place - tl.where(w0 != 0.0, 3 * reach, reach)
    p2 = place + tl.where(after, reach, -reach)
    p3 = place + tl.where(w3 == 0.0, -reach, tl.where(curved, -5 * reach, 3 * reach))
    f0 = tl.load(recon + p0, mask=valid, other=0.0).to(tl.float64)
    f1 = tl.load(recon + place - reach, mask=valid, other=0.0).to(tl.float64)
    f2 = tl.load(recon + p2, mask=valid, other=0.0).to(tl.float64)
    f3 = tl.load(recon + p3, mask=valid, other=0.0).to(tl.float64)
    return place, w0.to(tl.float64) * f0 + w1.to(tl.float64) * f1 + w2.to(tl.float64) * f2 + w3.to(tl.float64) * f3


@triton.jit(do_not_specialize=["step", "radius"])
def predict(x, recon, codes, jobs, facts, lattices, step, radius, BLOCK: tl.constexpr):
    """Writes the codes of the points of one pass, and what the decoder will have in their places."""
    run = tl.program_id(1)
    job = jobs + run * JOB
    row = lattices + (tl.load(job) + step) * ROW
    size = _number(row, 0)
    first = tl.program_id(0) * BLOCK
    if first < size:
        i = first + tl.arange(0, BLOCK)
        valid = i < size
        recon += tl.load(job + 2)
        place, guess = _guess(recon, job, row, i, valid)
        fact = facts + (run * LEVELS + _number(row, 4)) * 3
        eps, inverse, width = tl.load(fact), tl.load(fact + 1), tl.load(fact + 2)
        source = tl.load(x + tl.load(job + 1) + place, mask=valid, other=0.0)
        value = source.to(tl.float64)
        # Adding and taking away 1.5·2^52 leaves the nearest integer, halves to even; what is too large for that has no code anyway.
        d = ((value - guess) * inverse + 6755399441055744.0) - 6755399441055744.0
        back = (guess + width * d).to(source.dtype)
        good = (tl.abs(d) < radius.to(tl.float64)) & (tl.abs(value - back.to(tl.float64)) <= eps)
        code = tl.where(good, d, 0.0).to(tl.int32) + radius
        tl.store(codes + tl.load(job + 3) + _number(row, 1) + i, tl.where(good, code, 0).to(tl.int16), mask=valid)
        known = tl.where(tl.abs(source) < float("inf"), source, 0.0)
        tl.store(recon + place, tl.where(good, back, known), mask=valid)


@triton.jit
def _whole(x, at, there, inverse, limit):
    """Returns the value, q as int64 and as float64, and whether |q| is below the limit; q is 0 where it is not."""
    value = tl.load(x + at, mask=there, other=0.0).to(tl.float64)
    v = value * inverse
    size = tl.abs(v)
    size = tl.where(size < 4503599627370496.0, (size + 4503599627370496.0) - 4503599627370496.0, size)
    inside = size < limit
    r = tl.where(inside, tl.where(v < 0.0, -size, size), 0.0)
    return value, r.to(tl.int64), inside


@triton.jit
def _corner(x, at, there, inverse, limit):
    _, q, _ = _whole(x, at, there, inverse, limit)
    return tl.where(there, q, 0)


@triton.jit
def _anchor(x, job, row, fact, i, valid):
    """Returns the anchors' places, their Lorenzo residuals (modulo 2^32 for narrow runs), whether they are violators, and q."""
    inverse = tl.load(fact + 1)
    place, kz, ky, kx = _points(row, i)
    narrow = (tl.load(job + 6) & 1) != 0
    limit = tl.where(narrow, 1073741824.0, 4611686018427387904.0).to(tl.float64)
    nx = _number(row, 16)
    dx, dy, dz = _number(row, 10), _number(row, 9) * nx, _number(row, 8) * nx * _number(row, 15)
    value, q, inside = _whole(x, place, valid, inverse, limit)
    left, up, behind = valid & (kx > 0), valid & (ky > 0), valid & (kz > 0)
    d = less(q, _corner(x, place - dx, left, inverse, limit))
    above = less(_corner(x, place - dy, up, inverse, limit), _corner(x, place - dy - dx, up & left, inverse, limit))
    far = less(_corner(x, place - dz, behind, inverse, limit), _corner(x, place - dz - dx, behind & left, inverse, limit))
    both = behind & up
    edge = less(_corner(x, place - dz - dy, both, inverse, limit), _corner(x, place - dz - dy - dx, both & left, inverse, limit))
    d = less(less(d, above), less(far, edge))
    d = tl.where(narrow, (d << 32) >> 32, d)
    back = (tl.load(fact + 2) * q.to(tl.float64)).to(x.dtype.element_ty)
    bad = valid & ((inside & (tl.abs(value - back.to(tl.float64)) <= tl.load(fact))) == 0)
    return place, d, bad, back


@triton.jit(do_not_specialize=["radius"])
def anchors(x, recon, codes, counts, jobs, facts, lattices, radius, BLOCK: tl.constexpr):
    """Writes the codes of the anchors and what the decoder will have there; counts the outliers of every tile, then all violators."""
    run = tl.program_id(1)
    job = jobs + run * JOB
    row = lattices + tl.load(job) * ROW
    size = _number(row, 0)
    first = tl.program_id(0) * BLOCK
    if first < size:
        i = first + tl.arange(0, BLOCK)
        valid = i < size
        x += tl.load(job + 1)
        place, d, bad, back = _anchor(x, job, row, facts + run * LEVELS * 3, i, valid)
        inside = (d > -radius) & (d < radius)
        tl.store(codes + tl.load(job + 3) + i, tl.where(inside, d + radius, 0).to(tl.int16), mask=valid)
        source = tl.load(x + place, mask=valid, other=0.0)
        known = tl.where(tl.abs(source) < float("inf"), source, 0.0)
        tl.store(recon + tl.load(job + 2) + place, tl.where(bad, known, back), mask=valid)
        tile = run * tl.num_programs(0) + tl.program_id(0)
        tl.store(counts + tile, tl.sum((valid & (inside == 0)).to(tl.int32), axis=0))
        tl.store(counts + tl.num_programs(0) * tl.num_programs(1) + tile, tl.sum(bad.to(tl.int32), axis=0))


@triton.jit(do_not_specialize=["radius"])
def collect_anchors(x, counts, ends, outliers, places, raw, jobs, facts, lattices, radius, BLOCK: tl.constexpr):
    """Collects the residuals of anchors that have no code, and the places and bits of violators, in the order of runs and anchors."""
    run = tl.program_id(1)
    tile = run * tl.num_programs(0) + tl.program_id(0)
    more = tile + tl.num_programs(0) * tl.num_programs(1)
    far_count, bad_count = tl.load(counts + tile), tl.load(counts + more)
    if far_count + bad_count > 0:
        job = jobs + run * JOB
        row = lattices + tl.load(job) * ROW
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        valid = i < _number(row, 0)
        x += tl.load(job + 1)
        place, d, bad, _ = _anchor(x, job, row, facts + run * LEVELS * 3, i, valid)
        far = valid & (((d > -radius) & (d < radius)) == 0)
        tl.store(outliers + (tl.load(ends + tile) - far_count) + tl.cumsum(far.to(tl.int32), axis=0) - 1, d, mask=far)
        order = (tl.load(ends + more) - bad_count) + tl.cumsum(bad.to(tl.int32), axis=0) - 1
        tl.store(places + order, i, mask=bad)
        tl.store(raw + order, tl.load(x + place, mask=bad, other=0.0), mask=bad)


@triton.jit
def trial_anchors(x, recon, jobs, facts, lattices, BLOCK: tl.constexpr):
    """Puts the anchors of a trial in place, rounded in the precision of the array as `tuning` does on the host."""
    run = tl.program_id(1)
    job = jobs + run * JOB
    row = lattices + tl.load(job) * ROW
    size = _number(row, 0)
    first = tl.program_id(0) * BLOCK
    if first < size:
        i = first + tl.arange(0, BLOCK)
        valid = i < size
        place, _, _, _ = _points(row, i)
        source = tl.load(x + tl.load(job + 1) + place, mask=valid, other=0.0)
        fact = facts + run * LEVELS * 3
        v = source * tl.load(fact + 1).to(source.dtype)
        most = 8388608.0 if x.dtype.element_ty == tl.float32 else 4503599627370496.0
        magnitude = tl.abs(v)
        magnitude = tl.where(magnitude < most, (magnitude + most) - most, magnitude)
        known = tl.load(fact + 2).to(source.dtype) * tl.where(v < 0.0, -magnitude, magnitude)
        tl.store(recon + tl.load(job + 2) + place, tl.where(tl.abs(known) < float("inf"), known, 0.0), mask=valid)


@triton.jit(do_not_specialize=["low", "bins"])
def tally(codes, counts, jobs, low, bins, WINDOW: tl.constexpr, BLOCK: tl.constexpr, ROUNDS: tl.constexpr):
    """Adds how often each code of a run occurs, from its first one that counts: WINDOW codes from `low` in registers, others one by one."""
    run = tl.program_id(1)
    job = jobs + run * JOB
    size = _number(job, 9)
    begin = tl.where(_number(job, 6) >= 2, 0, _number(job, 8))
    first = tl.program_id(0) * (BLOCK * ROUNDS)
    if first < size:
        codes += tl.load(job + 3)
        counts += run * bins
        total = tl.zeros([WINDOW], tl.int32)
        spare = 0
        for r in range(ROUNDS):
            at = first + r * BLOCK + tl.arange(0, BLOCK)
            valid = (at >= begin) & (at < size)
            code = tl.load(codes + at, mask=valid, other=0).to(tl.int32) & 0xFFFF
            near = valid & (code >= low) & (code < low + WINDOW)
            total += tl.histogram(tl.where(near, code - low, 0), WINDOW)
            spare += tl.sum((near == 0).to(tl.int32), axis=0)
            tl.atomic_add(counts + code, 1, mask=valid & (near == 0), sem="relaxed")
        bin = tl.arange(0, WINDOW)
        total -= tl.where(bin == 0, spare, 0)
        tl.atomic_add(counts + low + bin, total, mask=total > 0, sem="relaxed")


@triton.jit
def count_stored(codes, counts, jobs, BLOCK: tl.constexpr):
    """Counts the points of each tile of codes that are stored: zero codes after the anchors."""
    job = jobs + tl.program_id(1) * JOB
    size = _number(job, 9)
    first = tl.program_id(0) * BLOCK
    if first < size:
        at = first + tl.arange(0, BLOCK)
        valid = (at >= _number(job, 8)) & (at < size)
        code = tl.load(codes + tl.load(job + 3) + at, mask=valid, other=1)
        tl.store(counts + tl.load(job + 7) + tl.program_id(0), tl.sum((code == 0).to(tl.int32), axis=0))


@triton.jit
def _ranked(codes, counts, ends, job, row, BLOCK: tl.constexpr):
    """Returns for the codes of one tile of a pass: which they are in it, which are in it at all, the codes, and the ranks of stored ones.

    Tiles are those of all codes of the run, so the first and last one of a pass are shared with its neighbours.
    """
    begin, size = _number(row, 1), _number(row, 0)
    tile = begin // BLOCK + tl.program_id(0)
    at = tile * BLOCK + tl.arange(0, BLOCK)
    own = (at >= begin) & (at < begin + size)
    there = (at >= _number(job, 8)) & (at < _number(job, 9))
    code = tl.load(codes + tl.load(job + 3) + at, mask=there, other=1).to(tl.int32) & 0xFFFF
    stored = there & (code == 0)
    tile += tl.load(job + 7)
    rank = (tl.load(ends + tile) - tl.load(counts + tile)) + tl.cumsum(stored.to(tl.int32), axis=0) - 1
    return tl.where(own, at - begin, 0), own, code, own & stored, rank


@triton.jit(do_not_specialize=["step", "radius"])
def restore(recon, codes, raw, counts, ends, jobs, facts, lattices, step, radius, BLOCK: tl.constexpr):
    """Writes the values of one pass; a stored one that is not finite counts as 0 until all passes are done."""
    run = tl.program_id(1)
    job = jobs + run * JOB
    row = lattices + (tl.load(job) + step) * ROW
    begin, size = _number(row, 1), _number(row, 0)
    if (begin // BLOCK + tl.program_id(0)) * BLOCK < begin + size:
        i, own, code, stored, rank = _ranked(codes, counts, ends, job, row, BLOCK)
        recon += tl.load(job + 2)
        place, guess = _guess(recon, job, row, i, own)
        width = tl.load(facts + (run * LEVELS + _number(row, 4)) * 3 + 2)
        value = (guess + width * (code - radius).to(tl.float64)).to(recon.dtype.element_ty)
        given = tl.load(raw + rank, mask=stored, other=0.0)
        given = tl.where(tl.abs(given) < float("inf"), given, 0.0)
        tl.store(recon + place, tl.where(stored, given, value), mask=own)


@triton.jit(do_not_specialize=["step", "column"])
def exchange(values, codes, raw, counts, ends, jobs, lattices, step, column, OUT: tl.constexpr, BLOCK: tl.constexpr):
    """Copies the stored points of one pass from `values` to `raw` (OUT), or back; `column` of `jobs` says where the values start."""
    job = jobs + tl.program_id(1) * JOB
    row = lattices + (tl.load(job) + step) * ROW
    begin, size = _number(row, 1), _number(row, 0)
    tile = begin // BLOCK + tl.program_id(0)
    if tl.load(counts + tl.load(job + 7) + tile, mask=tile * BLOCK < begin + size, other=0) > 0:
        i, _, _, stored, rank = _ranked(codes, counts, ends, job, row, BLOCK)
        place, _, _, _ = _points(row, i)
        values += tl.load(job + column)
        if OUT:
            tl.store(raw + rank, tl.load(values + place, mask=stored, other=0.0), mask=stored)
        else:
            tl.store(values + place, tl.load(raw + rank, mask=stored, other=0.0), mask=stored)
