"""Detects the memories that the processors see: NUMA domains, their sizes, and their speeds as the firmware states them.

A domain without processors is a tier of its own, such as memory behind CXL or the high-bandwidth memory of the package. Bandwidth and
latency come from the firmware's table of memory attributes (HMAT), which the kernel shows below `access0`; without that table they stay
unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from armillary.cluster.detect.tree import Facts, Tree, cpu_list, numbered, whole

NODES = "/sys/devices/system/node"
MEMINFO = "/proc/meminfo"
# A figure outside this range is a default of the firmware, not a property of the memory.
LEAST_RATE, MOST_RATE = 1e9, 1e14


@dataclass(frozen=True)
class Domain:
    """One NUMA domain: its hardware threads, its bytes, its read and write bytes/s, and its latency in seconds (None if unknown)."""

    index: int
    cpus: frozenset[int]
    size: int | None = None
    bandwidth: float | None = None
    write_bandwidth: float | None = None
    latency: float | None = None
    distances: tuple[int, ...] = ()
    #: "hbm" or "cxl", if a source names the kind of a memory without processors.
    kind: str | None = None


def read_domains(tree: Tree, facts: Facts) -> tuple[Domain, ...]:
    """The NUMA domains of the tree, in numerical order."""
    found = []
    for name in tree.names(NODES):
        index = numbered(name, "node")
        if index is None:
            continue
        folder = f"{NODES}/{name}"
        size = kibibytes(tree.text(f"{folder}/meminfo"), r"Node\s+[0-9]+\s+MemTotal")
        distances = tuple(
            int(d) for d in (tree.text(f"{folder}/distance") or "").split()[:4096] if d.isascii() and d.isdecimal() and len(d) < 6
        )
        access = f"{folder}/access0/initiators"
        found.append(
            Domain(
                index,
                frozenset(cpu_list(tree.text(f"{folder}/cpulist")) or ()),
                size,
                _rate(tree.number(f"{access}/read_bandwidth")),
                _rate(tree.number(f"{access}/write_bandwidth")),
                _nanoseconds(tree.number(f"{access}/read_latency")),
                distances,
            )
        )
        facts.add(f"numa.{name}.memory", size, f"{folder}/meminfo")
    facts.add("numa.domains", len(found) or None, f"{NODES}/node*")
    far = max((max(domain.distances) for domain in found if domain.distances), default=None)
    facts.add("numa.largest_distance", far, f"{NODES}/node*/distance")
    return tuple(found)


def memory_tiers(tree: Tree, domains: tuple[Domain, ...], facts: Facts) -> list[dict[str, Any]]:
    """The `memory` tables of the tiers that the processors load from: DRAM first, and then domains without processors.

    The size and the bandwidth of a tier are sums over all its domains in the node; the bandwidth is absent unless every domain states one.
    """
    total = kibibytes(tree.text(MEMINFO), "MemTotal")
    facts.add("memory.total", total, MEMINFO)
    pages, page = whole_after(tree.text(MEMINFO), "HugePages_Total"), kibibytes(tree.text(MEMINFO), "Hugepagesize")
    facts.add("memory.hugepages", pages, MEMINFO)
    facts.add("memory.hugepage_size", page, MEMINFO)
    return tiers_of(domains, total, facts)


def tiers_of(domains: tuple[Domain, ...], total: int | None, facts: Facts) -> list[dict[str, Any]]:
    """The same tables from given domains; `total` is the memory that the system reports in bytes, if it reports one."""
    near = [domain for domain in domains if domain.cpus and domain.size]
    far = [domain for domain in domains if not domain.cpus and domain.size]
    beyond = sum(domain.size or 0 for domain in far)
    tiers = []
    if near:
        tiers.append(_tier("dram", near, "socket", facts))
    elif total and total > beyond:
        tiers.append({"name": "dram", "kind": "dram", "size": total - beyond, "attached": "socket"})
    # Memory that a hypervisor added later may be missing from the domains, and the meminfo of a container may show less than exists.
    if near and total and total - beyond > tiers[0]["size"]:
        tiers[0]["size"] = total - beyond
        facts.add("memory.dram.size", total - beyond, f"{MEMINFO}: more than the domains add up to")
    fastest_near = max((domain.bandwidth for domain in near if domain.bandwidth), default=None)
    for kind in ("hbm", "cxl"):
        members = [domain for domain in far if _kind(domain, fastest_near) == kind]
        if members:
            tiers.append(_tier(kind, members, "socket" if kind == "hbm" else "node", facts))
    # The schema lists the fastest first.
    return sorted(tiers, key=lambda tier: {"hbm": 0, "dram": 1}.get(tier["kind"], 2))


def _kind(domain: Domain, fastest_near: float | None) -> str:
    if domain.kind is not None:
        return domain.kind
    return "hbm" if domain.bandwidth and fastest_near and domain.bandwidth > fastest_near else "cxl"


def _tier(kind: str, members: list[Domain], attached: str, facts: Facts) -> dict[str, Any]:
    where = f"{NODES}/node{members[0].index}"
    facts.add(f"memory.{kind}.size", sum(domain.size or 0 for domain in members), f"{where}/meminfo")
    tier: dict[str, Any] = {"name": kind, "kind": kind, "size": sum(domain.size or 0 for domain in members), "attached": attached}
    firmware = f"{where}/access0/initiators"
    for key, values in (
        ("bandwidth", [domain.bandwidth for domain in members]),
        ("write_bandwidth", [domain.write_bandwidth for domain in members]),
    ):
        rates = [value for value in values if value]
        if len(rates) == len(members) and sum(rates) <= MOST_RATE:
            tier[key] = {"value": sum(rates), "source": firmware}
    latencies = [domain.latency for domain in members if domain.latency]
    if latencies:
        tier["latency"] = {"value": max(latencies), "source": firmware}
    return tier


def kibibytes(text: str | None, label: str) -> int | None:
    """The bytes of a line "label: n kB" of /proc/meminfo or a similar file; the kernel's kB are KiB. None if absent or zero."""
    match = re.search(rf"(?m)^{label}:\s*([0-9]{{1,15}}) kB\s*$", text or "")
    return (int(match[1]) << 10) or None if match else None


def whole_after(text: str | None, label: str) -> int | None:
    """The whole number of a line "label: n", or None if absent."""
    match = re.search(rf"(?m)^{label}:\s*([0-9]{{1,15}})\s*$", text or "")
    return whole(match[1]) if match else None


def _rate(mebibytes_per_s: int | None) -> float | None:
    rate = (mebibytes_per_s or 0) * 2.0**20
    return rate if LEAST_RATE <= rate <= MOST_RATE else None


def _nanoseconds(count: int | None) -> float | None:
    return count * 1e-9 if count is not None and 1 <= count <= 1_000_000 else None
