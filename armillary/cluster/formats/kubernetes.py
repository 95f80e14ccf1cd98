"""Reads the output of `kubectl get nodes -o json` into groups of equal nodes.

Nodes are equal when they agree on instance type, architecture, processors and accelerators; the memory that machines of one type report
differs by a few pages, and the smallest value counts. `capacity` describes the machine, and `allocatable`, which is left for pods, becomes
`usable`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from armillary.cluster.formats.files import distinct, fact, group, label
from armillary.errors import InputError, one_line

MOST_NODES = 1_000_000
MOST_GROUPS = 10_000
SUFFIXES = {
    **{"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18},
    **{prefix + "i": 1024.0 ** (n + 1) for n, prefix in enumerate("KMGTPE")},
}
INSTANCE = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_RESOURCE = re.compile(r"([a-z0-9.-]{1,200})/(gpu|npu|tpu)(\.shared)?")


def looks_like(data: object) -> bool:
    """Whether this is a list of nodes, or one node."""
    if not isinstance(data, dict):
        return False
    items = data.get("items") if data.get("kind") in ("List", "NodeList") else [data]
    if not isinstance(items, list) or not items:
        return False
    return all(isinstance(item, dict) and item.get("kind", "Node") == "Node" for item in items)


def parse(text: str, path: Path) -> object:
    """Parses JSON; anything else raises an `InputError`."""
    try:
        return json.loads(text)
    except RecursionError:
        raise InputError("JSON nests too deep", where=str(path)) from None
    except ValueError as error:
        raise InputError(f"not JSON: {error}", where=str(path)) from None


def read(data: Any, path: Path) -> dict[str, Any]:
    """The groups of nodes of the list."""
    items = data.get("items", [data])
    if len(items) > MOST_NODES:
        raise InputError(f"{len(items):,} nodes; expected at most {MOST_NODES:,}", where=str(path))
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for position, item in enumerate(items):
        node = _node(item, f"{path}: items[{position}]")
        alike.setdefault(node.pop("key"), []).append(node)
    if len(alike) > MOST_GROUPS:
        raise InputError(f"{len(alike):,} kinds of node; expected at most {MOST_GROUPS:,}", where=str(path))
    taken: dict[str, int] = {}
    groups, facts = [], []
    for (instance, *_), nodes in alike.items():
        name = distinct(instance or "nodes", taken)
        table = dict(nodes[0]["table"])
        least = min(node["memory"] for node in nodes)
        if least:
            table["memory"] = [{"name": "dram", "kind": "dram", "size": least, "attached": "socket"}]
        usable = {
            key: min(node["usable"][key] for node in nodes) for key in nodes[0]["usable"] if all(key in node["usable"] for node in nodes)
        }
        if usable:
            table["usable"] = usable
        groups.append(group(name, len(nodes), table))
        facts += [fact(f"group.{name}.{key}", value, str(path)) for key, value in nodes[0]["facts"]]
    return {"armillary": 1, "name": label(path.stem, "kubernetes"), "group": groups, "facts": facts}


def _node(item: Any, where: str) -> dict[str, Any]:
    status, metadata = _table(item.get("status"), "status", where), _table(item.get("metadata", {}), "metadata", where)
    capacity = _table(status.get("capacity"), "status.capacity", where)
    allocatable = _table(status.get("allocatable", {}), "status.allocatable", where)
    labels = _table(metadata.get("labels", {}), "metadata.labels", where)
    info = _table(status.get("nodeInfo", {}), "status.nodeInfo", where)
    cpus = math.floor(_quantity(capacity, "cpu", where, 1e7))
    if cpus < 1:
        raise InputError(f"status.capacity.cpu: found {cpus}; expected at least 1", where=where)
    memory = math.floor(_quantity(capacity, "memory", where, 1e18)) if "memory" in capacity else 0
    threads = 2 if labels.get("feature.node.kubernetes.io/cpu-hardware_multithreading") == "true" and cpus % 2 == 0 else 1
    devices = _devices(capacity, labels, where)
    architecture = info.get("architecture") or labels.get("kubernetes.io/arch") or ""
    instance = next((str(labels[key]) for key in INSTANCE if labels.get(key)), "")
    usable: dict[str, float] = {}
    if "cpu" in allocatable and (cores := _quantity(allocatable, "cpu", where, 1e7)) > 0:
        usable["cores"] = min(cores / threads, float(cpus // threads))
    if "memory" in allocatable and (size := math.floor(_quantity(allocatable, "memory", where, 1e18))) > 0:
        usable["memory"] = size
    return {
        # Without an instance type, two nodes count as equal only if their memory is equal.
        "key": (instance, str(architecture), cpus, threads, repr(devices), 0 if instance else memory),
        "table": {"socket": [{"count": 1, "cores": cpus // threads, "threads_per_core": threads}], "device": devices},
        "memory": memory,
        "usable": usable,
        "facts": [
            (key, str(value))
            for key, value in (("architecture", architecture), ("zone", labels.get("topology.kubernetes.io/zone")))
            if isinstance(value, str) and value
        ],
    }


def _devices(capacity: Mapping[str, Any], labels: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    found = []
    for resource in sorted(capacity):
        match = _RESOURCE.fullmatch(resource)
        count = math.floor(_quantity(capacity, resource, where, 1024)) if match else 0
        if not match or not count:
            continue
        table: dict[str, Any] = {"count": count, "kind": "npu" if match[2] != "gpu" else "gpu"}
        product = labels.get(f"{match[1]}/gpu.product") or labels.get("cloud.google.com/gke-accelerator")
        if isinstance(product, str) and product:
            table["model"] = label(product)
        mebibytes = labels.get(f"{match[1]}/gpu.memory")
        if isinstance(mebibytes, str) and re.fullmatch(r"[0-9]{1,9}", mebibytes) and int(mebibytes):
            table["memory"] = {
                "kind": "hbm" if int(mebibytes) >= 30_000 and "H" in table.get("model", "") else "dram",
                "size": int(mebibytes) << 20,
            }
        found.append(table)
    return found[:100]


def _table(found: object, key: str, where: str) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise InputError(f"{key}: expected an object", where=where)
    return found


def _quantity(table: Mapping[str, Any], key: str, where: str, most: float) -> float:
    """A quantity as Kubernetes writes it: "64", "500m", "527Gi", 1e3."""
    text = table.get(key)
    shown = str(text) if isinstance(text, str | int | float) and not isinstance(text, bool) else ""
    match = re.fullmatch(r"([0-9]{1,20}(?:\.[0-9]{0,10})?)(?:e([0-9]{1,2}))?([a-zA-Z]{0,2})", shown[:60])
    if not match or match[3] not in SUFFIXES:
        raise InputError(f'{key}: found "{one_line(str(text), 40)}"; expected a quantity such as 500m or 64Gi', where=where)
    value = float(match[1]) * 10.0 ** int(match[2] or 0) * SUFFIXES[match[3]]
    if value > most:
        raise InputError(f'{key}: found "{one_line(shown, 40)}"; expected at most {most:g}', where=where)
    return value
