"""Jaeger's JSON: `data[].{traceID, spans[], processes}`, times in microseconds.

A span is `{spanID, operationName, references[].{refType, traceID, spanID}, startTime, duration, processID}`, and its service is
`processes.<processID>.serviceName`. A span without a CHILD_OF reference into its trace is the root.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line
from armillary.files import read_json

from .documents import Read
from .traces import Span, application_from, linked

MOST_SPANS = 2_000_000


def read_jaeger(path: str | Path, *, threads: int = 16, replicas: int = 2, slo_ms: float | None = None) -> Read:
    """The application that Jaeger's traces describe."""
    traces, dropped = traces_of(read_json(path), str(path))
    return application_from(traces, str(path), threads=threads, replicas=replicas, slo_ms=slo_ms, dropped=dropped)


def traces_of(document: Any, where: str) -> tuple[list[Span], int]:
    """(whole traces, the number that is not whole)."""
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, list) or not data:
        raise InputError(f"data: found {_shown(data)}; expected a list of traces, as Jaeger exports", where=where)
    found, dropped, many = [], 0, 0
    zero = _first_start(data)
    for i, trace in enumerate(data):
        if not isinstance(trace, dict) or not isinstance(trace.get("spans"), list) or not isinstance(trace.get("processes"), dict):
            raise InputError(f"data[{i}]: found {_shown(trace)}; expected traceID, spans and processes", where=where)
        many += len(trace["spans"])
        if many > MOST_SPANS:
            raise InputError(f"found more than {MOST_SPANS:,} spans; expected at most that many", where=where)
        spans: dict[str, Span] = {}
        parents: dict[str, str] = {}
        for k, span in enumerate(trace["spans"]):
            at = f"data[{i}].spans[{k}]"
            key, made = _span(span, trace["processes"], at, where, zero)
            if key in spans:
                raise InputError(f"{at}.spanID: found {_shown(key)} twice in a trace; expected it once", where=where)
            spans[key] = made
            above = _parent(span, trace.get("traceID"))
            if above is not None:
                parents[key] = above
        whole = linked(spans, parents)
        dropped += whole is None
        found += [] if whole is None else [whole]
    return found, dropped


def _first_start(data: list[Any]) -> float:
    """The first start that can be read, from which times are counted, because seconds since 1970 leave no room for microseconds."""
    for trace in data:
        for span in trace["spans"] if isinstance(trace, dict) and isinstance(trace.get("spans"), list) else []:
            start = span.get("startTime") if isinstance(span, dict) else None
            if isinstance(start, int | float) and not isinstance(start, bool) and 0 <= start <= 1e18:
                return start
    return 0


def _span(span: Any, processes: dict[str, Any], at: str, where: str, zero: float) -> tuple[str, Span]:
    if not isinstance(span, dict):
        raise InputError(f"{at}: found {_shown(span)}; expected a span", where=where)
    process = processes.get(span["processID"]) if isinstance(span.get("processID"), str) else None
    service = process.get("serviceName") if isinstance(process, dict) else None
    if not isinstance(service, str) or not service:
        raise InputError(f"{at}.processID: found {_shown(span.get('processID'))}; expected a process with a serviceName", where=where)
    key = span.get("spanID")
    if not isinstance(key, str) or not key:
        raise InputError(f"{at}.spanID: found {_shown(key)}; expected text", where=where)
    times = []
    for name in ("startTime", "duration"):
        value = span.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e18:
            raise InputError(f"{at}.{name}: found {_shown(value)}; expected microseconds of at least 0", where=where)
        times.append(1e-6 * (value - (zero if name == "startTime" else 0)))
    return key, Span(service, times[0], times[1])


def _parent(span: dict[str, Any], trace: Any) -> str | None:
    references = span.get("references")
    for one in references if isinstance(references, list) else []:
        if isinstance(one, dict) and one.get("refType") == "CHILD_OF" and one.get("traceID", trace) == trace and one.get("spanID"):
            return str(one["spanID"])
    return None


def _shown(value: object) -> str:
    return one_line(repr(value), 40)
