"""A cluster as an SVG picture: a box per group of nodes with its processors, devices and memories, and the networks below."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from armillary.wording import counted

if TYPE_CHECKING:
    from armillary.cluster import Cluster

WIDTH, MARGIN, LINE = 440, 12, 18
#: Devices that are drawn one by one; beyond that one box stands for all.
MOST_DRAWN = 16
UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def drawing(cluster: Cluster) -> str:
    """The picture."""
    parts: list[str] = []
    y = MARGIN
    for group in cluster.groups:
        y = _group(parts, group, y) + MARGIN
    for name, network in cluster.networks.items():
        y = _network(parts, cluster, name, network, y) + MARGIN
    title = escape(f"{cluster.name}: {counted(cluster.nodes, 'node')}")
    return f'<svg viewBox="0 0 {WIDTH} {y}" role="img" aria-label="{title}" class="machine">{"".join(parts)}</svg>'


def _group(parts: list[str], group: Any, top: int) -> int:
    """One group's box; gives its lower edge."""
    node = group.node
    inside: list[str] = []
    y = top + LINE + 14
    for socket in node.sockets:
        cores = f" of {counted(socket.cores, 'core')}" if socket.cores else ""
        model = socket.model or socket.name
        _text(inside, 2 * MARGIN, y, f"{counted(socket.count, 'socket')}{cores}{f' ({model})' if model else ''}")
        y += LINE
    for memory in node.memories:
        many = f"{memory.count} × " if memory.count > 1 else ""
        _text(inside, 2 * MARGIN, y, f"{many}{memory.kind}{_of(memory.size)}")
        y += LINE
    for device in node.devices:
        y = _devices(inside, device, y)
    for link in node.links:
        ends = " and ".join(dict.fromkeys(link.ends))
        each = min(link.rate.up, link.rate.down) if hasattr(link.rate, "up") else link.rate
        rate = f", {size(float(each), 'B/s')} each way" if each else ""
        _text(inside, 2 * MARGIN, y, f"{link.kind} ({link.topology}) between {ends}{rate}", "soft")
        y += LINE
    for nic in node.nics:
        rate = f" of {size(float(nic.bandwidth), 'B/s')}" if nic.bandwidth else ""
        _text(inside, 2 * MARGIN, y, f"{counted(nic.count, 'network card')}{rate}", "soft")
        y += LINE
    bottom = y - 4
    parts.append(f'<rect x="{MARGIN}" y="{top}" width="{WIDTH - 2 * MARGIN}" height="{bottom - top}" rx="6" class="box"/>')
    _text(parts, 2 * MARGIN, top + LINE, f"{counted(group.count, 'node')} · {group.name}", "title")
    parts += inside
    return bottom


def _devices(parts: list[str], device: Any, y: int) -> int:
    memory = f", {size(device.memory.size, 'B')} each" if device.memory and device.memory.size else ""
    _text(parts, 2 * MARGIN, y, f"{device.count} × {device.kind}{f' {device.model}' if device.model else ''}{memory}")
    if device.count <= MOST_DRAWN:
        places = (2 * MARGIN + 24 * number for number in range(device.count))
        parts += [f'<rect x="{x}" y="{y + 6}" width="18" height="14" rx="2" class="device"/>' for x in places]
        y += LINE + 6
    return y + LINE


def _network(parts: list[str], cluster: Cluster, name: str, network: Any, top: int) -> int:
    rate = f", {size(float(network.rate), 'B/s')} per link" if getattr(network, "rate", None) else ""
    parts.append(f'<rect x="{MARGIN}" y="{top}" width="{WIDTH - 2 * MARGIN}" height="30" rx="6" class="net"/>')
    _text(parts, 2 * MARGIN, top + 20, f"network {name}: {network.topology}{rate}")
    return top + 30


def _text(parts: list[str], x: int, y: int, said: str, kind: str = "") -> None:
    style = f' class="{kind}"' if kind else ""
    parts.append(f'<text x="{x}" y="{y}"{style}>{escape(said)}</text>')


def _of(bytes_: float | None) -> str:
    return f" of {size(bytes_, 'B')}" if bytes_ else ""


def size(value: float, unit: str) -> str:
    """A size or a rate with a prefix: `80 GB`, `50 GB/s`."""
    for limit, prefix in UNITS:
        if value >= limit:
            return f"{value / limit:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"
