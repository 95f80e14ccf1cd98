"""Prometheus' answer to a range query for a latency histogram, as `query_range` returns it.

Series are cumulative counters per upper bound (`le`). Knative's activator counted milliseconds up to 1.18
(`activator_request_latencies_bucket`); since 1.19 the OpenTelemetry metric `kn.serving.invocation.duration` counts seconds. A counter that
drops was reset, and then counts from 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import read_json
from armillary.scheduling.offloading.functions.curves import Floats
from armillary.scheduling.offloading.runtime.controller import Metrics
from armillary.scheduling.offloading.runtime.histogram import bucket_quantile

from .request_logs import LONGEST_S, Log, spread

#: Metrics by the beginning of their names, with dots as underscores, and the unit of their bounds in ms.
UNITS = {"activator_request_latencies": 1.0, "revision_app_request_latencies": 1.0, "kn_serving_invocation_duration": 1e3}
MOST_SERIES, MOST_SAMPLES = 20_000, 5_000_000
_LABELS = ("revision_name", "kn_revision_name", "revision")


@dataclass(frozen=True)
class Histogram:
    """Requests per period and bucket of one revision: bounds in ms, times at which the counters were read, counts [periods, buckets]."""

    bounds_ms: Floats
    times_s: Floats
    counts: Floats

    def metrics(self, window_s: float = 600.0, long_window_s: float = 30_000.0) -> list[Metrics]:
        """What Gaia's controller sees at each time after the first; unknown before the first request."""
        found = []
        total = np.concatenate([np.zeros((1, self.counts.shape[1])), np.cumsum(self.counts, axis=0)])
        for k in range(1, len(self.times_s)):
            now = float(self.times_s[k])
            minute, half_hour, short, long = (
                total[k] - total[np.searchsorted(self.times_s, now - s)] for s in (60.0, 1800.0, window_s, long_window_s)
            )
            known = total[k].sum() > 0
            rate_1m, rate_30m = (float(minute.sum() / 60), float(half_hour.sum() / 1800)) if known else (None, None)
            found.append(Metrics(now, rate_1m, rate_30m, _quantile(self.bounds_ms, short), _quantile(self.bounds_ms, long)))
        return found


def _quantile(bounds: Floats, counts: Floats) -> float | None:
    found = float(bucket_quantile(0.95, bounds, counts))
    return None if math.isnan(found) else found


def read_prometheus(path: str | Path, revision: str = "") -> Histogram:
    """Reads the histogram of one revision; without a name there must be one only, or none must be named."""
    where = str(path)
    answer = read_json(path)
    series = _series(answer, where)
    names = sorted({name for labels, _ in series if (name := _revision(labels))})
    if revision and revision not in names:
        raise InputError(f'found no revision "{one_line(revision, 60)}"; expected one of {", ".join(names[:8]) or "none"}', where=where)
    if not revision and len(names) > 1:
        raise InputError(f"found the revisions {one_line(', '.join(names[:8]), 160)}; choose one with --revision", where=where)
    chosen = [(labels, values) for labels, values in series if not revision or _revision(labels) == revision]
    unit = _unit(chosen, where)
    times = np.unique(np.concatenate([values[:, 0] for _, values in chosen]))
    if len(times) < 2 or times[-1] - times[0] > LONGEST_S:
        raise InputError(f"found {len(times)} times; expected at least two, at most {LONGEST_S:g} s apart", where=where)
    bounds = sorted({_bound(labels, where) for labels, _ in chosen})
    if len(bounds) < 2 or not math.isinf(bounds[-1]):
        raise InputError("found no bucket +Inf beside others; expected the buckets of a histogram", where=where)
    if len(bounds) * len(times) > MOST_SAMPLES:
        raise InputError(f"found {len(bounds)} buckets at {len(times)} times; expected at most {MOST_SAMPLES:,} values", where=where)
    cumulative = np.zeros((len(times) - 1, len(bounds)))
    for labels, values in chosen:
        cumulative[:, bounds.index(_bound(labels, where))] += _increases(values, times)
    counts = np.diff(cumulative, axis=1, prepend=0.0)
    if counts.min() < -1e-6 * max(1.0, cumulative.max()):
        k, b = np.unravel_index(int(np.argmin(counts)), counts.shape)
        raise InputError(f"found fewer requests below {bounds[b]:g} than below a lower bound, at {times[k + 1]:.0f}; "
                         "expected cumulative buckets", where=where)  # fmt: skip
    return Histogram(np.array(bounds[:-1]) * unit, times - times[0], np.maximum(counts, 0.0))


