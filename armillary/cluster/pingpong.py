"""Fits α and β of links to measured ping-pong times, which `cluster fit` writes as TOML.

For each class of link, t = α + β · bytes is fitted to the rows by least squares with weights 1/t², so that small and large messages count
equally. The input is a CSV with the columns `bytes,seconds` (or `us`) and optionally `class` or `link`, or the output of the OSU latency
benchmark (`# OSU MPI Latency Test`, with size and one-way µs).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from armillary.cluster.units import write
from armillary.errors import InputError, one_line, unknown
from armillary.files import Column, read_head, read_lines, read_table

if TYPE_CHECKING:
    from armillary.cluster.cluster import Cluster

#: The most lines of a benchmark's output.
MOST_LINES = 10_000_000


@dataclass(frozen=True)
class Fitted:
    """One class of link: `alpha` in seconds, `beta` in seconds per byte, and the root mean square of the relative error of the fit."""

    name: str
    alpha: float
    beta: float
    error: float
    rows: int


def fit(path: str | Path, cluster: Cluster | None = None) -> str:
    """TOML text with `latency` and `rate` of each link class and `source = "measured"`.

    With a cluster, it is the whole file, in which each class sets the node link of that kind or name, or the network of that name (as the
    latency of a whole path). Without one, it is one table per class, to be pasted.
    """
    classes = fit_classes(path)
    if cluster is not None:
        return _written_back(cluster, classes, str(path))
    lines = []
    for one in classes:
        lines += [f"# {one.rows} rows, relative error {one.error:.1%}", f'[link."{_bare(one.name)}"]']
        lines += [f'{key} = {{value = "{table["value"]}", source = "measured"}}' for key, table in _measured(one).items()]
        lines.append("")
    return "\n".join(lines)


def _measured(one: Fitted) -> dict[str, dict[str, str]]:
    texts = {"latency": write(one.alpha, "s"), "rate": write(1 / one.beta, "B/s")}
    return {key: {"value": text, "source": "measured"} for key, text in texts.items()}


def _written_back(cluster: Cluster, classes: list[Fitted], where: str) -> str:
    data = cluster.to_dict()
    links = [link for group in data["group"] for link in group.get("node", {}).get("link", ())]
    known = {name for link in links for name in (link["kind"], link.get("name")) if name} | set(data.get("network", {}))
    for one in classes:
        if one.name not in known:
            raise unknown("link class", one.name, known, where=where)
        for entry in (*(x for x in links if one.name in (x["kind"], x.get("name"))), data.get("network", {}).get(one.name)):
            if entry is not None:
                entry.update(_measured(one))
    from_dict = type(cluster).from_dict
    return from_dict(data, where).to_toml()


def _bare(name: str) -> str:
    return "".join(c if c.isprintable() and c not in '"\\' else "_" for c in name[:100])


def fit_classes(path: str | Path) -> list[Fitted]:
    """α and β of each link class of a file, by name."""
    path = Path(path)
    rows = _osu(path) if read_head(path).lstrip().startswith(b"#") else _csv(path)
    return [_fitted(path, name, np.array(points)) for name, points in sorted(rows.items())]


def _csv(path: Path) -> dict[str, list[tuple[float, float]]]:
    times = [Column(unit, least=0, optional=True) for unit in ("seconds", "us")]
    names = [Column(name, "str", default="") for name in ("class", "link")]
    table = read_table(path, [Column("bytes", least=0), *times, *names], format="csv")
    if "seconds" not in table and "us" not in table:
        raise InputError("no column seconds or us", where=f"{path}:1")
    seconds = table["seconds"] if "seconds" in table else table["us"] * 1e-6
    found: dict[str, list[tuple[float, float]]] = {}
    for size, time, of_class, link in zip(table["bytes"], seconds, table["class"], table["link"]):
        found.setdefault(of_class or link or "link", []).append((float(size), float(time)))
    return found


def _osu(path: Path) -> dict[str, list[tuple[float, float]]]:
    found: list[tuple[float, float]] = []
    for line, text in read_lines(path, most=MOST_LINES):
        words = text.split()
        if not words or words[0].startswith("#"):
            if "Bandwidth" in text and "Latency" not in text:
                raise InputError("an OSU bandwidth test; expected the latency test", where=f"{path}:{line}")
            continue
        try:
            size, microseconds = (float(word) for word in words[:2])
        except ValueError:
            size = microseconds = math.nan
        if not (0 <= size < math.inf and 0 <= microseconds < math.inf):
            raise InputError(f'found "{one_line(text, 60)}"; expected a size and microseconds', where=f"{path}:{line}")
        found.append((size, microseconds * 1e-6))
    return {"link": found} if found else {}


def _fitted(path: Path, name: str, points: np.ndarray) -> Fitted:
    sizes, times = points[:, 0], points[:, 1]
    if len(np.unique(sizes)) < 2:
        raise InputError(f"class {name}: one message size; expected at least two different ones", where=str(path))
    if (times <= 0).any():
        raise InputError(f"class {name}: a time of 0; expected more", where=str(path))
    scaled = np.stack([1.0 / times, sizes / times], axis=1)
    (alpha, beta), *_ = np.linalg.lstsq(scaled, np.ones(len(times)), rcond=None)
    if beta <= 0:
        raise InputError(f"class {name}: larger messages are not slower, so there is no rate to fit", where=str(path))
    if alpha <= 0:
        # A start-up time below zero has no meaning, so only the rate is fitted.
        alpha, beta = 0.0, float((sizes / times).sum() / ((sizes / times) ** 2).sum())
    error = float(np.sqrt(np.mean((scaled @ np.array([alpha, beta]) - 1.0) ** 2)))
    return Fitted(name, float(alpha), float(beta), error, len(times))
