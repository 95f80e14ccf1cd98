"""`here()`: this machine as a cluster of one node, or the machine that a copied /sys and /proc came from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from armillary.cluster.detect.cpus import Processors, read_processors, with_tdp
from armillary.cluster.detect.gpus import devices, read_gpus
from armillary.cluster.detect.identity import describe_identity
from armillary.cluster.detect.limits import usable
from armillary.cluster.detect.network import nics, read_ports
from armillary.cluster.detect.numa import LEAST_RATE, Domain, memory_tiers, read_domains
from armillary.cluster.detect.power import read_power
from armillary.cluster.detect.sockets import sockets
from armillary.cluster.detect.storage import read_storage
from armillary.cluster.detect.tree import Facts, Tree
from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.cluster import Cluster

#: The most tables of one kind in a node, and the most facts in a description.
MOST_TABLES = 1_000
MOST_FACTS = 100_000


def here(root: str | os.PathLike[str] = "/", measure: bool = False) -> Cluster:
    """The machine below `root` as a cluster of one node; `measure` takes six seconds and adds measured values to the nominal ones."""
    from armillary.cluster import Cluster

    return Cluster.from_dict(describe(root, measure), where=f"here({os.fspath(root)})" if os.fspath(root) != "/" else "here")


def describe(root: str | os.PathLike[str] = "/", measure: bool = False) -> dict[str, Any]:
    """What `here` finds, as the tables of a cluster file; `facts` says where each fact came from. If a source is missing or malformed, its
    fact is left out; an empty `root` gives one node about which nothing is known.
    """
    tree = Tree(root)
    if measure and not tree.live:
        raise InputError("a copied tree cannot be measured; expected measure=False", where=str(root))
    facts = Facts()
    processors = with_tdp(read_processors(tree, facts), read_power(tree, facts))
    domains = read_domains(tree, facts)
    environ = _environment(tree)
    tiers = memory_tiers(tree, domains, facts)
    limits = usable(tree, processors, facts.value("memory.total") or _size(tiers), environ, facts)
    near: dict[int, str] = {}
    packages = sockets(processors, [domain.cpus for domain in domains if domain.cpus], facts)
    if len(packages) > MOST_TABLES:
        packages = []
    else:
        near = _places(processors, domains, packages)
    gpus, links = read_gpus(tree, facts)
    ports = read_ports(tree, facts)
    drives = read_storage(tree, facts)
    identity = describe_identity(tree, environ, facts)
    parts = {
        "socket": packages,
        "memory": tiers + drives,
        "device": devices(gpus, near)[:MOST_TABLES],
        "nic": nics(ports, near)[:MOST_TABLES],
        "link": links,
        "usable": limits,
    }
    node: dict[str, Any] = {name: found for name, found in parts.items() if found}
    if measure:
        _measured(node, processors, limits, facts)
    data: dict[str, Any] = {"armillary": 1, "name": "here"}
    if identity:
        data["description"] = identity
    data["group"] = [{"name": "here", "count": 1, "node": node}]
    data["facts"] = facts.found[:MOST_FACTS]
    return data


def _environment(tree: Tree) -> Mapping[str, str]:
    if tree.live:
        return {name: value for name, value in os.environ.items() if name.startswith("SLURM_")}
    entries = (tree.text("/proc/self/environ") or "").split("\0")
    return {name: value for name, _, value in (entry.partition("=") for entry in entries) if name.startswith("SLURM_")}


def _size(tiers: list[dict[str, Any]]) -> int | None:
    return sum(tier["size"] for tier in tiers) or None


def _places(processors: Processors, domains: tuple[Domain, ...], packages: list[dict[str, Any]]) -> dict[int, str]:
    """The name of the place near each NUMA domain: `numa:k` if the description has the domains of every
    socket, and otherwise `socket:k`.
    """
    first = processors.first_sockets()
    packages_of = {domain.index: package for domain in domains[:1024] if (package := processors.package_of(domain.cpus)) is not None}
    sockets_of = {index: first[package] for index, package in packages_of.items()}
    described = sum(table["count"] * table.get("numa", 1) for table in packages)
    if described == len(sockets_of) > sum(table["count"] for table in packages):
        ordered = sorted(sockets_of, key=lambda index: (sockets_of[index], index))
        return {index: f"numa:{k}" for k, index in enumerate(ordered)}
    return {index: f"socket:{socket}" for index, socket in sockets_of.items()}


def _measured(node: dict[str, Any], processors: Processors, limits: dict[str, Any], facts: Facts) -> None:
    """Adds measured values to nominal ones: the triad to DRAM, matrix products to sockets, and the round trip to the facts."""
    from armillary.cluster.detect.measure import measure

    last = max((cache.level for cache in processors.caches), default=0)
    cache_bytes = sum(cache.size for cache in processors.caches if cache.level == last)
    result = measure(cache_bytes, limits.get("memory"), facts.value("usable.threads") or os.cpu_count() or 1)
    facts.add("measured.triad", result.triad, f"STREAM triad, {result.threads} threads")
    facts.add("measured.gemm_fp64", result.gemm_fp64, "matrix product through NumPy")
    facts.add("measured.gemm_fp32", result.gemm_fp32, "matrix product through NumPy")
    facts.add("measured.loopback_round_trip", result.round_trip, "one byte over TCP on 127.0.0.1, median")
    for tier in node.get("memory", []):
        if tier["kind"] == "dram":
            tier["bandwidth"] = _beside(tier.get("bandwidth"), result.triad, "STREAM triad")
            if result.triad < LEAST_RATE:  # a small share of a processor does not saturate the memory bus
                tier["unusual"] = True
            break
    count = sum(table["count"] for table in node.get("socket", []))
    for table in node.get("socket", []):
        table["flops"] = {
            "fp64": _beside(None, result.gemm_fp64 / count, "matrix product, all sockets together"),
            "fp32": _beside(None, result.gemm_fp32 / count, "matrix product, all sockets together"),
        }


def _beside(nominal: Any, measured: float, how: str) -> dict[str, Any]:
    """A number with its nominal and its measured value; if there is no nominal one, the measured value stands
    alone and the source says so.
    """
    if isinstance(nominal, dict):
        return {**nominal, "measured": measured}
    if nominal is not None:
        return {"value": nominal, "measured": measured}
    return {"value": measured, "source": f"measured: {how}", "measured": measured}
