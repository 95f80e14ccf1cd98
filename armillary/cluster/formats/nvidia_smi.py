"""Reads the matrix of `nvidia-smi topo -m`: how the GPUs of one node reach each other, and which processors are near.

NV# means # NVLinks; PIX, PXB, PHB, NODE and SYS are increasingly long paths over PCIe. The matrix does not name the generation of NVLink,
so rates stay unknown.
"""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Any

from armillary.cluster.formats.files import fact, group, label
from armillary.errors import InputError, one_line

MOST_DEVICES = 256
WAYS = ("PIX", "PXB", "PHB", "NODE", "SYS")
_CELL = re.compile(r"X|NV[0-9]{1,3}|PIX|PXB|PHB|NODE|SYS|SOC")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def looks_like(text: str) -> bool:
    """Whether the text begins with a heading of GPUs."""
    return re.match(r"\s*GPU0\b.*(GPU1|CPU Affinity|mlx|NIC)", _ESCAPE.sub("", text[:4000])) is not None


def read(text: str, path: Path) -> dict[str, Any]:
    """The node as a cluster of one: its GPUs, NICs and the links between GPUs."""
    lines = [line for line in _ESCAPE.sub("", text).splitlines() if line.strip()]
    heading = [name.strip() for name in re.split(r"\t+|\s{2,}", lines[0].strip())]
    columns = [name for name in heading if re.fullmatch(r"(GPU|NIC)[0-9]{1,3}|mlx[0-9]_[0-9]{1,3}|[a-z0-9_]+", name)]
    if len(columns) > MOST_DEVICES:
        raise InputError(f"{len(columns)} columns; expected at most {MOST_DEVICES}", where=f"{path}:1")
    cells, affinity = _rows(lines, columns, path)
    gpus = [name for name in columns if name.startswith("GPU")]
    missing = [name for name in gpus if name not in cells]
    if missing:
        raise InputError(f'no row for "{missing[0]}"', where=str(path))
    facts = [fact(f"{name}.cpus", cpus, str(path)) for name, cpus in affinity.items() if cpus]
    node: dict[str, Any] = {"device": [{"count": len(gpus), "kind": "gpu"}]}
    others = len(columns) - len(gpus)
    if others:
        node["nic"] = [{"count": others}]
    for pair in combinations(range(len(gpus)), 2):
        here, there = cells[gpus[pair[0]]][pair[1]], cells[gpus[pair[1]]][pair[0]]
        if here != there:
            names = f"{gpus[pair[0]]} and {gpus[pair[1]]}"
            raise InputError(f"{names}: {here} in one direction and {there} in the other; expected the same", where=str(path))
    node["link"] = _links(cells, gpus)
    return {"armillary": 1, "name": label(path.stem, "node"), "group": [group("node", 1, node)], "facts": facts}


def _rows(lines: list[str], columns: list[str], path: Path) -> tuple[dict[str, list[str]], dict[str, str]]:
    cells: dict[str, list[str]] = {}
    affinity: dict[str, str] = {}
    for number, line in enumerate(lines[1:], 2):
        parts = [part.strip() for part in line.strip().split("\t")] if "\t" in line else line.split()
        parts = [part for part in parts if part]
        if not parts or parts[0] not in columns:
            if line.strip().lower().startswith(("legend", "nic legend")):
                break
            continue
        row = parts[1 : 1 + len(columns)]
        wrong = next((cell for cell in row if not _CELL.fullmatch(cell)), None)
        if len(row) < len(columns) or wrong is not None:
            found = f'"{one_line(wrong, 20)}"' if wrong is not None else f"{len(row)} cells"
            raise InputError(
                f"row {parts[0]}: found {found}; expected X, NV#, {', '.join(WAYS)} in {len(columns)} cells",
                where=f"{path}:{number}",
            )
        if parts[0] in cells:
            raise InputError(f"row {parts[0]} appears twice", where=f"{path}:{number}")
        cells[parts[0]] = row
        affinity[parts[0]] = parts[1 + len(columns)] if len(parts) > 1 + len(columns) else ""
    return cells, affinity


def _links(cells: dict[str, list[str]], gpus: list[str]) -> list[dict[str, Any]]:
    """One table per number of NVLinks, and one per path over PCIe that some pair has to take."""
    ways: dict[str, list[list[int]]] = {}
    for a, b in combinations(range(len(gpus)), 2):
        ways.setdefault(cells[gpus[a]][b], []).append([a, b])
    links = []
    for way in sorted(ways, key=lambda name: (not name.startswith("NV"), name)):
        every = len(ways) == 1
        table: dict[str, Any] = {"kind": "nvlink" if way.startswith("NV") else "pcie", "name": way, "between": "device"}
        # If all pairs are equal and have many links, the GPUs are joined by switches; up to four of them may be wired directly.
        if every and way.startswith("NV"):
            table["topology"] = "switch" if len(gpus) > 4 else "all-to-all"
        else:
            table["topology"] = "tree" if every else "pairs"
            if not every:
                table["pairs"] = ways[way]
        links.append(table)
    return links
