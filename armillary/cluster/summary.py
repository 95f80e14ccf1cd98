"""A cluster as a plain text table, rounded for a person to read."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from armillary.cluster import schema as s
from armillary.cluster.traces import Trace
from armillary.cluster.units import Quantity
from armillary.errors import InputError
from armillary.wording import counted

if TYPE_CHECKING:
    from armillary.cluster.cluster import Cluster


def summary(cluster: Cluster) -> str:
    """The machine in a few lines: totals, one line per part of each group, networks, and sites."""
    rows = [("cluster", cluster.name), *([("", cluster.description)] if cluster.description else [])]
    rows += list(_totals(cluster))
    for g in cluster.groups:
        rows.append((f"group {g.name}", counted(g.count, "node") + (f", {g.node.rack} per rack" if g.node.rack else "")))
        rows += [(f"  {key}", text) for key, text in _node(g.node)]
    rows += [(f"network {name}", _network(cluster, name)) for name in cluster.networks]
    rows += [(f"site {site.name}" if site.name else "site", _site(site)) for site in cluster.sites]
    width = max(len(key) for key, _ in rows)
    return "\n".join(f"{key:<{width}}  {text}".rstrip() for key, text in rows) + "\n"


def _totals(cluster: Cluster) -> Iterator[tuple[str, str]]:
    counts = [counted(cluster.nodes, "node")]
    counts += [counted(cluster.cores, "core")] * bool(cluster.cores)
    counts += [counted(cluster.devices(kind), kind.upper()) for kind in s.DEVICE_KINDS if cluster.devices(kind)]
    yield "total", ", ".join(counts)
    peaks = [(p, cluster.peak(p)) for p in ("fp64", "bf16", "int8")]
    if any(value for _, value in peaks):
        yield "peak", ", ".join(f"{p} {_si(v)}{'OPS' if p == 'int8' else 'FLOP/s'}" for p, v in peaks if v)
    memory = [(kind, cluster.memory(kind)) for kind in s.MEMORY_KINDS]
    if any(size for _, size in memory):
        yield "memory", ", ".join(f"{kind} {_bytes(size, _sizes(cluster, kind))}" for kind, size in memory if size)
    with contextlib.suppress(InputError):
        yield "power", f"{_si(cluster.power(1.0, pue=False))}W at full load"


def _node(node: s.Node) -> Iterator[tuple[str, str]]:
    for socket in node.sockets:
        yield "socket", _line(socket.count, socket.model, socket.cores and counted(socket.cores, "core"), _of(socket.peak(), " fp64"))
    for memory in node.memories:
        yield "memory", _line(memory.count, memory.called, _of(memory.size), _of(memory.bandwidth), _of(memory.latency))
    for device in node.devices:
        tier = device.memory
        peaks = ((p, device.peak[p]) for p in ("bf16", "fp16", "fp64", "int8"))
        best = next((f"{p} {value.text}" for p, value in peaks if value), None)
        yield (
            "device",
            _line(device.count, device.model or device.kind, best, *((_of(tier.size), _of(tier.bandwidth)) if tier else ())),
        )
    for nic in node.nics:
        rate = (
            f"{nic.up.text if nic.up else '?'} up, {nic.down.text if nic.down else '?'} down"
            if isinstance(nic.rate, s.Duplex)
            else _of(nic.rate)
        )
        yield "nic", _line(nic.count, nic.model or "NIC", rate, f"on {nic.network}" if nic.network else None)
    for link in node.links:
        between = link.between if isinstance(link.between, str) else "–".join(link.between)
        yield "link", _line(1, link.kind, link.topology, between, _of(link.rate), _of(link.latency))
    if node.power and (node.power.idle is not None or node.power.peak is not None):
        yield (
            "power",
            ", ".join(f"{k} {v.text}" for k, v in (("idle", node.power.idle), ("peak", node.power.peak)) if v is not None),
        )


def _line(count: int, *parts: str | int | None) -> str:
    text = ", ".join(str(p) for p in parts if p)
    return f"{count} × {text}" if count > 1 else text


def _of(value: Any, after: str = "") -> str | None:
    if isinstance(value, s.Duplex):
        return f"{value.up.text} up, {value.down.text} down"
    if not isinstance(value, Quantity):
        return None
    if value.unit == "B":
        return _bytes(float(value), [float(value)])
    text = f"{_si(float(value))}{value.unit}" if value.derived else value.text
    return text + after + (" (derived)" if value.derived else "")


def _network(cluster: Cluster, name: str) -> str:
    network = cluster.networks[name]
    parts = [
        str(network.topology),
        counted(cluster.endpoints(name), "endpoint"),
        *([network.rate.text + " per link"] if network.rate else []),
    ]
    return ", ".join(parts)


def _site(site: s.Site) -> str:
    parts = []
    for key in ("pue", "carbon_intensity", "energy_price", "embodied", "lifetime", "machine_power", "grid_zone"):
        value = getattr(site, key)
        if isinstance(value, Trace):
            parts.append(f"{key} from {value.path.name}")
        elif isinstance(value, Quantity):
            parts.append(f"{key} {value.text if value.unit else f'{float(value):g}'}")
        elif value is not None:
            parts.append(f"{key} {value}")
    return ", ".join(parts)


def _sizes(cluster: Cluster, kind: str) -> list[float]:
    """The sizes of all memories of one kind, each once."""
    nodes = [g.node for g in cluster.groups]
    tiers = [m for node in nodes for m in (*node.memories, *(d.memory for d in node.devices)) if m is not None and m.kind == kind]
    return [float(tier.size) for tier in tiers if tier.size is not None]


def _bytes(size: float, parts: list[float]) -> str:
    """A size in decimal units if some of its parts is a round number of them, and otherwise in GiB or another binary unit."""
    if size < 1024 or any(part == float(f"{part:.4g}") for part in parts):
        return f"{_si(size)}B"
    power = min(int(math.log2(size)) // 10, 6)
    return f"{size / 1024**power:.4g} {' KMGTPE'[power]}iB"


def _si(value: float) -> str:
    for prefix, factor in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.4g} {prefix}"
    return f"{value:.4g} "
