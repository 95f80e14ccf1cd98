"""A simulated meter over a trace, real or virtual: readings as RAPL or NVML give them, of a power that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from armillary.runtime.energy.meters.readings import Readings
from armillary.runtime.energy.model.observed import IDLE, Metered
from armillary.runtime.energy.traces.tasks import Real, TaskTrace, Whole

from .power import MeterModel, Truth
from .sweep import call_factors, swept


@dataclass(frozen=True)
class Drawn:
    """What one domain drew: the metered run, and the true mean watts of each column with its share of the base."""

    run: Metered
    truth: dict[str, float]


def drawn(
    trace: TaskTrace, tile: Whole, workers: Sequence[int], truth: Truth, meter: MeterModel, domain: str, rng: np.random.Generator
) -> Drawn:
    """Lets the meter read one domain of a run from its first start to its last end; `tile` is the tile that each task works on."""
    mine = np.zeros(len(trace.workers), bool)
    mine[list(workers)] = True
    rows = np.flatnonzero(mine[trace.worker])
    names = list(trace.types)
    busy = np.array([i not in trace.moves for i in range(len(names))] + [False])
    factors = _factors(truth, rows, tile, rng)
    base = np.array([truth.watts.get(name, truth.copy_w) for name in names] + [truth.stranger_w])
    low, high = trace.span
    other = _stranger(truth, low, high, rng)
    start = np.concatenate((trace.start[rows], other[0]))
    end = np.concatenate((trace.end[rows], other[1]))
    type_ = np.concatenate((trace.type[rows], np.full(len(other[0]), len(names), np.int64)))
    watts = base[type_] * np.concatenate((factors, np.ones(len(other[0]))))
    asked, noted = _moments(meter, low, high, rng)
    order = np.argsort(asked, kind="stable")
    energy = np.empty(len(asked))
    found, by_type = _sweep(start, end, type_, watts, busy, len(workers), truth, names, asked[order])
    energy[order] = found
    if meter.window:
        value = (energy[: len(noted)] - energy[len(noted) :]) / meter.window
        value = np.floor(value / meter.quantum) * meter.quantum if meter.quantum else value
        readings = Readings(domain, noted, value, "power")
    else:
        value = np.floor(energy / meter.quantum) * meter.quantum if meter.quantum else energy
        if meter.wrap:
            value = np.mod(value, meter.wrap)
        readings = Readings(domain, noted, value, "energy", meter.wrap)
    return Drawn(Metered(trace, readings, tuple(workers)), _true_powers(trace, rows, by_type, truth, len(workers), asked))


def _factors(truth: Truth, rows: Whole, tile: Whole, rng: np.random.Generator) -> Real:
    if not truth.call_sigma:
        return np.ones(len(rows))
    if truth.per_tile:
        tiles = int(tile.max(initial=0)) + 1
        return np.asarray(call_factors(rng.standard_normal(tiles), truth.call_sigma))[tile[rows]]
    # Drawn for all tasks, so that a task has its factor whichever domain it ran in.
    return np.asarray(call_factors(rng.standard_normal(len(tile)), truth.call_sigma))[rows]


def _stranger(truth: Truth, low: int, high: int, rng: np.random.Generator) -> tuple[Whole, Whole]:
    """Stretches in which another process runs: 0.1 to 2 s each, and pauses of 0.245 to 4.655 s, so that it is there 30 % of the time."""
    starts: list[int] = []
    ends: list[int] = []
    at = float(low)
    while truth.stranger_w:
        at += rng.uniform(0.245e9, 4.655e9) * (rng.random() if not starts else 1.0)
        if at >= high:
            break
        lasts = rng.uniform(0.1e9, 2e9)
        starts.append(round(at))
        ends.append(round(at + lasts))
        at += lasts
    return np.array(starts, np.int64), np.array(ends, np.int64)


def _moments(meter: MeterModel, low: int, high: int, rng: np.random.Generator) -> tuple[Whole, Whole]:
    """(moments whose energy is asked for, times that the meter notes); for a window its beginnings follow its ends."""
    count = int((high - low) * 1e-9 / meter.period) + 1
    jitter = rng.uniform(-meter.jitter, meter.jitter, count) if meter.jitter else np.zeros(count)
    delay = rng.uniform(0.0, meter.delay, count) if meter.delay else np.zeros(count)
    noted = low + np.round((np.arange(count) * meter.period + np.abs(jitter[:1]) + jitter) * 1e9).astype(np.int64)
    noted = np.maximum.accumulate(np.maximum(noted, low))
    asked = noted + np.round(delay * 1e9).astype(np.int64)
    if meter.window:
        asked = np.concatenate((asked, np.maximum(asked - round(meter.window * 1e9), low)))
    return asked, noted


def _sweep(
    start: Whole, end: Whole, type_: Whole, watts: Real, busy: np.ndarray, workers: int, truth: Truth, names: list[str], query: Whole
) -> tuple[Real, Real]:
    n = len(start)
    time = np.concatenate((start, end))
    sign = np.concatenate((np.ones(n, np.int64), -np.ones(n, np.int64)))
    order = np.lexsort((np.concatenate((np.arange(n), np.arange(n))), sign, time))
    both_type, both_watts = np.concatenate((type_, type_)), np.concatenate((watts, watts))
    a, b = (names.index(one) if one in names else -1 for one in truth.pair)
    energy, by_type = np.zeros(len(query)), np.zeros(len(busy) + 1)
    swept(
        time[order], sign[order], both_type[order], both_watts[order], busy, workers, truth.idle_w, truth.base_w, truth.turbo,
        truth.contention, a, b, truth.drift, query, energy, by_type, np.zeros(len(busy)), np.zeros(len(busy), np.int64),
    )  # fmt: skip
    return energy, by_type


def _true_powers(trace: TaskTrace, rows: Whole, by_type: Real, truth: Truth, workers: int, asked: Whole) -> dict[str, float]:
    """Mean watts of each type while it ran, until the last reading; a busy or idle worker also has its share of the base."""
    until = int(asked.max())
    found = {}
    warm = 1.0 + truth.drift * 0.5e-9 * (until - trace.span[0])
    share = truth.base_w / workers * warm
    spent = np.minimum(trace.end, until) - np.minimum(trace.start, until)
    for j, name in enumerate(trace.types):
        ns = int(spent[rows][trace.type[rows] == j].sum())
        if ns > 0:
            found[name] = float(by_type[j]) / (ns * 1e-9) + (0.0 if j in trace.moves else share)
    found[IDLE] = truth.idle_w * warm + share
    return found


def isolated(
    trace: TaskTrace, workers: Sequence[int], truth: Truth, meter: MeterModel, rng: np.random.Generator, seconds: float = 2.0
) -> dict[str, float]:
    """Watts per worker if all of a domain's workers run one type alone for some seconds, as the meter reads them; and of idle ones."""
    count = len(workers)

    def watts(alone: TaskTrace, of: Truth) -> float:
        over = drawn(alone, np.arange(len(alone)), range(count), of, meter, "alone", rng).run.intervals
        return float(over.energy.sum() / over.lengths.sum()) / count

    found = {IDLE: watts(_nothing(trace, count, seconds), truth)}
    mine = np.isin(trace.worker, list(workers))
    for j, name in enumerate(trace.types):
        rows = np.flatnonzero(mine & (trace.type == j))
        if rows.size:
            lasting = max(100_000, int((trace.end[rows] - trace.start[rows]).mean()))
            alone = _only(trace, j, lasting, count, seconds)
            found[name] = watts(alone, truth) - (found[IDLE] if j in trace.moves else 0.0)
    return found


def _only(trace: TaskTrace, type_: int, lasting: int, workers: int, seconds: float) -> TaskTrace:
    """Calls of one type, one after another on all workers."""
    each = max(1, round(seconds * 1e9 / lasting))
    start = np.tile(np.arange(each, dtype=np.int64) * lasting, workers)
    worker = np.repeat(np.arange(workers, dtype=np.int64), each)
    kind = np.full(len(start), type_, np.int64)
    return TaskTrace(start, start + lasting, kind, worker, trace.types, _names(workers), ("cpu",) * workers, trace.moves)


def _nothing(trace: TaskTrace, workers: int, seconds: float) -> TaskTrace:
    """No task for some seconds, between two tasks of no length."""
    moments, nil = np.array([0, round(seconds * 1e9)], np.int64), np.zeros(2, np.int64)
    return TaskTrace(moments, moments.copy(), nil, nil.copy(), trace.types, _names(workers), ("cpu",) * workers)


def _names(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))
