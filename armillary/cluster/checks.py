"""Checks that a cluster file is possible: counts divide, names exist, ports suffice, and figures are not swapped."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from armillary.cluster import networks as n
from armillary.cluster import schema as s
from armillary.cluster.units import write
from armillary.wording import counted

if TYPE_CHECKING:
    from armillary.cluster.cluster import Cluster

#: The usual range of bytes/s of memory and of storage; outside it a file must state `unusual = true`.
_MEMORY_RANGE = (1e9, 1e14)
_STORAGE_RANGE = (1e6, 1e14)
_STORAGE = ("nvme", "ssd", "hdd", "pfs", "object")


def check(cluster: Cluster) -> Iterator[str]:
    """One line per impossibility, as `key.path: found; expected`."""
    yield from _names([g.name for g in cluster.groups], "group")
    sites = [site.name for site in cluster.sites]
    if len(sites) > 1:
        yield from (f"site[{i}].name: missing; several sites need names" for i, name in enumerate(sites) if name is None)
        yield from _names([name for name in sites if name], "site")
    for group in cluster.groups:
        at = f"group.{group.name}"
        if group.site is not None and group.site not in sites:
            yield f'{at}.site: found "{group.site}"; expected one of the sites: {", ".join(str(x) for x in sites) or "(none)"}'
        yield from _node(group.node, f"{at}.node", cluster)
    for name, network in cluster.networks.items():
        at = f"network.{name}"
        for key, message in n.arithmetic(network):
            yield f"{at}.{key}: {message}" if key else f"{at}: {message}"
        yield from _ports(cluster, name, network)


def _names(names: list[str], what: str) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield f'{what}.{name}: two {what}s are called "{name}"'
        seen.add(name)


def _node(node: s.Node, at: str, cluster: Cluster) -> Iterator[str]:
    for i, socket in enumerate(node.sockets):
        yield from _socket(socket, _at(at, "socket", i, node.sockets))
    for i, memory in enumerate(node.memories):
        yield from _memory(memory, _at(at, "memory", i, node.memories))
    yield from _names([m.name for m in node.memories if m.name], f"{at}.memory")
    for i, device in enumerate(node.devices):
        here = _at(at, "device", i, node.devices)
        yield from _peak(device.peak, f"{here}.peak")
        if device.memory is not None:
            yield from _memory(device.memory, f"{here}.memory")
        yield from _near(device.near, device.count, node, here, ("socket", "numa"))
        yield from _ordered(device.power.idle, device.power.peak, f"{here}.power", "idle", "peak")
    for i, nic in enumerate(node.nics):
        here = _at(at, "nic", i, node.nics)
        if nic.network is not None and nic.network not in cluster.networks:
            known = ", ".join(cluster.networks) or "(none)"
            yield f'{here}.network: found "{nic.network}"; expected one of the networks: {known}'
        yield from _near(nic.near, nic.count, node, here, ("socket", "numa", "device"))
    for i, link in enumerate(node.links):
        yield from _link(link, node, _at(at, "link", i, node.links))
    if node.power is not None:
        yield from _ordered(node.power.idle, node.power.peak, f"{at}.power", "idle", "peak")


def _at(at: str, key: str, i: int, entries: tuple[Any, ...]) -> str:
    if entries[i].name:
        return f"{at}.{key}.{entries[i].name}"
    return f"{at}.{key}" if len(entries) == 1 else f"{at}.{key}[{i}]"


def _socket(socket: s.Socket, at: str) -> Iterator[str]:
    if socket.cores is not None:
        if socket.cores % socket.numa:
            yield f"{at}.numa: found {socket.numa}; expected a divisor of the {socket.cores} cores"
        for i, cache in enumerate(socket.caches):
            if cache.shared_by is not None and socket.cores % cache.shared_by:
                yield f"{at}.caches[{i}].shared_by: found {cache.shared_by}; expected a divisor of the {socket.cores} cores"
    if socket.clock is not None:
        yield from _ordered(socket.clock.base, socket.clock.max, f"{at}.clock", "base", "max")
    if socket.flops is not None:
        yield from _peak(socket.flops, f"{at}.flops")


def _peak(peak: s.Peak, at: str) -> Iterator[str]:
    for narrow, wide in (("fp8", "bf16"), ("fp8", "fp16"), ("fp4", "fp8")):
        a, b = peak[narrow], peak[wide]
        if a is not None and b is not None and a < b:
            yield f"{at}.{narrow}: found {a.text}, less than {wide} with {b.text}: looks swapped (or sparse among dense)"
            return


def _memory(memory: s.Memory, at: str) -> Iterator[str]:
    low, high = _STORAGE_RANGE if memory.kind in _STORAGE else _MEMORY_RANGE
    for key in ("bandwidth", "write_bandwidth"):
        rate = getattr(memory, key)
        if rate is not None and not low <= rate <= high and not memory.unusual:
            yield (
                f"{at}.{key}: found {rate.text}; expected {write(low, 'B/s')} to {write(high, 'B/s')}"
                " (bits instead of bytes? set unusual = true if this is intended)"
            )


def _ordered(low: Any, high: Any, at: str, low_key: str, high_key: str) -> Iterator[str]:
    if low is not None and high is not None and low > high:
        yield f"{at}.{low_key}: found {low.text}, more than {high_key} with {high.text}"


def _near(near: str | tuple[str, ...] | None, count: int, node: s.Node, at: str, kinds: tuple[str, ...]) -> Iterator[str]:
    if near is None:
        return
    if isinstance(near, tuple) and len(near) != count:
        yield f"{at}.near: found {len(near)} entries; expected {count}, one per part"
        return
    for one in dict.fromkeys((near,) if isinstance(near, str) else near):
        if one.partition(":")[0] not in kinds:
            yield f'{at}.near: found "{one[:60]}"; expected {" or ".join(f"{kind}:k" for kind in kinds)}'
        elif not near_exists(one, node):
            sockets = sum(x.count for x in node.sockets)
            domains = sum(x.count * x.numa for x in node.sockets)
            has = f"{counted(sockets, 'socket')}, {counted(domains, 'NUMA domain')} and {counted(device_count(node), 'device')}"
            yield f'{at}.near: found "{one[:60]}"; the node has {has}'


def near_exists(near: str, node: s.Node) -> bool:
    """Whether `socket:0`, `numa:3`, `device:1` or `device` (one per device) names a part of the node."""
    kind, _, index = near.partition(":")
    limit = {
        "socket": sum(x.count for x in node.sockets),
        "numa": sum(x.count * x.numa for x in node.sockets),
        "device": device_count(node),
    }.get(kind, 0)
    if not index:
        return near == "device" and limit > 0
    return index.isascii() and index.isdigit() and len(index) < 9 and int(index) < limit


def device_count(node: s.Node) -> int:
    """Devices of one node, of every kind."""
    return sum(d.count for d in node.devices)


def _link(link: s.Link, node: s.Node, at: str) -> Iterator[str]:
    sizes = []
    for end in link.ends:
        size = {
            "socket": sum(x.count for x in node.sockets),
            "device": device_count(node),
            "nic": sum(x.count for x in node.nics),
        }.get(end)
        if size is None:
            size = sum(d.count for d in node.devices if d.name == end)
        if not size:
            yield f'{at}.between: found "{end}"; expected socket, device or nic (or the name of a device) that the node has'
        sizes.append(size)
    if link.topology == "mesh" and link.dims is not None and math.prod(int(d) for d in link.dims) != sizes[0]:
        yield f"{at}.dims: found {math.prod(int(d) for d in link.dims)} places; the node has {sizes[0]} {link.ends[0]}s"
    for a, b in link.pairs or ():
        if (sizes[0] and a >= sizes[0]) or (sizes[1] and b >= sizes[1]) or (a == b and link.ends[0] == link.ends[1]):
            yield f"{at}.pairs: found [{a}, {b}]; the node has {sizes[0]} {link.ends[0]}s and {sizes[1]} {link.ends[1]}s"
            return


def _ports(cluster: Cluster, name: str, network: n.Network) -> Iterator[str]:
    needs = [(g, sum(nic.count for nic in g.node.nics if nic.network == name)) for g in cluster.groups]
    needs = [(g, nics) for g, nics in needs if nics]
    total = sum(g.count * nics for g, nics in needs)
    if isinstance(network, n.Tiers):
        yield from _layers(cluster, name, network)
        return
    offers = network.offers
    if offers is not None and total > offers:
        whose = " and ".join(
            f'group "{g.name}" needs {g.count * nics} ({counted(g.count, "node")} × {counted(nics, "NIC")})' for g, nics in needs[:4]
        )
        missing = f"{counted(total - offers, 'port')} {'is' if total - offers == 1 else 'are'} missing"
        yield f"network.{name}: {kind(network)} offers {offers} endpoints, but {whose}: {missing}"
    elif offers is not None and network.exact and total != offers:
        dims = f"{kind(network)} has {offers} endpoints, but {total} are attached; expected as many (or partial = true)"
        yield f"network.{name}: {dims}"
    elif isinstance(network, n.Rail) and network.spines == 0:
        nodes = sum(int(g.count) for g, _ in needs)
        if nodes > network.leaf_ports:
            yield f"network.{name}: a rail without spines offers {network.leaf_ports} endpoints, but {nodes} nodes need one each"


def _layers(cluster: Cluster, name: str, network: n.Tiers) -> Iterator[str]:
    counts = {layer.name: int(layer.count) for layer in network.layers}
    if sum(counts.values()) > 10_000_000:
        yield f"network.{name}.layers: {sum(counts.values()):,} vertices; at most 10,000,000"
    for group in cluster.groups:
        nics = sum(nic.count for nic in group.node.nics if nic.network == name)
        if nics and group.name not in counts:
            yield f'network.{name}.layers: no layer is called "{group.name}" like the group that is attached'
        elif nics and counts[group.name] != group.count * nics:
            found = f"found {counts[group.name]}; the group of that name has {group.count * nics} endpoints"
            yield f"network.{name}.layers.{group.name}.count: {found}"


def kind(network: n.Network) -> str:
    """The name of the topology, as the file writes it."""
    return str(getattr(network, "topology", "network"))
