"""Topologies, catalogues and requests from files."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from armillary.errors import InputError, one_line, unknown

from .prices import Prices
from .topology import BUILT_IN, Topology, built_in, from_networkx, topology
from .workload import Catalogue, Network, Requests, shared_out

_LARGEST = 1 << 34


def read_topology(path: str | os.PathLike[str]) -> Topology:
    """A topology by name (`abilene`), from GraphML or GML (by NetworkX), or CSV `a,b,latency_ms[,bandwidth_gbps[,price_per_GB]]`."""
    if str(path) in BUILT_IN:
        return built_in(str(path))
    file = Path(path)
    ending = file.suffix.lower()
    if ending not in (".graphml", ".gml", ".csv"):
        raise InputError(f"found {file.name}; expected .graphml, .gml, .csv, or one of {', '.join(BUILT_IN)}", where="--topology")
    try:
        if ending == ".csv":
            return _edges(file)
        return from_networkx(_graph(file, ending))
    except InputError as error:
        raise InputError(error.message, where=str(file)) if error.where is None else error from None


def _graph(file: Path, ending: str) -> Any:
    try:
        import networkx
    except ImportError:
        raise InputError("the package networkx is not installed; expected it (pip install networkx), or a CSV of edges") from None
    try:
        return networkx.read_graphml(file) if ending == ".graphml" else networkx.read_gml(file, label="id")
    except Exception as error:
        raise InputError(f"found what NetworkX cannot read: {one_line(str(error))}", where=str(file)) from None


def _edges(file: Path) -> Topology:
    table = _table(file, ("a", "b", "latency_ms"), ("bandwidth_gbps", "price_per_GB"))
    latency = _numbers(table, "latency_ms", file) * 1e-3
    bandwidth = _numbers(table, "bandwidth_gbps", file) * 1.25e8 if "bandwidth_gbps" in table.columns else [None] * len(table)
    price = _numbers(table, "price_per_GB", file) / 1e9 if "price_per_GB" in table.columns else [None] * len(table)
    return topology(zip(table["a"], table["b"], latency, bandwidth, price), name=file.stem)


def read_network(
    path: str | os.PathLike[str], at: Topology, prices: Prices, *, catalogue: str | os.PathLike[str] = "", share: float = 0.01,
    warm: float = 0.3,
) -> Network:  # fmt: skip
    """Requests from CSV `time_s,receiver,content[,size,class]` on a topology; contents from CSV `content,size,class,source`, or from the
    requests' own sizes and classes (else 1 MiB, the last class, the first origin). The first `warm` of the requests are not billed."""
    file = Path(path)
    table = _table(file, ("time_s", "receiver", "content"), ("size", "class"))
    time = _numbers(table, "time_s", file, least=-np.inf)
    if (np.diff(time) < 0).any():
        raise InputError(
            "found a time before that of the line above; expected times in order", where=f"{file}:{int((np.diff(time) < 0).argmax()) + 3}"
        )
    node = {name: i for i, name in enumerate(at.names)}
    receiver = table["receiver"].to_list()
    for line, name in enumerate(receiver, 2):
        if name not in node:
            raise unknown("receiver", name, node, where=f"{file}:{line}")
    known, content, names = _contents(table, file, at, prices, Path(catalogue) if catalogue else None)
    requests = Requests(time, np.array([node[name] for name in receiver], np.int32), content, int(warm * len(time)))
    made = Catalogue(*known, names)
    return Network(at, made, requests, prices, shared_out(at, made, prices, share))


def _contents(
    table: Any, file: Path, at: Topology, prices: Prices, catalogue: Path | None
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], np.ndarray, tuple[str, ...]]:
    """((sizes, classes, origins), content of each request, names)."""
    asked = table["content"].to_list()
    if catalogue is None:
        names = list(dict.fromkeys(asked))
        index = {name: i for i, name in enumerate(names)}
        content = np.array([index[name] for name in asked], np.int32)
        _, first = np.unique(content, return_index=True)
        size = _numbers(table, "size", file, least=1)[first] if "size" in table.columns else np.full(len(names), 2.0**20)
        service = (
            _classes(table["class"], file, prices)[first] if "class" in table.columns else np.full(len(names), len(prices.classes) - 1)
        )
        return (size.astype(np.int64), service.astype(np.int8), np.zeros(len(names), np.int32)), content, tuple(names)
    listed = _table(catalogue, ("content", "size", "class", "source"), ())
    names = listed["content"].to_list()
    index = {name: i for i, name in enumerate(names)}
    for line, name in enumerate(asked, 2):
        if name not in index:
            raise InputError(f'found the content "{name}", which is not in the catalogue; expected one that is', where=f"{file}:{line}")
    places = {at.names[node]: i for i, node in enumerate(at.origins)}
    source = listed["source"].to_list()
    for line, name in enumerate(source, 2):
        if name not in places:
            raise unknown("source", name, places, where=f"{catalogue}:{line}")
    known = (
        _numbers(listed, "size", catalogue, least=1).astype(np.int64),
        _classes(listed["class"], catalogue, prices).astype(np.int8),
        np.array([places[name] for name in source], np.int32),
    )
    return known, np.array([index[name] for name in asked], np.int32), tuple(names)


def _classes(column: Any, file: Path, prices: Prices) -> np.ndarray:
    index = {of.name: i for i, of in enumerate(prices.classes)}
    for line, name in enumerate(column, 2):
        if name not in index:
            raise unknown("class", str(name), index, where=f"{file}:{line}")
    return np.array([index[name] for name in column])


def _table(file: Path, needed: tuple[str, ...], others: tuple[str, ...]) -> Any:
    """A CSV with a header, all columns as text; those named must be there."""
    try:
        if file.stat().st_size > _LARGEST:
            raise InputError("larger than 16 GiB", where=str(file))
        table = pl.read_csv(file, infer_schema=False, truncate_ragged_lines=False)
    except OSError as error:
        raise InputError(one_line(str(error)), where=str(file)) from None
    except (pl.exceptions.PolarsError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"not a CSV with a header: {one_line(str(error))[:200]}", where=str(file)) from None
    lost = [name for name in needed if name not in table.columns]
    if lost:
        raise InputError(
            f"found the columns {', '.join(table.columns)}; expected {', '.join((*needed, *(f'[{o}]' for o in others)))}", where=f"{file}:1"
        )
    for name in needed:
        empty = table[name].is_null()
        if empty.any():
            raise InputError(f"{name}: found nothing; expected a value", where=f"{file}:{int(empty.arg_max() or 0) + 2}")
    return table


def _numbers(table: Any, name: str, file: Path, least: float = 0.0) -> np.ndarray:
    values = table[name].str.strip_chars().cast(pl.Float64, strict=False).to_numpy()
    bad = np.flatnonzero(~np.isfinite(values) | (values < least))
    if len(bad):
        at = int(bad[0])
        expected = "a number" if least == -np.inf else f"a number of at least {least:g}"
        raise InputError(f"{name}: found {table[name][at]}; expected {expected}", where=f"{file}:{at + 2}")
    return np.asarray(values, np.float64)
