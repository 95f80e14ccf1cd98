"""The answers to Prometheus' range queries, in JSON.

`{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {…}, "values": [[unix seconds, "value"], …]}]}}`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import read_json
from armillary.scheduling.microservices.application.application import Floats

MOST_SERIES, MOST_POINTS = 100_000, 5_000_000
MOST_SECONDS = 86_400


@dataclass(frozen=True, eq=False)
class Series:
    """One time series: its labels, unix seconds, and values."""

    labels: dict[str, str]
    times_s: Floats
    values: Floats


def read_range(path: str | Path) -> list[Series]:
    """The series in the answer to a range query."""
    return series_of(read_json(path), str(path))


def series_of(document: Any, where: str) -> list[Series]:
    """The series in the answer to a range query, as JSON."""
    if not isinstance(document, dict) or document.get("status") != "success":
        status = document.get("error", document.get("status")) if isinstance(document, dict) else type(document).__name__
        raise InputError(f"status: found {_shown(status)}; expected a successful answer of Prometheus", where=where)
    data = document.get("data")
    if not isinstance(data, dict) or data.get("resultType") != "matrix" or not isinstance(data.get("result"), list):
        kind = data.get("resultType") if isinstance(data, dict) else data
        raise InputError(f"data.resultType: found {_shown(kind)}; expected matrix, which a range query gives", where=where)
    if len(data["result"]) > MOST_SERIES:
        raise InputError(f"found {len(data['result']):,} series; expected at most {MOST_SERIES:,}", where=where)
    found, points = [], 0
    for i, one in enumerate(data["result"]):
        at = f"data.result[{i}]"
        if not isinstance(one, dict) or not isinstance(one.get("values"), list) or not isinstance(one.get("metric", {}), dict):
            raise InputError(f"{at}: found {_shown(one)}; expected metric and values", where=where)
        points += len(one["values"])
        if points > MOST_POINTS:
            raise InputError(f"found more than {MOST_POINTS:,} points; expected fewer", where=where)
        pairs = [_point(pair, f"{at}.values[{k}]", where) for k, pair in enumerate(one["values"])]
        times, values = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
        if (np.diff(times) <= 0).any():
            raise InputError(f"{at}.values: found times that do not increase; expected a series", where=where)
        found.append(Series({str(k): str(v) for k, v in one.get("metric", {}).items()}, times, values))
    return found


def _point(pair: Any, at: str, where: str) -> tuple[float, float]:
    if not isinstance(pair, list) or len(pair) != 2 or isinstance(pair[0], bool) or not isinstance(pair[0], int | float):
        raise InputError(f"{at}: found {_shown(pair)}; expected [unix seconds, text]", where=where)
    try:
        value = float(pair[1]) if isinstance(pair[1], str) else math.nan
    except ValueError:
        value = math.inf
    if isinstance(pair[1], str) and pair[1] == "NaN":
        return float(pair[0]), math.nan
    if not math.isfinite(value) or abs(pair[0]) > 1e12:
        raise InputError(f"{at}: found {_shown(pair)}; expected unix seconds and a number as text", where=where)
    return float(pair[0]), value


def read_rates(path: str | Path) -> Floats:
    """Requests per second for each second, summed over all series, between samples as the last one said; NaN counts as 0."""
    series = [one for one in read_range(path) if len(one.times_s)]
    where = str(path)
    if not series:
        raise InputError("found no samples; expected at least one", where=where)
    start, stop = min(one.times_s[0] for one in series), max(one.times_s[-1] for one in series)
    seconds = int(stop - start) + 1
    if seconds > MOST_SECONDS:
        raise InputError(f"found {seconds:,} seconds; expected at most {MOST_SECONDS:,}", where=where)
    at = start + np.arange(seconds)
    total = np.zeros(seconds)
    for one in series:
        place = np.searchsorted(one.times_s, at, "right") - 1
        values = np.where(np.isnan(one.values), 0.0, one.values)
        total += np.where(place >= 0, values[np.maximum(place, 0)], 0.0)
    if (total < 0).any():
        raise InputError("found requests per second below 0; expected at least 0", where=where)
    return total


def _shown(value: object) -> str:
    return one_line(repr(value), 40)