def log_of(found: Histogram, where: str) -> Log:
    """The histogram as single requests, evenly over each period and bucket."""
    return spread(found.counts.tolist(), found.times_s.tolist(), found.bounds_ms.tolist(), where)


def _series(answer: Any, where: str) -> list[tuple[Mapping[str, Any], Floats]]:
    data = answer.get("data") if isinstance(answer, dict) else None
    result = data.get("result") if isinstance(data, dict) else None
    if not isinstance(result, list) or not result:
        raise InputError("found no data.result; expected the answer of Prometheus to a range query", where=where)
    if len(result) > MOST_SERIES:
        raise InputError(f"found {len(result):,} series; expected at most {MOST_SERIES:,}", where=where)
    found: list[tuple[Mapping[str, Any], Floats]] = []
    total = 0
    for k, one in enumerate(result):
        labels = one.get("metric") if isinstance(one, dict) else None
        values = one.get("values") if isinstance(one, dict) else None
        if not isinstance(labels, dict) or not isinstance(values, list):
            raise InputError(f"data.result[{k}]: expected metric and values of a range query", where=where)
        total += len(values)
        if total > MOST_SAMPLES:
            raise InputError(f"found more than {MOST_SAMPLES:,} samples; expected fewer", where=where)
        if "le" in labels and values:
            found.append((labels, _samples(values, f"{where}: data.result[{k}].values")))
    if not found:
        raise InputError("found no series with the label le; expected the buckets of a histogram", where=where)
    return found


def _samples(values: Sequence[Any], where: str) -> Floats:
    out = np.zeros((len(values), 2))
    for k, pair in enumerate(values):
        if not isinstance(pair, list) or len(pair) != 2 or type(pair[0]) not in (int, float) or not isinstance(pair[1], str):
            raise InputError(f"entry {k}: expected [seconds, text]", where=where)
        try:
            out[k] = float(pair[0]), float(pair[1])
        except (ValueError, OverflowError):
            raise InputError(f'entry {k}: found "{one_line(pair[1], 40)}"; expected a number', where=where) from None
    if not (np.isfinite(out).all() and np.abs(out[:, 0]).max() <= 1e11):
        raise InputError("found a value that is not finite; expected counters", where=where)
    if out[:, 1].min() < 0 or out[:, 1].max() > 1e15:
        bad = out[(out[:, 1] < 0) | (out[:, 1] > 1e15), 1][0]
        raise InputError(f"found {bad:g}; expected counters from 0 to 1e15, whose rates are not negative", where=where)
    if (np.diff(out[:, 0]) <= 0).any():
        raise InputError("found times that do not increase; expected the samples of a range query", where=where)
    return out


def _increases(values: Floats, times: Floats) -> Floats:
    """What a counter rose by in each period; a drop is a reset, after which it counts from 0."""
    known = np.diff(values[:, 1])
    rises = np.where(known < 0, values[1:, 1], known)
    found = np.zeros(len(times) - 1)
    np.add.at(found, np.searchsorted(times, values[1:, 0]) - 1, rises)
    # A series that begins later than the first time rose from 0.
    first = int(np.searchsorted(times, values[0, 0]))
    if first > 0:
        found[first - 1] += values[0, 1]
    return found


def _unit(series: Sequence[tuple[Mapping[str, Any], Floats]], where: str) -> float:
    name = str(series[0][0].get("__name__", ""))
    plain = name.replace(".", "_")
    for start, unit in UNITS.items():
        if plain.startswith(start):
            return 1.0 if "milliseconds" in plain else unit
    if plain.endswith(("_seconds_bucket", "_duration_bucket")):
        return 1e3
    raise InputError(f'found the metric "{one_line(name, 80)}"; expected one of {", ".join(UNITS)}', where=where)


def _revision(labels: Mapping[str, Any]) -> str:
    return next((str(labels[name]) for name in _LABELS if name in labels), "")


def _bound(labels: Mapping[str, Any], where: str) -> float:
    text = str(labels["le"])
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not found > 0:
        raise InputError(f'found the bound le="{one_line(text, 40)}"; expected a positive number or +Inf', where=where)
    return found
