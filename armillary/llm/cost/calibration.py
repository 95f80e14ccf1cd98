"""The constants of the roofline are fitted to measurements; this module also reads vidur's profiles.

`fit(points, device)` searches η_c, η_m and t0, and then the efficiencies of the tiles, one coordinate at a time, for the least mean of
|log(predicted / measured)|. The shares of attention and of element-wise kernels are medians of what their points reached.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line
from armillary.llm.cost.device import TILES, Calibration, Chip
from armillary.llm.cost.operators import LEAST_SPLIT, SPLITS

LEAST_POINTS = 20
#: The search uses at most this many points, taken evenly; the error is computed over all of them.
MOST_SEARCHED = 1500
#: The range in which each constant is searched.
BOUNDS = {"eta_c": (0.2, 1.0), "eta_m": (0.2, 1.0), "t0": (0.0, 20e-6)}
#: The operators that are matrix products.
GEMMS = ("qkv", "o", "gate_up", "down", "gemm")


@dataclass(frozen=True)
class Point:
    """One measured kernel, in milliseconds: a matrix product `op` of m × k × n, or another kernel with the bytes it moves and its flops."""

    op: str
    m: int
    n: int
    k: int
    ms: float
    p10: float | None = None
    p90: float | None = None
    moved: float | None = None
    flops: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The point as a calibration file writes it."""
        found = {"op": self.op, "M": self.m, "N": self.n, "K": self.k, "ms": self.ms, "p10": self.p10, "p90": self.p90}
        return {**found, "bytes": self.moved, "flops": self.flops} if self.moved is not None else found


@dataclass(frozen=True)
class Fit:
    """Fitted constants, with the mean and the 90th percentile of |error| over the matrix products that they were fitted to."""

    calibration: Calibration
    mape: float
    p90: float
    points: int

    def as_json(self) -> dict[str, Any]:
        """The `fit`, `fitted` and `error` keys of a calibration file."""
        c = self.calibration
        fit: dict[str, Any] = {"eta_c": round(c.eta_c, 4), "eta_m": round(c.eta_m, 4), "t0": round(c.t0, 9)}
        fit["tiles"] = [[a, b, round(e, 4)] for a, b, e in c.tiles]
        fit |= {"eta_attn": round(c.eta_attn, 4), "eta_decode": round(c.eta_decode, 4)}
        fit |= {"eta_elem": {k: round(v, 4) for k, v in c.eta_elem}, "elem_s": round(c.elem_s, 9)}
        return {"fit": fit, "fitted": self.points, "error": {"mape": round(self.mape, 4), "p90": round(self.p90, 4)}}


