"""A network as a list of edges, from CSV (`from,to,rate,latency`) or GraphML, which is read once, checked, and kept as arrays."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np

from armillary.cluster.fields import Reads, bad
from armillary.cluster.traces import named_file, table_of
from armillary.cluster.units import shown
from armillary.files import Column

MOST_EDGES = 5_000_000
_LARGEST_FILE = 1 << 30
#: The names of two vertices, and the texts of their rate and latency, which may be empty.
Edge = tuple[str, str, str, str]


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Edges between named vertices; `rate` is in bytes/s and `latency` in seconds, or NaN where the file omits them."""

    path: Path
    names: tuple[str, ...]
    u: np.ndarray
    v: np.ndarray
    rate: np.ndarray
    latency: np.ndarray
    digest: str = field(default="")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EdgeList) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def endpoint_vertices(self, prefix: str | None) -> np.ndarray:
        """The vertices that endpoints attach to, in order of first appearance."""
        if prefix is not None:
            return np.array([i for i, name in enumerate(self.names) if name.startswith(prefix)], np.int32)
        degree = np.bincount(np.concatenate([self.u, self.v]), minlength=len(self.names))
        leaves = np.flatnonzero(degree == 1)
        return (leaves if len(leaves) else np.arange(len(self.names))).astype(np.int32)


def read_edges(found: object, context: dict[str, Any] | None) -> EdgeList:
    """Reads the edges in a file that a cluster file names."""
    if isinstance(found, EdgeList):
        return found
    path = named_file(found, context)
    if path.stat().st_size > _LARGEST_FILE:
        raise bad(f"{path.name}: larger than 1 GiB")
    rows, place = _graphml(path) if path.suffix.lower() in (".graphml", ".xml") else _csv(path)
    index: dict[str, int] = {}
    us: list[int] = []
    vs: list[int] = []
    rates: list[float] = []
    latencies: list[float] = []
    for row, (a, b, rate, latency) in enumerate(rows):
        if not a or not b or a == b:
            raise bad(f"{place(row)}: found {shown(a)} to {shown(b)}; expected two different vertices")
        if row >= MOST_EDGES:
            raise bad(f"{place(row)}: more than {MOST_EDGES:,} edges")
        us.append(index.setdefault(a, len(index)))
        vs.append(index.setdefault(b, len(index)))
        for name, text, reads, kept in (
            ("rate", rate, Reads("rate"), rates),
            ("latency", latency, Reads("time", or_equal=True), latencies),
        ):
            try:
                kept.append(_quantity(text, reads))
            except ValueError as error:
                raise bad(f"{place(row)}: {name}: {error}") from None
    if not us:
        raise bad(f"{path.name}: no edges")
    u, v = np.array(us, np.int32), np.array(vs, np.int32)
    r, late = np.array(rates), np.array(latencies)
    digest = hashlib.sha256("\0".join(index).encode())
    for part in (u, v, r, late):
        digest.update(part.tobytes())
    return EdgeList(path, tuple(index), u, v, r, late, digest.hexdigest())


def _quantity(text: str, reads: Reads) -> float:
    if not text:
        return float("nan")
    bare: object = text
    with contextlib.suppress(ValueError):
        bare = float(text)
    return float(reads.value(bare))


def _csv(path: Path) -> tuple[Iterable[Edge], Callable[[int], str]]:
    names = [Column(name, "str") for name in ("from", "to")]
    table = table_of(path, [*names, *(Column(name, "str", default="") for name in ("rate", "latency"))], may_be_empty=True)
    return zip(*(table[name] for name in ("from", "to", "rate", "latency"))), lambda row: str(table.error(row, "").where)


class _GraphMl:
    """Collects the edges of a GraphML document; a document type or entity declaration ends the reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys: dict[str, str] = {}
        self.edges: list[Edge] = []
        self.lines: list[int] = []
        self.open: dict[str, str] | None = None
        self.data_name, self.text, self.depth = "", "", 0
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.StartDoctypeDeclHandler = self.refuse
        self.parser.EntityDeclHandler = self.refuse

    def refuse(self, *_: object) -> None:
        raise bad(f"{self.path.name}: a document type or entity declaration; expected plain GraphML")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        tag = tag.rsplit(":", 1)[-1]
        if tag == "key":
            self.keys[attributes.get("id", "")] = attributes.get("attr.name", "")
        elif tag == "edge":
            self.open = {"from": attributes.get("source", ""), "to": attributes.get("target", "")}
        elif tag == "data" and self.open is not None:
            self.data_name, self.text = self.keys.get(attributes.get("key", ""), ""), ""
        if self.depth > 100 or len(self.keys) > 10_000:
            raise bad(f"{self.path.name}: nested too deep; expected plain GraphML")

    def characters(self, text: str) -> None:
        if self.data_name and len(self.text) < 1000:
            self.text += text

    def end(self, tag: str) -> None:
        self.depth -= 1
        tag = tag.rsplit(":", 1)[-1]
        if tag == "data" and self.open is not None:
            if self.data_name in ("rate", "latency"):
                self.open[self.data_name] = self.text.strip()
            self.data_name = ""
        elif tag == "edge" and self.open is not None:
            e = self.open
            self.edges.append((e["from"], e["to"], e.get("rate", ""), e.get("latency", "")))
            self.lines.append(self.parser.CurrentLineNumber)
            self.open = None
            if len(self.edges) > MOST_EDGES:
                raise bad(f"{self.path.name}: more than {MOST_EDGES:,} edges")


def _graphml(path: Path) -> tuple[Iterable[Edge], Callable[[int], str]]:
    document = _GraphMl(path)
    try:
        with path.open("rb") as file:
            document.parser.ParseFile(file)
    except expat.ExpatError as error:
        raise bad(f"{path.name}:{error.lineno}: not well-formed XML") from None
    except OSError as error:
        raise bad(f"{path.name}: {error.strerror}") from None
    return document.edges, lambda row: f"{path}:{document.lines[row]}"
