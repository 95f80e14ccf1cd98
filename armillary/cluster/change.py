"""Makes another cluster from this one: some of its nodes, more of them, or one key changed. The result is checked like a file."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.cluster import networks as n
from armillary.cluster.fields import MOST
from armillary.cluster.merge import part_keys
from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    from armillary.cluster.cluster import Cluster


def slice_nodes(cluster: Cluster, nodes: Iterable[int]) -> Cluster:
    """See `Cluster.slice`."""
    chosen = np.unique(np.fromiter(nodes, np.int64))
    if not len(chosen):
        raise InputError("no nodes chosen; expected at least one")
    for end in (chosen[0], chosen[-1]):
        cluster.node(int(end))
    firsts = np.concatenate([[0], np.cumsum([int(g.count) for g in cluster.groups])])
    counts = np.diff(np.searchsorted(chosen, firsts))
    data = cluster.to_dict()
    data["group"] = [{**g, "count": int(count)} for g, count in zip(data["group"], counts, strict=True) if count]
    _fit_layers(data)
    for network in data.get("network", {}).values():
        if network["topology"] in ("torus", "mesh", "hypercube"):
            network["partial"] = True
    return _built(cluster, data)


def scale(cluster: Cluster, nodes: int, group: str | None) -> Cluster:
    """See `Cluster.scale`."""
    if not 1 <= nodes <= MOST:
        raise InputError(f"nodes: found {nodes}; expected 1 to {MOST:,}")
    data = cluster.to_dict()
    if group is not None:
        cluster.group(group)
        counts = {g.name: nodes if g.name == group else int(g.count) for g in cluster.groups}
    else:
        counts = _shares(cluster, nodes)
    data["group"] = [{**g, "count": counts[g["name"]]} for g in data["group"] if counts[g["name"]]]
    for name, network in cluster.networks.items():
        ends = sum(counts[g.name] * sum(x.count for x in g.node.nics if x.network == name) for g in cluster.groups)
        _resize(data["network"][name], network, ends)
    _fit_layers(data)
    return _built(cluster, data)


def _shares(cluster: Cluster, nodes: int) -> dict[str, int]:
    """Divides `nodes` in proportion to the sizes of the groups, by largest remainders."""
    exact = [(g.name, nodes * g.count / cluster.nodes) for g in cluster.groups]
    counts = {name: math.floor(share) for name, share in exact}
    by_rest = sorted(exact, key=lambda x: x[1] - math.floor(x[1]), reverse=True)
    for name, _ in by_rest[: nodes - sum(counts.values())]:
        counts[name] += 1
    return counts


def _resize(table: dict[str, Any], network: n.Network, ends: int) -> None:
    """The same topology for `ends` endpoints."""
    if isinstance(network, n.Dragonfly) and len(network.switches_per_group) == 1:
        table["groups"] = max(1, -(-ends // (network.sizes[0] * network.endpoints_per_switch)))
    elif isinstance(network, n.FatTree) and network.k is not None:
        k = 2
        while k**3 // 4 < ends:
            k += 2
        table["k"] = k
    elif isinstance(network, n.Torus):
        table["dims"] = _box(ends, len(network.dims))
    elif isinstance(network, n.Hypercube):
        if ends & (ends - 1):
            raise InputError(f"a hypercube has a power of two endpoints, not {ends}")
        table["dimension"] = ends.bit_length() - 1
    elif isinstance(network, n.Star) and network.ports is not None:
        table["ports"] = max(int(network.ports), ends)


def _box(ends: int, axes: int) -> list[int]:
    """`ends` as a product of `axes` factors that are as equal as possible, largest first."""
    dims = []
    for left in range(axes, 1, -1):
        side = round(ends ** (1 / left))
        divisor = next(d for d in range(max(side, 1), 0, -1) if ends % d == 0)
        dims.append(divisor)
        ends //= divisor
    return sorted([*dims, ends], reverse=True)


def _fit_layers(data: dict[str, Any]) -> None:
    """Sets the layers of `tiers` to the counts of the groups that they hold."""
    for name, network in data.get("network", {}).items():
        for layer in network.get("layers", ()):
            group = next((g for g in data["group"] if g["name"] == layer["name"]), None)
            nics = sum(_count(x) for x in (group or {}).get("node", {}).get("nic", ()) if x.get("network") == name)
            if group and nics:
                layer["count"] = _count(group) * nics


def _count(entry: dict[str, Any]) -> int:
    count = entry.get("count", 1)
    return count["value"] if isinstance(count, dict) else count


def replace(cluster: Cluster, key: str, value: object) -> Cluster:
    """See `Cluster.replace`."""
    data = cluster.to_dict()
    here: Any = data
    steps = [step for step in re.split(r"\.|(\[[0-9]{1,9}\])", key) if step]
    if not steps or len(steps) > 50:
        raise InputError(f'found "{key[:80]}"; expected a key such as "group.gpu.node.device.memory.size"')
    for i, step in enumerate(steps):
        here = _only(here, step, key)
        if isinstance(here, list):
            here = _entry(here, step, key)
            continue
        if i == len(steps) - 1:
            if step == "model" and isinstance(value, str) and part_keys(value):
                # Another part has its own figures, so those of the old part are dropped.
                for old in part_keys(str(here.get("model"))):
                    here.pop(old, None)
            here[step] = value
            return _built(cluster, data, f"{cluster.name} with another {key}")
        if step not in here or not isinstance(here[step], dict | list):
            here = here.setdefault(step, {}) if step not in here else _not_a_table(key, step)
        else:
            here = here[step]
    raise InputError(f'"{key[:80]}" is an entry, not a key; expected one of its keys at the end')


def _only(here: Any, step: str, key: str) -> Any:
    """The only entry of an array, where a key continues without naming one."""
    if isinstance(here, list) and not step.startswith("[") and len(here) == 1 and here[0].get("name") != step:
        return here[0]
    return here


def _entry(entries: list[Any], step: str, key: str) -> Any:
    if step.startswith("["):
        index = int(step[1:-1])
        if index < len(entries):
            return entries[index]
        raise InputError(f"{key}: found {step}; there are {len(entries)} entries")
    found = [e for e in entries if step in (e.get("name"), e.get("kind"), e.get("network"))]
    if len(found) == 1:
        return found[0]
    raise unknown("entry", step, (str(e.get("name") or e.get("kind") or f"[{i}]") for i, e in enumerate(entries)), where=key)


def _not_a_table(key: str, step: str) -> Any:
    raise InputError(f'{key}: "{step}" is a value; expected a table to go on into')


def _built(cluster: Cluster, data: dict[str, Any], where: str | None = None) -> Cluster:
    from armillary.cluster.reader import from_dict

    return from_dict(data, where or cluster.name)
