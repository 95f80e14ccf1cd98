"""DTLMod's configuration of streams: `{"streams": [{"name": …, "engine": {"type": …, "transport_method": …}}]}`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line
from armillary.files import read_json
from armillary.network.transport.layer.actors import StreamSettings
from armillary.network.transport.reduction.reduction import Reduction

MOST_STREAMS = 10_000
METHODS = ("compression", "decimation")


def read_streams(path: str | Path) -> list[StreamSettings]:
    """The streams of a configuration, in its order."""
    found = read_json(path, limit=1 << 24)
    where = str(path)
    streams = found.get("streams") if isinstance(found, dict) else None
    if not isinstance(streams, list) or not 1 <= len(streams) <= MOST_STREAMS:
        raise InputError(f'found no list "streams" of 1 to {MOST_STREAMS:,}; expected one', where=where)
    settings = [_one(stream, f"{where}, stream {i}") for i, stream in enumerate(streams)]
    names = [s.name for s in settings]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise InputError(f"found two streams of the name {twice}; expected one", where=where)
    return settings


def _one(found: Any, where: str) -> StreamSettings:
    if not isinstance(found, dict):
        raise InputError("found no object; expected one", where=where)
    known = {"name", "engine", "reduction_methods", "export_metadata"}
    if strange := sorted(set(found) - known):
        raise InputError(f'found the key "{one_line(strange[0], 40)}"; expected {", ".join(sorted(known))}', where=where)
    name, engine = found.get("name"), found.get("engine")
    if not isinstance(name, str) or not 1 <= len(name) <= 200 or not name.isprintable():
        raise InputError("found no name; expected a text", where=where)
    if not isinstance(engine, dict):
        raise InputError(f"{name}: found no engine; expected its type and transport_method", where=where)
    values = {key: engine.get(key) for key in ("type", "transport_method")}
    for key, value in values.items():
        if not isinstance(value, str) or not value:
            raise InputError(f"{name}: found no {key} of the engine; expected a text", where=where)
    methods = found.get("reduction_methods", [])
    if not isinstance(methods, list) or any(m not in METHODS for m in methods) or len(methods) > 1:
        said = f"{name}: reduction_methods: expected at most one of {', '.join(METHODS)}, as data are never reduced twice"
        raise InputError(said, where=where)
    export = found.get("export_metadata", False)
    if not isinstance(export, bool):
        raise InputError(f"{name}: export_metadata: found {one_line(repr(export), 40)}; expected true or false", where=where)
    try:
        kind = Reduction(methods[0] if methods else "none")
        return StreamSettings(name, str(values["type"]), str(values["transport_method"]), kind, export)
    except InputError as error:
        raise InputError(str(error), where=where) from None
