"""Functions, nodes and calls as JSON.

`functions[]{name, work_gflop, parallel_fraction, memory_mb}` with optional `io_ms`, `affinity{node_type: factor}`, `memory_bound`, `cold_s`
and `vcpu` (what the owner asks for). `nodes[]{type, count, cores}` with optional `speed`, `price` and `memory_mb`; the built-in ones where
there are none. `standard` names the node type that times are relative to, the first one by default. `calls[]{function, arrival_s,
deadline_s}` with an optional `size`; drawn where there are none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import read_json
from armillary.scheduling.functions.problem.fleet import MOST_TYPES, Fleet, Floats, Ints, NodeType, built_in
from armillary.scheduling.functions.problem.functions import MOST_FUNCTIONS, Profile
from armillary.scheduling.functions.workload import MOST_CALLS

KINDS = "an object with functions, and if you have them nodes and calls"


@dataclass(frozen=True)
class Listed:
    """What a file says about calls: functions by number, times in seconds, and input sizes (None if it does not say)."""

    function: Ints
    arrival_s: Floats
    deadline_s: Floats | None
    size: Floats | None
    #: Whether planners are told the sizes.
    told: bool = True


@dataclass(frozen=True)
class Read:
    """A file's content; no calls where they are to be drawn."""

    fleet: Fleet
    profiles: tuple[Profile, ...]
    calls: Listed | None


def read_functions(path: str | Path, *, nodes: str = "") -> Read:
    """The functions, nodes and calls in a JSON file; `nodes` names another JSON file that has the nodes."""
    where = str(path)
    document = read_json(path)
    if not isinstance(document, dict) or "functions" not in document:
        found = ", ".join(map(str, list(document)[:6])) if isinstance(document, dict) else type(document).__name__
        raise InputError(f'found "{one_line(found, 60)}"; expected {KINDS}', where=where)
    fleet = read_nodes(nodes) if nodes else _fleet(document, where)
    records = _records(document, "functions", MOST_FUNCTIONS, where)
    profiles = tuple(_profile(record, f"functions[{i}]", where) for i, record in enumerate(records))
    names = [profile.name for profile in profiles]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f'functions: found "{one_line(twice, 40)}" twice; expected different names', where=where)
    for profile in profiles:
        try:
            profile.check(fleet)
        except InputError as error:
            raise InputError(f"{error.where}: {error.message}", where=where) from None
    return Read(fleet, profiles, _calls(document, names, where) if "calls" in document else None)


def read_nodes(path: str | Path) -> Fleet:
    """The nodes of a JSON file."""
    document = read_json(path)
    if not isinstance(document, dict) or "nodes" not in document:
        raise InputError("expected an object with nodes", where=str(path))
    return _fleet(document, str(path))


def _fleet(document: Mapping[str, Any], where: str) -> Fleet:
    if "nodes" not in document:
        return built_in()
    types, counts = [], []
    for i, record in enumerate(_records(document, "nodes", MOST_TYPES, where)):
        at = f"nodes[{i}]"
        cores = _number(record, "cores", at, where)
        values = {"speed": 1.0, "price": 1.0, "memory_mb": 4096 * cores}
        values = {key: _number(record, key, at, where) if key in record else value for key, value in values.items()}
        types.append(NodeType(_name(record, "type", at, where), cores, **values))
        count = _number(record, "count", at, where) if "count" in record else 1.0
        if count != int(count):
            raise InputError(f"{at}.count: found {count:g}; expected a whole number", where=where)
        counts.append(int(count))
    names = [kind.name for kind in types]
    if len(set(names)) < len(names):
        raise InputError("nodes: found a type twice; expected different types", where=where)
    standard = document.get("standard", names[0] if names else "")
    if standard not in names:
        raise InputError(f"standard: found {_shown(standard)}; expected one of the node types", where=where)
    try:
        return Fleet(tuple(types), tuple(counts), names.index(standard))
    except InputError as error:
        raise InputError(f"nodes: {error}", where=where) from None


