"""The stage `interp` predicts points between known ones by splines, level by level, from the values that the decoder will have.

Points on a coarse lattice (anchors) come first; then the lattice is halved again and again, within a level along one axis after another. A
point is predicted from reconstructed points at ±s and ±3s along its axis: cubic (−1, 9, 9, −1)/16, quadratic (3, 6, −1)/8 where one of the
outer ones is missing, linear, or a copy. Points of one level and axis do not depend on each other. SZ3 (ICDE 2021) and cuSZ-i (SC 2024)
are of this family. In our design the anchors are quantised and Lorenzo-coded into the same stream, since raw ones alone would limit the
ratio to 512.

The bound of level l, of which 1 is the finest, is ε / min(α^(l−1), β). `tune` searches on a sample for α, β, the order of axes, and linear
or cubic splines for each level, how the last points of a line are predicted, and how far apart the anchors are. Values that come back
are coded to the same bytes again wherever the search finds the same parameters for them; the encoder looks, and codes again if not.

Layout. `codes`: uint16, first those of the anchors (as `lorenzo` gives them for x[::S, ::S, ::S], S = 256, 32, 8 for 1, 2, 3
dimensions), then pass by pass, strides S/2 to 1, axes in order, each in C order of its points. Code d + radius, x' = dtype(p + 2ε_l·d)
with p = w₀f₋₃ + w₁f₋₁ + w₂f₊₁ + w₃f₊₃ summed from the left in float64, and 0 for a point that is stored. `raw`: those points' bits in
the order of the zero codes after the anchors'; predictions take 0 for one that is not finite. `anchor_outliers`, `anchor_raw_index`,
`anchor_raw`: as in `lorenzo`. `plan`: four or six float64: α, β, the order (0: x y z, 1: z y x), bits of the levels that are linear,
whether points behind the last known one are extrapolated, (15f₋₁ − 10f₋₃ + 3f₋₅)/8 or (3f₋₁ − f₋₃)/2, rather than copied, and log2 of
S where it is another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop
from armillary.parameters import parameter

from .lorenzo import Lorenzo
from .slabs import each, shares
from .stage import Context, Port, Stage

STRIDES = {1: 256, 2: 32, 3: 8}
ORDERS = ((3, 2, 1), (1, 2, 3))
#: Anchors are at most 2^15 apart, so that there are at most sixteen levels.
MOST_POWER = 15
#: The smallest positive float64, which a quotient of bounds might round to 0.
LEAST_BOUND = 5e-324
#: How often a field may be coded until what comes back would be coded in the same way.
ROUNDS = 4


@dataclass(frozen=True)
class Plan:
    """The parameters that may be tuned: α and β of the level bounds, the order of axes, and which levels are linear."""

    alpha: float = 1.0
    beta: float = 1.0
    order: int = 0
    linear: int = 0
    extrapolate: int = 0
    #: Distance of the anchors, a power of 2; 0 is the usual one of the dimension, and 1, all points, is for estimates alone.
    stride: int = 0

    def splines(self, level: int) -> int:
        """Returns 1 where the level is linear, plus 2 where the ends of lines are extrapolated."""
        return (self.linear >> level & 1) + 2 * self.extrapolate

    def knobs(self) -> np.ndarray:
        """Returns the section `plan`."""
        more = [self.extrapolate, (self.stride or 1).bit_length() - 1] if self.extrapolate or self.stride else []
        return np.array([self.alpha, self.beta, self.order, self.linear, *more], np.float64)

    def bound(self, eps: float, level: int) -> float:
        """Returns ε of a level, of which 1 is the finest; it is never 0."""
        return max(float(eps / min(self.alpha ** (level - 1), self.beta)), LEAST_BOUND)


@dataclass(frozen=True)
class Pass:
    """Points of one level and axis: their first place, step and number along each axis, and where their codes start."""

    level: int
    axis: int
    stride: int
    starts: tuple[int, int, int]
    steps: tuple[int, int, int]
    counts: tuple[int, int, int]
    at: int
    size: int


@dataclass(frozen=True)
class Interp(Stage):
    """Spline interpolation over a hierarchy of lattices."""

    radius: int = parameter(512, "residuals below it are codes, other points are stored", range=(2, 32768))
    alpha: float = parameter(1.0, "how fast bounds tighten from level to level", range=(1.0, 8.0))
    beta: float = parameter(1.0, "how tight they may get", range=(1.0, 64.0))
    cubic: bool = parameter(True, "cubic where four neighbours exist; else linear")
    tune: bool = parameter(False, "look for alpha, beta, splines and order on a sample")

    name = "interp"
    inputs = (Port("data", "float"), Port("bound", "float64"))
    outputs = (
        Port("codes", "codes"), Port("raw", "float"), Port("anchor_outliers", "ints"), Port("anchor_raw_index", "index"),
        Port("anchor_raw", "float"), Port("plan", "float64"),
    )  # fmt: skip

    @property
    def plan(self) -> Plan:
        """The plan as it is set, from which `tune` starts."""
        return Plan(self.alpha, self.beta, 0, 0 if self.cubic else (1 << 16) - 1)

    @property
    def levels_off(self) -> bool:
        """Whether the bounds of levels are set to differ."""
        return self.alpha != 1.0 and self.beta != 1.0

    def forward(self, ctx: Context, *, data: np.ndarray, bound: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns codes, stored points and the plan they were made by."""
        plan = self.plan
        if not self.tune:
            return self.coded(ctx, data, bound, plan)
        from .tuning import tuned

        chosen = tuned(self, ctx, data, bound, plan)
        first = None
        for _ in range(ROUNDS):
            found, back = self._coded(ctx, data, bound, chosen)
            if np.array_equal(back, data):
                return found
            again = tuned(self, ctx, back, bound, plan)
            if again == chosen:
                return found
            first, chosen = first or found, again
        return first or found

    def coded(self, ctx: Context, data: np.ndarray, bound: np.ndarray, plan: Plan) -> dict[str, np.ndarray]:
        """Does the work of `forward` by this plan."""
        return self._coded(ctx, data, bound, plan)[0]

    def _coded(self, ctx: Context, data: np.ndarray, bound: np.ndarray, plan: Plan) -> tuple[dict[str, np.ndarray], np.ndarray]:
        eps = float(bound[0])
        anchors, small = self._anchors(ctx, data, plan)
        lorenzo = Lorenzo(radius=self.radius)
        first = lorenzo.forward(small, data=anchors, bound=bound)
        recon = np.zeros(data.size, data.dtype)
        lattice(ctx, recon, plan)[...] = _finite(lorenzo.inverse(small, **first, bound=bound)["data"]).reshape(small.shape)
        codes = np.empty(data.size, np.uint16)
        codes[: anchors.size] = first["codes"]
        raw, shape = [], np.array(ctx.shape)
        for one in passes(ctx, plan, anchors.size):
            own, splines = plan.bound(eps, one.level), plan.splines(one.level)
            place = where(one)

            def part(a: int, b: int, own: float = own, splines: int = splines, place: np.ndarray = place) -> bool:
                return _forward(data, recon, codes, shape, place, a, b, splines, own, 0.5 / own, self.radius)

            rows = ctx.shape[0] * one.counts[0] * one.counts[1]
            if any(each(part, shares(rows, ctx.threads, max(1, 4096 // one.counts[2])), ctx.threads)):
                places = _places(codes, shape, place)
                raw.append(data[places])
        stored = np.concatenate(raw) if raw else np.zeros(0, data.dtype)
        found = {
            "codes": codes, "raw": stored, "anchor_outliers": first["outliers"], "anchor_raw_index": first["raw_index"],
            "anchor_raw": first["raw"], "plan": plan.knobs(),
        }  # fmt: skip
        return found, recon

    def inverse(  # type: ignore[override]
        self, ctx: Context, *, codes: np.ndarray, raw: np.ndarray, anchor_outliers: np.ndarray, anchor_raw_index: np.ndarray,
        anchor_raw: np.ndarray, plan: np.ndarray, bound: np.ndarray,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """Returns the values, within the bound."""
        if codes.size != ctx.size or raw.dtype != anchor_raw.dtype:
            raise InputError(f"codes: found {codes.size}; expected {ctx.size}, and raw values of one dtype")
        knobs = checked_plan(plan)
        eps = float(bound[0])
        recon = np.zeros(ctx.size, raw.dtype)
        known = lattice(ctx, recon, knobs)
        small = Context((known.shape[0], known.shape[1], known.shape[2], known.shape[3]), raw.dtype, threads=ctx.threads)
        anchors = Lorenzo(radius=self.radius).inverse(
            small, codes=codes[: small.size], outliers=anchor_outliers, raw_index=anchor_raw_index, raw=anchor_raw, bound=bound
        )["data"]
        known[...] = _finite(anchors).reshape(small.shape)
        odd: list[tuple[np.ndarray, np.ndarray]] = []
        taken, shape = 0, np.array(ctx.shape)
        for one in passes(ctx, knobs, small.size):
            own, splines, place = knobs.bound(eps, one.level), knobs.splines(one.level), where(one)

            def part(a: int, b: int, own: float = own, splines: int = splines, place: np.ndarray = place) -> bool:
                return _inverse(recon, codes, shape, place, a, b, splines, own, self.radius)

            rows = ctx.shape[0] * one.counts[0] * one.counts[1]
            if any(each(part, shares(rows, ctx.threads, max(1, 4096 // one.counts[2])), ctx.threads)):
                places = _places(codes, shape, place)
                values = raw[taken : taken + places.size]
                if values.size != places.size:
                    raise InputError(f"raw values: found {raw.size}; expected more, one for each zero code")
                taken += places.size
                recon[places] = _finite(values)
                if not np.isfinite(values).all():
                    odd.append((places, values))
        if taken != raw.size:
            raise InputError(f"raw values: found {raw.size}; expected {taken}, one for each zero code")
        for places, values in odd:
            recon[places] = values
        known[...] = anchors.reshape(small.shape)
        return {"data": recon}

    def _anchors(self, ctx: Context, data: np.ndarray, plan: Plan) -> tuple[np.ndarray, Context]:
        known = lattice(ctx, data, plan)
        b, z, y, x = known.shape
        return np.ascontiguousarray(known).reshape(-1), Context((b, z, y, x), data.dtype, threads=ctx.threads)


def lattice(ctx: Context, flat: np.ndarray, plan: Plan) -> np.ndarray:
    """Returns the anchors of a flat field, as a view."""
    s = plan.stride or STRIDES[ctx.dimensions]
    return flat.reshape(ctx.shape)[:, ::s, ::s, ::s]


def passes(ctx: Context, plan: Plan, at: int) -> Iterator[Pass]:
    """Yields every level and axis in order; `at` is the place of the first code after the anchors."""
    stride = (plan.stride or STRIDES[ctx.dimensions]) // 2
    while stride:
        refined: set[int] = set()
        for axis in ORDERS[plan.order]:
            starts, steps, counts = [], [], []
            for other in (1, 2, 3):
                step = 2 * stride if other == axis or other not in refined else stride
                start = stride if other == axis else 0
                starts.append(start)
                steps.append(step)
                counts.append(max(0, -(-(ctx.shape[other] - start) // step)))
            refined.add(axis)
            size = ctx.shape[0] * counts[0] * counts[1] * counts[2]
            if size:
                level = stride.bit_length()
                yield Pass(level, axis, stride, _three(starts), _three(steps), _three(counts), at, size)
                at += size
        stride //= 2


def _three(values: list[int]) -> tuple[int, int, int]:
    return values[0], values[1], values[2]


def where(one: Pass) -> np.ndarray:
    return np.array([one.axis, one.stride, one.at, *one.starts, *one.steps, *one.counts], np.int64)


def checked_plan(plan: np.ndarray) -> Plan:
    """Returns the plan of a section, every number checked."""
    if plan.dtype != np.float64 or plan.size not in (4, 6) or not np.isfinite(plan).all():
        raise InputError("interpolation plan: expected four or six numbers")
    alpha, beta, order, linear, extrapolate, power = (*(float(v) for v in plan), 0.0, 0.0)[:6]
    good = 1 <= alpha <= 8 and 1 <= beta <= 64 and order in (0, 1) and linear in range(1 << 17)
    if not (good and extrapolate in (0, 1) and power in range(MOST_POWER + 1)):
        raise InputError(f"interpolation plan: found {plan.tolist()}; expected alpha, beta, order, levels, ends and anchors in range")
    return Plan(alpha, beta, int(order), int(linear), int(extrapolate), 1 << int(power) if power else 0)


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, values.dtype.type(0))


@loop
def _weights(j, n, s, splines):
    # Returns the weights of the points at −3s, −s, +s, +3s, which are 0 where there is none.
    before, after, beyond = j - 3 * s >= 0, j + s < n, j + 3 * s < n
    if not after:
        if before and splines & 2:
            return (-1.25, 1.875, 0.0, 0.375) if j - 5 * s >= 0 and not splines & 1 else (-0.5, 1.5, 0.0, 0.0)
        return 0.0, 1.0, 0.0, 0.0
    if splines & 1 or not (before or beyond):
        return 0.0, 0.5, 0.5, 0.0
    if before and beyond:
        return -0.0625, 0.5625, 0.5625, -0.0625
    if beyond:
        return 0.0, 0.375, 0.75, -0.125
    return -0.125, 0.75, 0.375, 0.0


@loop
def _far(w1, w3):
    # Where the fourth point is: beyond the next one, or, if there is no next one, two points further back; −1 where it is not used.
    if w3 == 0.0:
        return -1
    return -5 if w1 > 1.0 else 3


@loop
def _code_line(x, recon, line, codes, b, b0, b1, b2, b3, at, n, w0, w1, w2, w3, eps, inverse, radius):
    # Codes and reconstruction of n points side by side, x from place b, neighbours from b0 to b3; returns whether one must be stored.
    # Places are unsigned: Numba then need not think of indices from the end, and the loop is vectorised.
    width = 2.0 * eps
    most, shift, zero = np.float64(radius), np.int32(radius), x.dtype.type(0.0)
    stored = False
    for i in range(n):
        guess = (
            w0 * np.float64(recon[b0 + i])
            + w1 * np.float64(recon[b1 + i])
            + w2 * np.float64(recon[b2 + i])
            + w3 * np.float64(recon[b3 + i])
        )
        value = np.float64(x[b + i])
        d = np.rint((value - guess) * inverse)
        back = x.dtype.type(guess + width * d)
        good = (abs(d) < most) & (abs(value - np.float64(back)) <= eps)
        d = d if good else -most
        codes[at + i] = np.uint16(np.int32(d) + shift)
        known = x[b + i] if abs(value) < np.inf else zero
        line[i] = back if good else known
        stored |= not good
    return stored


@loop
def _value_line(recon, line, codes, b0, b1, b2, b3, at, n, w0, w1, w2, w3, eps, radius):
    width, shift = 2.0 * eps, np.int32(radius)
    stored = False
    for i in range(n):
        guess = (
            w0 * np.float64(recon[b0 + i])
            + w1 * np.float64(recon[b1 + i])
            + w2 * np.float64(recon[b2 + i])
            + w3 * np.float64(recon[b3 + i])
        )
        line[i] = guess + width * np.float64(np.int32(codes[at + i]) - shift)
        stored |= codes[at + i] == 0
    return stored


@loop
def _row(x, recon, codes, lines, line, base, at, n, step, reach, w0, w1, w2, w3, eps, inverse, radius):
    # n points from `base`, `step` apart, predicted from those at ±reach and ±3·reach; neighbours apart are first put side by side
    # in `lines`.
    p0, p1 = np.uint64(base - (3 * reach if w0 != 0.0 else reach)), np.uint64(base - reach)
    p2, p3 = np.uint64(base + (reach if w2 != 0.0 else -reach)), np.uint64(base + _far(w1, w3) * reach)
    p, count, place, apart = np.uint64(base), np.uint64(n), np.uint64(at), np.uint64(step)
    if step == 1:
        stored = _code_line(x, recon, line, codes, p, p0, p1, p2, p3, place, count, w0, w1, w2, w3, eps, inverse, radius)
        for i in range(count):
            recon[p + i] = line[i]
        return stored
    if step == 2 * reach and n > 1:
        # Inside a line along x, the neighbours of all points are one line, and each of them is used four times.
        known, own = count + np.uint64(3), np.uint64(2 * line.size + 1)
        first = np.uint64(base - 3 * reach)
        for i in range(known):
            lines[i] = recon[first + i * apart]
        for i in range(count):
            lines[own + i] = x[p + i * apart]
        one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
        stored = _code_line(
            lines, lines, line, codes, own, np.uint64(0), one, two, three, place, count, w0, w1, w2, w3, eps, inverse, radius
        )
        for i in range(count):
            recon[p + i * apart] = line[i]
        return stored
    m = np.uint64(line.size)
    second, third, fourth, fifth = m, m + m, m + m + m, m + m + m + m
    for i in range(count):
        lines[i] = recon[p0 + i * apart]
        lines[second + i] = recon[p1 + i * apart]
        lines[third + i] = recon[p2 + i * apart]
        lines[fourth + i] = recon[p3 + i * apart]
        lines[fifth + i] = x[p + i * apart]
    stored = _code_line(
        lines, lines, line, codes, fifth, np.uint64(0), second, third, fourth, place, count, w0, w1, w2, w3, eps, inverse, radius
    )
    for i in range(count):
        recon[p + i * apart] = line[i]
    return stored


@loop
def _row_back(recon, codes, lines, line, base, at, n, step, reach, w0, w1, w2, w3, eps, radius):
    p0, p1 = np.uint64(base - (3 * reach if w0 != 0.0 else reach)), np.uint64(base - reach)
    p2, p3 = np.uint64(base + (reach if w2 != 0.0 else -reach)), np.uint64(base + _far(w1, w3) * reach)
    p, count, place, apart = np.uint64(base), np.uint64(n), np.uint64(at), np.uint64(step)
    if step == 1:
        stored = _value_line(recon, line, codes, p0, p1, p2, p3, place, count, w0, w1, w2, w3, eps, radius)
        for i in range(count):
            recon[p + i] = line[i]
        return stored
    if step == 2 * reach and n > 1:
        first = np.uint64(base - 3 * reach)
        for i in range(count + np.uint64(3)):
            lines[i] = recon[first + i * apart]
        one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
        stored = _value_line(lines, line, codes, np.uint64(0), one, two, three, place, count, w0, w1, w2, w3, eps, radius)
        for i in range(count):
            recon[p + i * apart] = line[i]
        return stored
    m = np.uint64(line.size)
    second, third, fourth = m, m + m, m + m + m
    for i in range(count):
        lines[i] = recon[p0 + i * apart]
        lines[second + i] = recon[p1 + i * apart]
        lines[third + i] = recon[p2 + i * apart]
        lines[fourth + i] = recon[p3 + i * apart]
    stored = _value_line(lines, line, codes, np.uint64(0), second, third, fourth, place, count, w0, w1, w2, w3, eps, radius)
    for i in range(count):
        recon[p + i * apart] = line[i]
    return stored


@loop
def _forward(x, recon, codes, shape, where, r0, r1, splines, eps, inverse, radius):
    axis, s, at = where[0], where[1], where[2]
    nz, ny, nx = where[9], where[10], where[11]
    lines, line = np.empty(5 * max(1, nx), recon.dtype), np.empty(max(1, nx), recon.dtype)
    stored = False
    for r in range(r0, r1):
        z = where[3] + (r // ny) % nz * where[6]
        y = where[4] + r % ny * where[7]
        base = ((r // (ny * nz) * shape[1] + z) * shape[2] + y) * shape[3] + where[5]
        code = at + r * nx
        if axis != 3:
            j, n, reach = (y, shape[2], s * shape[3]) if axis == 2 else (z, shape[1], s * shape[2] * shape[3])
            w0, w1, w2, w3 = _weights(j, n, s, splines)
            stored |= _row(x, recon, codes, lines, line, base, code, nx, where[8], reach, w0, w1, w2, w3, eps, inverse, radius)
            continue
        inner = max(1, min(nx, -(-(shape[3] - 4 * s) // (2 * s))))
        k = 0
        while k < nx:
            if k == 1 and inner > 1:
                w0, w1, w2, w3 = _weights(3 * s, shape[3], s, splines)
                stored |= _row(
                    x, recon, codes, lines, line, base + 2 * s, code + 1, inner - 1, 2 * s, s, w0, w1, w2, w3, eps, inverse, radius
                )
                k = inner
                continue
            w0, w1, w2, w3 = _weights(s + 2 * s * k, shape[3], s, splines)
            stored |= _row(x, recon, codes, lines, line, base + 2 * s * k, code + k, 1, 2 * s, s, w0, w1, w2, w3, eps, inverse, radius)
            k += 1
    return stored


@loop
def _inverse(recon, codes, shape, where, r0, r1, splines, eps, radius):
    axis, s, at = where[0], where[1], where[2]
    nz, ny, nx = where[9], where[10], where[11]
    lines, line = np.empty(5 * max(1, nx), recon.dtype), np.empty(max(1, nx), recon.dtype)
    stored = False
    for r in range(r0, r1):
        z = where[3] + (r // ny) % nz * where[6]
        y = where[4] + r % ny * where[7]
        base = ((r // (ny * nz) * shape[1] + z) * shape[2] + y) * shape[3] + where[5]
        code = at + r * nx
        if axis != 3:
            j, n, reach = (y, shape[2], s * shape[3]) if axis == 2 else (z, shape[1], s * shape[2] * shape[3])
            w0, w1, w2, w3 = _weights(j, n, s, splines)
            stored |= _row_back(recon, codes, lines, line, base, code, nx, where[8], reach, w0, w1, w2, w3, eps, radius)
            continue
        inner = max(1, min(nx, -(-(shape[3] - 4 * s) // (2 * s))))
        k = 0
        while k < nx:
            if k == 1 and inner > 1:
                w0, w1, w2, w3 = _weights(3 * s, shape[3], s, splines)
                stored |= _row_back(recon, codes, lines, line, base + 2 * s, code + 1, inner - 1, 2 * s, s, w0, w1, w2, w3, eps, radius)
                k = inner
                continue
            w0, w1, w2, w3 = _weights(s + 2 * s * k, shape[3], s, splines)
            stored |= _row_back(recon, codes, lines, line, base + 2 * s * k, code + k, 1, 2 * s, s, w0, w1, w2, w3, eps, radius)
            k += 1
    return stored


@loop
def code_bits(counts, size, itemsize):
    """Returns the entropy of `size` codes that occur so often, in bits, and the bits of points that are stored."""
    bits = counts[0] * 8.0 * itemsize
    for i in range(counts.size):
        if counts[i]:
            bits -= counts[i] * np.log2(counts[i] / size)
    return bits


@loop
def sample_bits(x, recon, codes, shape, wheres, bounds, splines, radius):
    """Returns entropy of the codes after the anchors in bits, all passes in turn, and the bits of points that are stored; `recon` has the
    anchors."""
    for k in range(len(wheres)):
        rows = shape[0] * wheres[k, 9] * wheres[k, 10]
        _forward(x, recon, codes, shape, wheres[k], 0, rows, splines[k], bounds[k], 0.5 / bounds[k], radius)
    first = wheres[0, 2]
    counts = np.zeros(2 * radius, np.int64)
    for i in range(first, codes.size):
        counts[codes[i]] += 1
    return code_bits(counts, codes.size - first, x.itemsize)


@loop
def _places(codes, shape, where):
    # Flat places of the zero codes of a pass, in their order.
    at, nz, ny, nx = where[2], where[9], where[10], where[11]
    rows = shape[0] * nz * ny
    count = 0
    for i in range(at, at + rows * nx):
        count += np.int64(codes[i] == 0)
    places = np.empty(count, np.int64)
    found = 0
    for r in range(rows):
        z = where[3] + (r // ny) % nz * where[6]
        y = where[4] + r % ny * where[7]
        base = ((r // (ny * nz) * shape[1] + z) * shape[2] + y) * shape[3] + where[5]
        for i in range(nx):
            if codes[at + r * nx + i] == 0:
                places[found] = base + i * where[8]
                found += 1
    return places
