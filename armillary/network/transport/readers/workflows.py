"""Workflows as TOML.

name = "coupled"
steps = 10
[[component]]
name = "simulation"
ranks = 64
group = "a"
compute = "2e9"            # flops per rank and step
[[stream]]
name = "field"
from = "simulation"
to = "analysis"
every = 2
engine = "Staging"         # optional, with transport_method
[[stream.variable]]
name = "u"
shape = [128, 128, 128]
itemsize = 8
publish = [4, 4, 4]        # parts per dimension
subscribe = [1, 1, 16]
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line
from armillary.files import read_text
from armillary.network.transport.reduction.reduction import Reduction
from armillary.network.transport.workload import MOST_RANKS, MOST_STEPS, Component, StreamSpec, VariableSpec, Workflow

_LARGEST = 1 << 24
_LISTED = 10_000


def read_workflow(path: str | Path) -> Workflow:
    """Reads a workflow; every mistake is one line with its place."""
    where = str(path)
    try:
        found = tomllib.loads(read_text(path, limit=_LARGEST))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"found no TOML: {one_line(str(error), 200)}", where=where) from None
    top = _Table(found, where, {"name", "steps", "component", "stream", "program"})
    name = top.text("name", Path(path).stem)
    components = tuple(
        Component(t.text("name"), t.whole("ranks", 1, MOST_RANKS), t.text("group", ""), t.number("compute", 0.0, 0.0, 1e18))
        for t in top.tables("component", {"name", "ranks", "group", "compute"})
    )
    streams = tuple(_stream(t) for t in top.tables("stream", set(_STREAM)))
    return Workflow(name, components, streams, top.whole("steps", 1, MOST_STEPS, 5), top.text("program", ""), where)


_STREAM = ("name", "from", "to", "every", "engine", "transport_method", "export_metadata", "variable", "reduction")
_VARIABLE = {"name", "shape", "itemsize", "publish", "subscribe", "blocks", "start", "count"}
_REDUCTION = {"kind", "side", "stride", "interpolation", "compressor", "ratio", "eps", "smoothness", "variation", "flops"}


def _stream(t: _Table) -> StreamSpec:
    variables = tuple(_variable(v) for v in t.tables("variable", _VARIABLE))
    try:
        return StreamSpec(
            t.text("name"), t.text("from"), t.text("to"), variables, t.whole("every", 1, MOST_STEPS, 1), t.text("engine", ""),
            t.text("transport_method", ""), _reduction(t), bool(t.found.get("export_metadata", False)),
        )  # fmt: skip
    except InputError as error:
        raise InputError(str(error), where=t.where) from None


def _reduction(t: _Table) -> Reduction:
    found = t.found.get("reduction", {})
    if not isinstance(found, dict):
        raise InputError("reduction: expected a table", where=t.where)
    r = _Table(found, f"{t.where}, reduction", _REDUCTION)
    numbers = {key: r.number(key, 0.0, 0.0, 1e12) for key in ("ratio", "eps", "smoothness", "variation", "flops") if key in found}
    texts = {key: r.text(key) for key in ("kind", "side", "interpolation", "compressor") if key in found}
    return Reduction(**texts, **numbers, stride=r.list_of("stride"))  # type: ignore[arg-type]


def _variable(t: _Table) -> VariableSpec:
    shape = t.list_of("shape")
    blocks = t.found.get("blocks", [])
    if not isinstance(blocks, list) or len(blocks) > MOST_RANKS:
        raise InputError("blocks: expected a list of tables with start and count", where=t.where)
    made = []
    for i, block in enumerate(blocks):
        one = _Table(block if isinstance(block, dict) else {}, f"{t.where}, block {i}", {"start", "count"})
        start, count = one.list_of("start"), one.list_of("count")
        if len(start) != len(shape) or len(count) != len(shape):
            raise InputError(f"found {len(start)} and {len(count)} numbers; expected {len(shape)} each", where=one.where)
        made.append((start, count))
    selection = (t.list_of("start"), t.list_of("count")) if "start" in t.found or "count" in t.found else None
    if selection is not None and (len(selection[0]) != len(shape) or len(selection[1]) != len(shape)):
        raise InputError(f"start and count: expected {len(shape)} numbers each, one per dimension", where=t.where)
    itemsize = t.whole("itemsize", 1, 1 << 20, 8)
    return VariableSpec(t.text("name"), shape, itemsize, t.list_of("publish"), t.list_of("subscribe"), tuple(made), selection)


class _Table:
    """One table, whose keys are known."""

    def __init__(self, found: dict[str, Any], where: str, known: set[str]) -> None:
        self.found, self.where = found, where
        if strange := sorted(set(found) - known):
            raise InputError(f'found the key "{one_line(strange[0], 40)}"; expected {", ".join(sorted(known))}', where=where)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.found.get(key, default)
        if not isinstance(value, str) or len(value) > 200 or not value.isprintable():
            raise InputError(f"{key}: found {one_line(repr(value), 60)}; expected a text", where=self.where)
        return value

    def whole(self, key: str, least: int, most: int, default: int | None = None) -> int:
        value = self.found.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            said = f"{key}: found {one_line(repr(value), 60)}; expected a whole number from {least} to {most:,}"
            raise InputError(said, where=self.where)
        return value

    def number(self, key: str, default: float, least: float, most: float) -> float:
        value = self.found.get(key, default)
        try:
            number = float(value) if not isinstance(value, bool) else -1.0
        except (TypeError, ValueError, OverflowError):
            number = -1.0
        if not least <= number <= most:
            raise InputError(f"{key}: found {one_line(repr(value), 60)}; expected a number from {least:g} to {most:g}", where=self.where)
        return number

    def list_of(self, key: str) -> tuple[int, ...]:
        value = self.found.get(key, [])
        whole = isinstance(value, list) and all(isinstance(x, int) and not isinstance(x, bool) and abs(x) <= 1 << 60 for x in value)
        if not whole or len(value) > 8:
            raise InputError(f"{key}: found {one_line(repr(value), 60)}; expected up to 8 whole numbers", where=self.where)
        return tuple(value)

    def tables(self, key: str, known: set[str]) -> list[_Table]:
        value = self.found.get(key, [])
        if not isinstance(value, list) or len(value) > _LISTED or any(not isinstance(x, dict) for x in value):
            raise InputError(f"{key}: expected up to {_LISTED:,} tables [[{key}]]", where=self.where)
        return [_Table(x, f"{self.where}, {key} {i}", known) for i, x in enumerate(value)]
