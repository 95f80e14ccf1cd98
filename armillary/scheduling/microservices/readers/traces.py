"""From traces of calls to an application: shapes of trees become request types, and self times become CPU demands.

The self time of a call is its duration less the union of its children's, which is an upper bound of its CPU time, because waiting and
other work that is not traced count as well. Children that overlap are one parallel group; groups follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from armillary.errors import InputError
from armillary.scheduling.microservices.application.application import MOST_CALLS, MOST_SERVICES, Application, Call, RequestType, Service
from armillary.scheduling.microservices.application.built_in import SLACK

from .documents import Read

#: Request types that are kept, by falling frequency; self times are at least this long.
MOST_SHAPES, LEAST_S = 50, 1e-5


@dataclass
class Span:
    """One call of a service; times in seconds."""

    service: str
    start_s: float
    duration_s: float
    children: list[Span] = field(default_factory=list)


def application_from(
    traces: Sequence[Span], where: str, *, threads: int = 16, replicas: int = 2, slo_ms: float | None = None, dropped: int = 0
) -> Read:  # fmt: skip
    """The application that traces describe: each distinct tree is a request type, and the fifty most frequent are kept.

    threads and replicas are what a trace does not say. Without an objective, a type's is eight times its critical path. Traces in which a
    service stands below itself are dropped and counted, because its threads could wait for each other.
    """
    own: dict[str, list[float]] = {}
    shapes: dict[Call, int] = {}
    starts = []
    for trace in traces:
        shape = _shape(trace, ())
        if shape is None:
            dropped += 1
            continue
        shapes[shape] = shapes.get(shape, 0) + 1
        starts.append(trace.start_s)
        _self_times(trace, own)
    if not shapes:
        raise InputError(f"found no whole trace ({dropped:,} dropped); expected at least one", where=where)
    kept = sorted(shapes.items(), key=lambda item: -item[1])[:MOST_SHAPES]
    used = {call.service for shape, _ in kept for call in shape.walk()}
    if len(used) > MOST_SERVICES:
        raise InputError(f"found {len(used):,} services; expected at most {MOST_SERVICES:,}", where=where)
    services = tuple(_service(name, own[name], threads, replicas) for name in own if name in used)
    total = sum(many for _, many in kept)
    seconds = max(starts) - min(starts)
    rate = float(np.clip(len(starts) / seconds if seconds >= 1 else len(starts), 1e-6, 1e7))
    shares = [many / total for _, many in kept]
    shares[-1] = 1 - sum(shares[:-1])
    names = [f"{shape.service}-{i}" for i, (shape, _) in enumerate(kept)]
    loose = Application("traced", services, tuple(map(RequestType, names, shares, (shape for shape, _ in kept))), 1e7, rate)
    try:
        requests = tuple(
            RequestType(names[r], shares[r], shape, slo_ms or float(10 * np.ceil(100 * SLACK * loose.critical_s(r))))
            for r, (shape, _) in enumerate(kept)
        )
        app = Application("traced", services, requests, max(request.slo_ms or 0.0 for request in requests), rate)
    except InputError as error:
        raise InputError(f"{error.where}: {error.message}", where=where) from None
    return Read(app, None, dropped)


def _service(name: str, self_s: list[float], threads: int, replicas: int) -> Service:
    times = np.maximum(np.array(self_s), LEAST_S)
    mean = float(times.mean())
    return Service(name, threads, min(1e3 * mean, 1e6), float(np.clip(times.std() / mean, 0.0, 100.0)), replicas)


def _shape(span: Span, above: tuple[str, ...]) -> Call | None:
    """The tree of a trace, or None where a service stands below itself."""
    if span.service in above or len(above) >= 64:
        return None
    below = []
    for group in groups_of(span.children):
        made = [_shape(child, (*above, span.service)) for child in group]
        if any(one is None for one in made):
            return None
        below.append(tuple(one for one in made if one is not None))
    return Call(span.service, tuple(below))


def groups_of(children: Sequence[Span]) -> list[list[Span]]:
    """Children in groups that follow each other: a child that starts before all before it have ended is in their group."""
    found: list[list[Span]] = []
    end = -np.inf
    for child in sorted(children, key=lambda one: (one.start_s, one.service)):
        if not found or child.start_s >= end - 1e-9:
            found.append([])
        found[-1].append(child)
        end = max(end, child.start_s + child.duration_s)
    for group in found:
        group.sort(key=lambda one: one.service)
    return found


def self_time(span: Span) -> float:
    """The duration less the union of the children's, within the call."""
    end, covered = span.start_s, 0.0
    last = span.start_s + span.duration_s
    for child in sorted(span.children, key=lambda one: one.start_s):
        start, stop = max(child.start_s, end), min(child.start_s + child.duration_s, last)
        if stop > start:
            covered += stop - start
            end = stop
    return max(span.duration_s - covered, 0.0)


def _self_times(span: Span, found: dict[str, list[float]]) -> None:
    waiting = [span]
    while waiting:
        one = waiting.pop()
        found.setdefault(one.service, []).append(self_time(one))
        waiting += one.children


def linked(spans: dict[str, Span], parents: dict[str, str], most: int = MOST_CALLS) -> Span | None:
    """One tree of spans by their keys, or None if a parent is missing, there is no single root, or there are too many calls."""
    roots = [key for key in spans if key not in parents]
    if len(roots) != 1 or len(spans) > most or any(parent not in spans for parent in parents.values()):
        return None
    for span in spans.values():
        span.children = []
    for key, parent in parents.items():
        spans[parent].children.append(spans[key])
    seen, waiting = 0, [spans[roots[0]]]
    while waiting:
        seen += 1
        waiting += waiting.pop().children
    return spans[roots[0]] if seen == len(spans) else None
