"""Finds figures that a cluster does not state, before something relies on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, get_args

from armillary.cluster import networks as n
from armillary.cluster import schema as s
from armillary.cluster.fields import Table
from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    from armillary.cluster.cluster import Cluster

#: Short names for several requirements.
TOPICS = {
    "power": ("node.power.idle", "node.power.peak"),
    "carbon": ("site.carbon_intensity", "site.pue"),
    "embodied": ("site.embodied", "site.lifetime"),
    "failures": ("group.mtbf", "group.repair"),
}
_ROOTS: dict[str, tuple[type[Table], ...]] = {
    "site": (s.Site,),
    "group": (s.NodeGroup,),
    "node": (s.Node,),
    "socket": (s.Socket,),
    "memory": (s.Memory,),
    "device": (s.Device,),
    "nic": (s.Nic,),
    "link": (s.Link,),
    "network": (n.Dragonfly, n.FatTree, n.Torus, n.Mesh, n.Hypercube, n.Rail, n.Nvl, n.Star, n.Full, n.Tiers, n.File),
}


def missing(cluster: Cluster, what: str) -> list[str]:
    """The key paths of every unknown figure under `what`."""
    return [path for one in TOPICS.get(what, (what,)) for path in _missing(cluster, one)]


def require(cluster: Cluster, what: Iterable[str]) -> None:
    """Raises an `InputError` that lists every absent figure of `what`."""
    absent = [path for one in sorted(what) for path in missing(cluster, one)]
    if absent:
        raise InputError.several(f"{cluster.name}: {path}: unknown, but needed here" for path in absent)


def _missing(cluster: Cluster, what: str) -> Iterator[str]:
    root, *keys = what.split(".")
    if root == "node" and len(keys) > 1 and keys[0] in _ROOTS:
        root, *keys = keys
    if root not in _ROOTS or not keys:
        raise unknown("requirement", what, (*TOPICS, *(f"{r}.…" for r in _ROOTS)))
    if not any(_has(model, keys) for model in _ROOTS[root]):
        raise unknown("requirement", what, (f"{root}.{key}" for model in _ROOTS[root] for key in _names(model)))
    places = list(_places(cluster, root))
    if not places:
        yield f"{root} (there is none)"
    for at, table in places:
        gone = _first_absent(table, keys)
        if gone is not None:
            yield ".".join((at, *keys[: gone + 1]))


def _names(model: type[Table]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _has(model: type[Table], keys: list[str]) -> bool:
    """Whether a table of this kind can hold these keys."""
    for name, field in model.model_fields.items():
        if (field.alias or name) == keys[0]:
            inner = [a for a in (field.annotation, *get_args(field.annotation)) if isinstance(a, type) and issubclass(a, Table)]
            return len(keys) == 1 or any(_has(m, keys[1:]) for m in inner)
    return False


def _first_absent(table: Any, keys: list[str]) -> int | None:
    for i, key in enumerate(keys):
        name = next((nm for nm, field in type(table).model_fields.items() if (field.alias or nm) == key), None)
        table = None if name is None else getattr(table, name)
        if table is None:
            return i
    return None


def _places(cluster: Cluster, root: str) -> Iterator[tuple[str, Table]]:
    if root == "site":
        yield from ((f"site.{x.name}" if x.name else "site", x) for x in cluster.sites or (s.Site(),))
    elif root == "network":
        yield from ((f"network.{name}", network) for name, network in cluster.networks.items())
    elif root == "group":
        yield from ((f"group.{g.name}", g) for g in cluster.groups)
    else:
        for g in cluster.groups:
            at = f"group.{g.name}.node"
            entries = (g.node,) if root == "node" else _entries(g.node, root)
            for i, entry in enumerate(entries):
                if root == "node":
                    yield at, entry
                else:
                    name = getattr(entry, "name", None)
                    yield f"{at}.{root}" + (f".{name}" if name else f"[{i}]" if len(entries) > 1 else ""), entry


def _entries(node: s.Node, root: str) -> tuple[Any, ...]:
    return {"socket": node.sockets, "memory": node.memories, "device": node.devices, "nic": node.nics, "link": node.links}[root]