def fit(points: Iterable[Point], device: Chip, *, tiles: bool = True) -> Fit:
    """The constants that predict the measured points best; `tiles=False` leaves the efficiencies of the tiles as they are.

    Fewer than 20 matrix products, or a time that is not positive, raise an `InputError`.
    """
    every = list(points)
    for point in every:
        if not (math.isfinite(point.ms) and point.ms > 0):
            raise InputError(f"{point.op} of {point.m} × {point.k} × {point.n}: found {point.ms} ms; expected a positive time")
    products = [p for p in every if p.op in GEMMS]
    if len(products) < LEAST_POINTS:
        raise InputError(f"{len(products)} matrix products; expected at least {LEAST_POINTS} to fit")
    if any(min(p.m, p.n, p.k) < 1 for p in products):
        raise InputError("a matrix product with a size below 1")
    every_problem = _Problem.of(products, device)
    problem = _Problem.of(products[:: -(-len(products) // MOST_SEARCHED)], device)
    values = [0.75, 0.75, 4e-6, *(e for _, _, e in TILES)]
    bounds = [*BOUNDS.values(), *((0.3, 1.0) for _ in TILES)]
    free = [0, 1, 2]
    for round_ in range(6):
        before = problem.loss(values)
        for i in free:
            values[i] = _least(lambda x, i=i: problem.loss([*values[:i], x, *values[i + 1 :]]), *bounds[i])  # type: ignore[misc]
        if round_ == 1 and tiles:
            free = [0, 1, 2, *range(4, 3 + len(TILES))]  # The efficiency of the first tile is the unit in which η_c is measured.
        elif round_ > 2 and before - problem.loss(values) < 1e-5:
            break
    error = np.abs(np.expm1(every_problem.residuals(values)))
    sized = tuple((a, b, float(e)) for (a, b, _), e in zip(TILES, values[3:]))
    found = Calibration(device.name, values[0], values[1], values[2], sized, points=len(products))
    found = _with_kernels(found, every, device)
    mape, p90 = float(error.mean()), float(np.quantile(error, 0.9))
    return Fit(replace(found, error=mape, error_p90=p90), mape, p90, len(products))


@dataclass(frozen=True)
class _Problem:
    """The parts of the prediction that do not depend on the constants, for all points at once."""

    log_s: npt.NDArray[np.float64]
    #: Seconds at the full peak for each tile and split, and seconds at the full bandwidth for the partial sums and for all traffic.
    compute: npt.NDArray[np.float64]
    sums: npt.NDArray[np.float64]
    traffic: npt.NDArray[np.float64]

    @staticmethod
    def of(points: Sequence[Point], device: Chip) -> _Problem:
        m, n, k = (np.array([getattr(p, name) for p in points], dtype=np.float64) for name in "mnk")
        peak, sms = device.peak("bf16"), device.sms or 1
        compute = np.full((len(TILES), len(SPLITS), len(points)), np.inf)
        for i, (a, b, _) in enumerate(TILES):
            tiles = np.ceil(m / a) * np.ceil(n / b)
            for j, s in enumerate(SPLITS):
                waves = np.ceil(tiles * s / sms) * (sms * a * b * 2.0 * k / (s * peak))
                compute[i, j] = np.where((s == 1) | (k >= s * LEAST_SPLIT), waves, np.inf)
        sums = np.array([(s > 1) * s * 8.0 for s in SPLITS])[:, None] * (m * n / device.bandwidth)
        traffic = 2.0 * (m * k + k * n + m * n) / device.bandwidth
        return _Problem(np.log([p.ms / 1e3 for p in points]), compute, sums, traffic)

    def residuals(self, values: Sequence[float]) -> npt.NDArray[np.float64]:
        eta_c, eta_m, t0 = values[:3]
        shares = np.array(values[3:])[:, None, None] * eta_c
        compute = (self.compute / shares + self.sums / eta_m).min(axis=(0, 1))
        return np.log(np.maximum(compute, self.traffic / eta_m) + t0) - self.log_s

    def loss(self, values: Sequence[float]) -> float:
        return float(np.abs(self.residuals(values)).mean())


def _least(loss: Callable[[float], float], low: float, high: float) -> float:
    """The number at which a function is least, found on a grid and then on finer grids around the best point."""
    best = low
    for _ in range(3):
        tried = np.linspace(low, high, 13)
        values = [loss(float(x)) for x in tried]
        at = int(np.argmin(values))
        best, step = float(tried[at]), (high - low) / 12
        low, high = max(low, best - step), min(high, best + step)
    return best


def _with_kernels(c: Calibration, points: Sequence[Point], device: Chip) -> Calibration:
    """The shares that attention and element-wise kernels reached, as medians over their larger points."""

    def reached(op: str) -> list[float]:
        large = sorted((p for p in points if p.op == op), key=lambda p: p.ms)
        large = large[len(large) // 2 :]
        work = "flops" if op == "attention_prefill" else "moved"
        rate = c.eta_c * device.peak("bf16") if op == "attention_prefill" else c.eta_m * device.bandwidth
        return [min(1.5, max(0.01, getattr(p, work) / (p.ms / 1e3) / rate)) for p in large if getattr(p, work)]

    if found := reached("attention_prefill"):
        c = replace(c, eta_attn=float(np.median(found)))
    if found := reached("attention_decode"):
        c = replace(c, eta_decode=float(np.median(found)))
    elem = {op: float(np.median(r)) for op in ("norm", "rope", "act", "residual", "embedding", "sampling", "softmax") if (r := reached(op))}
    if elem:
        elem["other"] = float(np.median(list(elem.values())))
        least = [min(p.ms for p in points if p.op == op) for op in elem if op != "other"]
        c = replace(c, eta_elem=tuple(sorted(elem.items())), elem_s=float(np.median(least)) / 1e3)
    return c


#: vidur's name of an operator, our name for it, and its (outputs, inputs) from the hidden size, the expanded size, the share of the heads
#: and the degree of tensor parallelism.
_VIDUR: dict[str, tuple[str, Callable[[int, int, float, int, bool], tuple[int, int]]]] = {
    "attn_pre_proj": ("qkv", lambda h, f, kv, tp, g: (int((h + 2 * h * kv) // tp), h)),
    "attn_post_proj": ("o", lambda h, f, kv, tp, g: (h, h // tp)),
    "mlp_up_proj": ("gate_up", lambda h, f, kv, tp, g: ((1 + g) * f // tp, h)),
    "mlp_down_proj": ("down", lambda h, f, kv, tp, g: (h, f // tp)),
}
_VIDUR_ELEMENTS: dict[str, tuple[str, Callable[[int, int, float, int], float]]] = {
    "input_layernorm": ("norm", lambda h, f, kv, tp: 4 * h),
    "attn_rope": ("rope", lambda h, f, kv, tp: 4 * h * (1 + kv) / tp),
    "mlp_act": ("act", lambda h, f, kv, tp: 6 * f / tp),
    "add": ("residual", lambda h, f, kv, tp: 6 * h),
}
MOST_ROWS = 1_000_000


@dataclass(frozen=True)
class AllReduce:
    """One measured all-reduce of `size` bytes over `ranks` devices."""

    ranks: int
    size: int
    ms: float
    devices_per_node: int = 8


def fit_all_reduce(points: Iterable[AllReduce], link_rate: float) -> tuple[float, float, float]:
    """(seconds of the smallest all-reduce, share of the link's rate that large ones reach, mean |error|), for all-reduces inside a node."""
    inside = [p for p in points if p.ranks <= p.devices_per_node]
    if len(inside) < 5 or any(not (math.isfinite(p.ms) and p.ms > 0 and p.ranks > 1 and p.size > 0) for p in inside):
        raise InputError(f"{len(inside)} all-reduces inside a node; expected at least 5, of positive sizes and times")
    sent = np.array([2 * (p.ranks - 1) / p.ranks * p.size / link_rate for p in inside])
    log_s = np.log([p.ms / 1e3 for p in inside])
    floor, share = 30e-6, 0.8
    for _ in range(8):
        floor = _least(lambda x, share=share: float(np.abs(np.log(x + sent / share) - log_s).mean()), 1e-6, 200e-6)  # type: ignore[misc]
        share = _least(lambda x, floor=floor: float(np.abs(np.log(floor + sent / x) - log_s).mean()), 0.1, 1.0)  # type: ignore[misc]
    return floor, share, float(np.abs(np.expm1(np.log(floor + sent / share) - log_s)).mean())


def read_vidur_all_reduce(path: str | Path) -> list[AllReduce]:
    """Reads the points of vidur's profiling CSV of all-reduces (`time_stats.all_reduce.median` in milliseconds, `size` in bytes)."""
    names = ("num_workers", "size", "time_stats.all_reduce.median", "devices_per_node")
    return [AllReduce(int(row[0]), int(row[1]), row[2], int(row[3])) for row in _numbers(path, names, "vidur's profile of all-reduces")]


def _numbers(path: str | Path, names: Sequence[str], what: str) -> Iterable[list[float]]:
    for where, row in _rows(path, names, what):
        yield [_number(row, name, where) for name in names]


def _rows(path: str | Path, names: Sequence[str], what: str) -> Iterable[tuple[str, dict[str, str | None]]]:
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            for name in names:
                if name not in (rows.fieldnames or ()):
                    raise InputError(f'no column "{name}"; expected {what}', where=f"{path}:1")
            for line, row in enumerate(rows, start=2):
                if line > MOST_ROWS:
                    raise InputError(f"more than {MOST_ROWS} rows", where=str(path))
                yield f"{path}:{line}", row
    except OSError as error:
        raise InputError(error.strerror or "cannot be read", where=str(path)) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"not a CSV file: {one_line(str(error), 80)}", where=str(path)) from None


def _number(row: dict[str, str | None], name: str, where: str) -> float:
    text = row.get(name)
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not 0 < value < 1e12:
        raise InputError(f'column "{name}": found "{one_line(str(text), 40)}"; expected a positive number', where=where)
    return value


def read_vidur(path: str | Path) -> list[Point]:
    """Reads the points of vidur's profiling CSV of linear operators (`time_stats.<op>.median` in milliseconds).

    Matrix products become qkv, o, gate_up and down; norm, rope, activation and addition keep their bytes. Unknown columns are ignored; a
    bad number in a known column raises an `InputError` that names the line.
    """
    names = ("num_tokens", "num_tensor_parallel_workers", "n_embd", "n_expanded_embd", "n_head", "n_kv_head")
    return [point for where, row in _rows(path, names, "vidur's profile of linear operators") for point in _vidur_row(row, where)]


def _vidur_row(row: dict[str, str | None], where: str) -> list[Point]:
    names = ("num_tokens", "n_embd", "n_expanded_embd", "num_tensor_parallel_workers")
    tokens, hidden, wide, tp = (int(_number(row, name, where)) for name in names)
    kv, gated = _number(row, "n_kv_head", where) / _number(row, "n_head", where), (row.get("use_gated_mlp") or "True") == "True"
    found = []
    for column, (op, shape) in _VIDUR.items():
        if row.get(f"time_stats.{column}.median"):
            n, k = shape(hidden, wide, kv, tp, gated)
            found.append(Point(op, tokens, n, k, _number(row, f"time_stats.{column}.median", where)))
    for column, (op, moved) in _VIDUR_ELEMENTS.items():
        if row.get(f"time_stats.{column}.median"):
            found.append(
                Point(op, tokens, hidden, 1, _number(row, f"time_stats.{column}.median", where), moved=tokens * moved(hidden, wide, kv, tp))
            )
    return found
