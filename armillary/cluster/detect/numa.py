"""Which memories the processors see: NUMA domains, what each holds, and how fast firmware says it is.

A domain without processors is a tier of its own: memory behind CXL, or the high-bandwidth memory of the package. Bandwidth and
latency come from the firmware's table of memory attributes (HMAT), which the kernel shows below `access0`; where there is none
they stay unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from armillary.cluster.detect.tree import Facts, Tree, cpu_list, numbered, whole

NODES = "/sys/devices/system/node"
MEMINFO = "/proc/meminfo"
# A figure outside this range is a firmware default, not a memory.
LEAST_RATE, MOST_RATE = 1e9, 1e14


@dataclass(frozen=True)
class Domain:
    """One NUMA domain: its hardware threads, bytes, read and write bytes a second, seconds of latency (None: unknown)."""

    index: int
    cpus: frozenset[int]
    size: int | None = None
    bandwidth: float | None = None
    write_bandwidth: float | None = None
    latency: float | None = None
    distances: tuple[int, ...] = ()
    #: "hbm" or "cxl" where a source names the kind of a memory without processors.
    kind: str | None = None


def read_domains(tree: Tree, facts: Facts) -> tuple[Domain, ...]:
    """The NUMA domains of the tree in order of their numbers."""
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
    """The `memory` tables of what the processors load from: DRAM first, then what has no processors of its own.

    A tier's size is the node's, all domains together; its bandwidth likewise, and absent unless every domain of the tier states
    one.
    """
    total = kibibytes(tree.text(MEMINFO), "MemTotal")
    facts.add("memory.total", total, MEMINFO)
    pages, page = whole_after(tree.text(MEMINFO), "HugePages_Total"), kibibytes(tree.text(MEMINFO), "Hugepagesize")
    facts.add("memory.hugepages", pages, MEMINFO)
    facts.add("memory.hugepage_size", page, MEMINFO)
    return tiers_of(domains, total, facts)


def tiers_of(domains: tuple[Domain, ...], total: int | None, facts: Facts) -> list[dict[str, Any]]:
    """The same from domains that anybody found; `total` bytes is what the system reports in all, where it does."""
    near = [domain for domain in domains if domain.cpus and domain.size]
    far = [domain for domain in domains if not domain.cpus and domain.size]
    beyond = sum(domain.size or 0 for domain in far)
    tiers = []
    if near:
        tiers.append(_tier("dram", near, "socket", facts))
    elif total and total > beyond:
        tiers.append({"name": "dram", "kind": "dram", "size": total - beyond, "attached": "socket"})
    # Memory that a hypervisor added later may be missing from the domains; a container's meminfo may show less than there is.
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
    """Bytes of a line "label: n kB" of /proc/meminfo and its likes; the kernel's kB are KiB. None where absent or zero."""
    match = re.search(rf"(?m)^{label}:\s*([0-9]{{1,15}}) kB\s*$", text or "")
    return (int(match[1]) << 10) or None if match else None


def whole_after(text: str | None, label: str) -> int | None:
    """The whole number of a line "label: n"; None where absent."""
    match = re.search(rf"(?m)^{label}:\s*([0-9]{{1,15}})\s*$", text or "")
    return whole(match[1]) if match else None


def _rate(mebibytes_per_s: int | None) -> float | None:
    rate = (mebibytes_per_s or 0) * 2.0**20
    return rate if LEAST_RATE <= rate <= MOST_RATE else None


def _nanoseconds(count: int | None) -> float | None:
    return count * 1e-9 if count is not None and 1 <= count <= 1_000_000 else None
