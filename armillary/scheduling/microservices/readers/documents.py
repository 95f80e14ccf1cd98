"""An application as JSON.

`services[]{name, threads, cpu_ms}` with optional `cv` (1), `replicas` (1), `quota` (cores per replica) and `node`; `requests[]{name, share,
tree}` with an optional `slo_ms`; `slo_ms`; and optional `name` and `rate` (requests per second that the owner sized for). A `tree` is
`{service, calls}`, where `calls` is a list of groups that follow each other, and a group is a list of trees that run in parallel. `rates`
lists requests per second for each second; without it a load is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import read_json
from armillary.scheduling.microservices.application.application import (
    MOST_CALLS,
    MOST_SERVICES,
    MOST_TYPES,
    Application,
    Call,
    Floats,
    RequestType,
    Service,
)

MOST_DEPTH = 64


@dataclass(frozen=True, eq=False)
class Read:
    """An application, the requests per second of each second if the file says, and what was left out of a trace."""

    application: Application
    rates: Floats | None = None
    dropped: int = 0


def read_application(path: str | Path) -> Read:
    """The application in a JSON file."""
    document = read_json(path)
    where = str(path)
    app = application_of(document, where)
    return Read(app, _rates(document, where) if "rates" in document else None)


def application_of(document: Any, where: str) -> Application:
    """The application that a JSON object describes."""
    if not isinstance(document, dict) or "services" not in document or "requests" not in document:
        found = ", ".join(map(str, list(document)[:6])) if isinstance(document, dict) else type(document).__name__
        raise InputError(f'found "{one_line(found, 60)}"; expected an object with services, requests and slo_ms', where=where)
    _only(document, {"name", "services", "requests", "slo_ms", "rate", "rates"}, "", where)
    listed = _records(document, "services", MOST_SERVICES, where), _records(document, "requests", MOST_TYPES, where)
    services = tuple(_service(record, f"services[{i}]", where) for i, record in enumerate(listed[0]))
    requests = tuple(_request(record, f"requests[{i}]", where) for i, record in enumerate(listed[1]))
    slo = document.get("slo_ms")
    if slo is None and all(request.slo_ms is not None for request in requests):
        slo = max(request.slo_ms or 0.0 for request in requests)
    rate = document.get("rate", 100.0)
    try:
        return Application(_text(document.get("name", "application"), "name", where), services, requests, slo, rate)  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(f"{error.where}: {error.message}", where=where) from None


def document_of(app: Application) -> dict[str, Any]:
    """An application as the JSON object that is read."""
    services = [
        {"name": s.name, "threads": s.threads, "cpu_ms": s.cpu_ms, "cv": s.cv, "replicas": s.replicas}
        | ({} if s.quota is None else {"quota": s.quota}) | ({"node": s.node} if s.node else {})
        for s in app.services
    ]  # fmt: skip
    requests = [
        {"name": r.name, "share": r.share} | ({} if r.slo_ms is None else {"slo_ms": r.slo_ms}) | {"tree": _tree_document(r.tree)}
        for r in app.requests
    ]  # fmt: skip
    return {"name": app.name, "slo_ms": app.slo_ms, "rate": app.rate, "services": services, "requests": requests}


def _tree_document(call: Call) -> dict[str, Any]:
    if not call.groups:
        return {"service": call.service}
    return {"service": call.service, "calls": [[_tree_document(one) for one in group] for group in call.groups]}


def _service(record: Mapping[str, Any], at: str, where: str) -> Service:
    _only(record, {"name", "threads", "cpu_ms", "cv", "replicas", "quota", "node"}, at, where)
    for key in ("threads", "cpu_ms"):
        if key not in record:
            raise InputError(f"{at}: found no {key}; expected one", where=where)
    return Service(
        _text(record.get("name"), f"{at}.name", where), record["threads"], record["cpu_ms"], record.get("cv", 1.0),
        record.get("replicas", 1), _quota(record.get("quota"), at, where), _text(record.get("node", ""), f"{at}.node", where, empty=True),
    )  # fmt: skip


def _quota(value: Any, at: str, where: str) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InputError(f"{at}.quota: found {_shown(value)}; expected cores above 0", where=where)
    return value


def _request(record: Mapping[str, Any], at: str, where: str) -> RequestType:
    _only(record, {"name", "share", "tree", "slo_ms"}, at, where)
    room = [MOST_CALLS]
    tree = _tree(record.get("tree"), f"{at}.tree", where, room, 0)
    return RequestType(_text(record.get("name"), f"{at}.name", where), record.get("share"), tree, record.get("slo_ms"))  # type: ignore[arg-type]


def _tree(value: Any, at: str, where: str, room: list[int], depth: int) -> Call:
    room[0] -= 1
    if room[0] < 0 or depth > MOST_DEPTH:
        most = f"{MOST_CALLS:,} calls, {MOST_DEPTH} deep"
        raise InputError(f"{one_line(at, 60)}: found more calls than fit; expected at most {most}", where=where)
    if not isinstance(value, dict):
        raise InputError(f"{one_line(at, 80)}: found {_shown(value)}; expected an object with service and calls", where=where)
    _only(value, {"service", "calls"}, at, where)
    groups = value.get("calls", [])
    if not isinstance(groups, list) or not all(isinstance(group, list) for group in groups):
        raise InputError(f"{one_line(at, 80)}.calls: found {_shown(groups)}; expected a list of groups, which are lists", where=where)
    made = tuple(
        tuple(_tree(one, f"{at}.calls[{i}][{k}]", where, room, depth + 1) for k, one in enumerate(group)) for i, group in enumerate(groups)
    )
    return Call(_text(value.get("service"), f"{at}.service", where), made)


def _rates(document: Mapping[str, Any], where: str) -> Floats:
    rates = document["rates"]
    if not isinstance(rates, list) or not 1 <= len(rates) <= 86_400:
        raise InputError(f"rates: found {_shown(rates)}; expected a list of 1 to 86,400 requests per second", where=where)
    for i, rate in enumerate(rates):
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1e7:
            raise InputError(f"rates[{i}]: found {_shown(rate)}; expected requests per second from 0 to 1e7", where=where)
    return np.array(rates, np.float64)


def _records(document: Mapping[str, Any], name: str, most: int, where: str) -> list[dict[str, Any]]:
    found = document[name]
    if not isinstance(found, list) or not all(isinstance(record, dict) for record in found):
        raise InputError(f"{name}: found {_shown(found)}; expected a list of objects", where=where)
    if not 1 <= len(found) <= most:
        raise InputError(f"{name}: found {len(found):,}; expected 1 to {most:,}", where=where)
    return found


def _only(record: Mapping[str, Any], known: set[str], at: str, where: str) -> None:
    strange = [key for key in record if key not in known]
    if strange:
        place = f"{one_line(at, 80)}: " if at else ""
        raise InputError(f"{place}found {_shown(strange[0])}; expected {', '.join(sorted(known))}", where=where)


def _text(value: Any, at: str, where: str, *, empty: bool = False) -> str:
    if not isinstance(value, str) or not (value or empty) or len(value) > 500:
        raise InputError(f"{one_line(at, 80)}: found {_shown(value)}; expected a name", where=where)
    return value


def _shown(value: object) -> str:
    return one_line(repr(value), 40)