def _profile(record: Mapping[str, Any], at: str, where: str) -> Profile:
    work, parallel, memory = (_number(record, key, at, where) for key in ("work_gflop", "parallel_fraction", "memory_mb"))
    known = {"name", "work_gflop", "parallel_fraction", "memory_mb", "io_ms", "affinity", "memory_bound", "cold_s", "vcpu"}
    strange = [key for key in record if key not in known]
    if strange:
        raise InputError(f"{at}: found {_shown(strange[0])}; expected {', '.join(sorted(known))}", where=where)
    io_ms = _number(record, "io_ms", at, where) if "io_ms" in record else 0.0
    cold_s = _number(record, "cold_s", at, where) if "cold_s" in record else Profile.cold_s
    vcpu = _number(record, "vcpu", at, where) if "vcpu" in record else None
    affinity = record.get("affinity", {})
    if not isinstance(affinity, dict) or len(affinity) > MOST_TYPES:
        raise InputError(f"{at}.affinity: found {_shown(affinity)}; expected factors by node type", where=where)
    bound = record.get("memory_bound", False)
    if not isinstance(bound, bool):
        raise InputError(f"{at}.memory_bound: found {_shown(bound)}; expected true or false", where=where)
    factors = tuple((str(kind), _number(affinity, kind, f"{at}.affinity", where)) for kind in affinity)
    return Profile(_name(record, "name", at, where), work, parallel, memory, io_ms, bound, factors, cold_s, vcpu)


def _calls(document: Mapping[str, Any], names: list[str], where: str) -> Listed:
    records = _records(document, "calls", MOST_CALLS, where)
    number = {name: f for f, name in enumerate(names)}
    function, arrival, deadline, size = [], [], [], []
    for i, record in enumerate(records):
        at = f"calls[{i}]"
        name = record.get("function")
        if not isinstance(name, str) or name not in number:
            raise InputError(f"{at}.function: found {_shown(name)}; expected one of the functions", where=where)
        function.append(number[name])
        arrival.append(_number(record, "arrival_s", at, where))
        deadline.append(_number(record, "deadline_s", at, where))
        if deadline[-1] <= arrival[-1]:
            raise InputError(
                f"{at}.deadline_s: found {deadline[-1]:g} with the arrival {arrival[-1]:g}; expected a later time", where=where
            )
        size.append(_number(record, "size", at, where) if "size" in record else 1.0)
        if not 1e-6 <= size[-1] <= 1e6:
            raise InputError(f"{at}.size: found {size[-1]:g}; expected 1e-6 to 1e6", where=where)
    if not records:
        raise InputError("calls: found none; expected at least one, or no calls at all, which are drawn then", where=where)
    return Listed(np.array(function, np.int64), np.array(arrival), np.array(deadline), np.array(size))


def _records(document: Mapping[str, Any], name: str, most: int, where: str) -> list[dict[str, Any]]:
    found = document.get(name)
    if not isinstance(found, list) or not all(isinstance(record, dict) for record in found):
        raise InputError(f"{name}: found {_shown(found)}; expected a list of objects", where=where)
    if not (1 <= len(found) <= most or name == "calls"):
        raise InputError(f"{name}: found {len(found):,}; expected 1 to {most:,}", where=where)
    if len(found) > most:
        raise InputError(f"{name}: found {len(found):,}; expected at most {most:,}", where=where)
    return found


def _number(record: Mapping[str, Any], key: str, at: str, where: str) -> float:
    value = record.get(key)
    # A whole number of hundreds of digits is a number in JSON and no float.
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > 1e9 or not math.isfinite(value):
        raise InputError(f"{at}.{one_line(key, 40)}: found {_shown(value)}; expected a number of at most 1e9", where=where)
    return float(value)


def _name(record: Mapping[str, Any], key: str, at: str, where: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value:
        raise InputError(f"{at}.{key}: found {_shown(value)}; expected a name", where=where)
    return value


def _shown(value: object) -> str:
    return one_line(repr(value), 40)
