"""Problems as JSON: nodes, links, services and requests; and networks as GraphML.

`nodes[]{id, lat, lon, capacity, storage}`, `links[]{a, b, mbps}`, `services[]{id, price, cpu, storage, ms}` and
`requests[]{user, chain, mb}`. Each request says where its user is: `origin` is a node or an object {node: share}, or `lat` and `lon` are
given, whose nearest node is home then. `rate` (per second, 1) and `deadline_ms` (none) are optional.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import read_json
from armillary.scheduling.provisioning.problem.drawing import AT_HOME, ELSEWHERE, kilometres
from armillary.scheduling.provisioning.problem.problem import MOST_NODES, MOST_PAIRS, MOST_SERVICES, MOST_USERS, Problem, problem

_PARTS = ("nodes", "links", "services", "requests")
_FIELDS = {
    "nodes": ("lat", "lon", "capacity", "storage"),
    "links": ("mbps",),
    "services": ("price", "cpu", "storage", "ms"),
    "requests": ("mb",),
}
_MOST = {"nodes": MOST_NODES, "links": MOST_NODES * 64, "services": MOST_SERVICES, "requests": MOST_USERS}


def read_problem(path: str | Path, *, network: str = "", alpha: float = 0.5) -> Problem:
    """The problem in a JSON file; `network` names a GraphML file whose edges replace its links."""
    document = read_json(path)
    if not isinstance(document, dict) or not {"nodes", "services", "requests"} <= document.keys():
        found = ", ".join(list(document)[:6]) if isinstance(document, dict) else type(document).__name__
        raise InputError(f'found "{one_line(found, 60)}"; expected an object with {", ".join(_PARTS)}', where=str(path))
    parts = {name: _records(document.get(name, []), name, path) for name in _PARTS}
    if network:
        parts["links"] = read_network(network)
    where = str(path)
    homes = _Homes(parts["nodes"], len(parts["requests"]), where)
    requests = [
        {**request, "chain": _chain(request, i, where), "origin": homes.of(request, i)} for i, request in enumerate(parts["requests"])
    ]
    return problem(parts["nodes"], parts["links"], parts["services"], requests, alpha=alpha, where=where)


def read_network(path: str | Path) -> list[dict[str, Any]]:
    """The links of a GraphML file: its edges, with the attribute `rate` ("1 Gb/s", or bytes per second); 1 Gbit/s where there is none."""
    from armillary.cluster.edges import read_edges

    if not str(path).lower().endswith((".graphml", ".xml")):
        raise InputError("found another kind of file; expected GraphML (.graphml, .xml)", where=str(path))
    try:
        edges = read_edges(str(path), None)
    except ValueError as error:
        said = one_line(str(error))
        raise InputError(said, where=None if said.startswith(str(path)) else str(path)) from None
    mbps = np.where(np.isnan(edges.rate), 1000.0, edges.rate * 8e-6)
    return [{"a": edges.names[a], "b": edges.names[b], "mbps": float(rate)} for a, b, rate in zip(edges.u.tolist(), edges.v.tolist(), mbps)]


def _records(found: object, name: str, path: str | Path) -> list[dict[str, Any]]:
    if not isinstance(found, list) or not all(isinstance(record, dict) for record in found):
        raise InputError(f"{name}: expected a list of objects", where=str(path))
    if len(found) > _MOST[name]:
        raise InputError(f"{name}: found {len(found):,}; expected at most {_MOST[name]:,}", where=str(path))
    names = {"nodes": ("id",), "links": ("a", "b"), "services": ("id",), "requests": ("user",)}[name]
    for i, record in enumerate(found):
        at = f"{name}[{i}]"
        for key in names:
            if not isinstance(record.get(key), str | int) or isinstance(record.get(key), bool):
                raise InputError(f"{at}.{key}: found {_shown(record.get(key))}; expected a name", where=str(path))
        for key in (*_FIELDS[name], *(key for key in ("rate", "deadline_ms") if name == "requests" and key in record)):
            _number(record, key, at, str(path))
    return found


def _number(record: Mapping[str, Any], key: str, at: str, where: str) -> float:
    value = record.get(key)
    # A whole number of hundreds of digits is a number in JSON and no float.
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > 1e15 or not math.isfinite(value):
        raise InputError(f"{at}.{key}: found {_shown(value)}; expected a number of at most 1e15", where=where)
    return float(value)


def _chain(request: Mapping[str, Any], i: int, where: str) -> list[str]:
    chain = request.get("chain")
    if not isinstance(chain, list) or not chain or not all(isinstance(name, str | int) and not isinstance(name, bool) for name in chain):
        raise InputError(f"requests[{i}].chain: found {_shown(chain)}; expected a list of services", where=where)
    return [str(name) for name in chain]


class _Homes:
    """Where the requests of each user enter."""

    def __init__(self, nodes: Sequence[Mapping[str, Any]], users: int, where: str) -> None:
        self.names = [str(node["id"]) for node in nodes]
        self.where = where
        if not nodes:
            raise InputError("nodes: found none; expected at least one", where=where)
        if users * len(nodes) > MOST_PAIRS:
            raise InputError(f"found {users:,} users and {len(nodes):,} nodes; expected at most {MOST_PAIRS:,} pairs", where=where)
        self.places = np.array([[node["lat"], node["lon"]] for node in nodes], np.float64)
        self.apart = kilometres(self.places, self.places)

    def of(self, request: Mapping[str, Any], i: int) -> dict[str, float]:
        """The share of a request's entries by node."""
        at, given = f"requests[{i}]", request.get("origin")
        if isinstance(given, dict):
            return {name: _number(given, name, f"{at}.origin", self.where) for name in given}
        if isinstance(given, str | int) and not isinstance(given, bool):
            if str(given) not in self.names:
                raise InputError(f"{at}.origin: found {_shown(given)}; expected one of the nodes", where=self.where)
            return {str(given): 1.0}
        if given is not None or "lat" not in request or "lon" not in request:
            raise InputError(f"{at}: found no place; expected origin, as a node or as shares of nodes, or lat and lon", where=self.where)
        place = np.array([[_number(request, "lat", at, self.where), _number(request, "lon", at, self.where)]])
        home = int(kilometres(place, self.places)[0].argmin())
        near = [k for k in np.argsort(self.apart[home], kind="stable").tolist() if k != home][:ELSEWHERE]
        shares = {self.names[home]: AT_HOME if near else 1.0}
        return shares | {self.names[k]: (1 - AT_HOME) / len(near) for k in near}


def _shown(value: object) -> str:
    return one_line(repr(value), 40)
