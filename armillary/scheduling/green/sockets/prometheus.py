"""Measurements from a file that holds the answer of a Prometheus query: `/api/v1/query` as JSON, an instant vector.

    curl -s 'http://prometheus:9090/api/v1/query' --data-urlencode 'query=sum by (node) (rate(container_cpu_usage_seconds_total[5m]))'
"""

from __future__ import annotations

import math
from pathlib import Path

from armillary.errors import InputError, one_line
from armillary.files import read_json

MOST_SERIES = 100_000


def read_vector(path: str | Path, label: str = "node") -> dict[str, float]:
    """Values of an instant vector by one of its labels; values that are no finite number are left out."""
    document = read_json(path)
    where = str(path)
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(document, dict) or document.get("status") != "success" or not isinstance(data, dict):
        raise InputError('expected the answer of a Prometheus query with "status": "success"', where=where)
    result = data.get("result")
    if data.get("resultType") != "vector" or not isinstance(result, list) or len(result) > MOST_SERIES:
        raise InputError(f"found {one_line(repr(data.get('resultType')), 40)}; expected a vector", where=where)
    found: dict[str, float] = {}
    for i, series in enumerate(result):
        metric = series.get("metric") if isinstance(series, dict) else None
        value = series.get("value") if isinstance(series, dict) else None
        name = metric.get(label) if isinstance(metric, dict) else None
        if not isinstance(name, str) or not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], str):
            raise InputError(f'result[{i}]: expected a label "{one_line(label, 40)}" and a value', where=where)
        try:
            number = float(value[1])
        except ValueError:
            raise InputError(f'result[{i}]: found "{one_line(value[1], 40)}"; expected a number', where=where) from None
        if math.isfinite(number):
            found[name] = number
    return found
