"""Writes processors as the `socket` tables of a node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from armillary.cluster.detect.cpus import CPUS, Cache, Core, Processors
from armillary.cluster.detect.tree import Facts


def sockets(processors: Processors, domains: Sequence[frozenset[int]], facts: Facts) -> list[dict[str, Any]]:
    """The `socket` tables, in which equal neighbours are counted together.

    `domains` are the hardware threads of each NUMA domain that has any. A package that mixes cores with and without a second hardware
    thread becomes one table per kind, so that cores and threads add up; `cpus.packages` keeps the true count.
    """
    cores: dict[int, list[Core]] = defaultdict(list)
    package_of: dict[int, int] = {}
    for core in processors.cores:
        cores[core.package].append(core)
        package_of.update(dict.fromkeys(core.cpus, core.package))
    caches: dict[int, list[Cache]] = defaultdict(list)
    for cache in processors.caches:
        for package in {package_of[cpu] for cpu in cache.cpus if cpu in package_of}:
            caches[package].append(cache)
    tables: list[dict[str, Any]] = []
    for package in sorted(cores):
        for threads in sorted({len(core.cpus) for core in cores[package]}, reverse=True):
            alike = [core for core in cores[package] if len(core.cpus) == threads]
            table: dict[str, Any] = {"count": 1, "cores": len(alike), "threads_per_core": threads, **_figures(processors, package)}
            numa = _domains(package, alike, domains, facts)
            if numa > 1:
                table["numa"] = numa
            levels = _levels(package, alike, caches[package], facts)
            if levels:
                table["caches"] = levels
            if tables and {**tables[-1], "count": 1} == table:
                tables[-1]["count"] += 1
            else:
                tables.append(table)
    return tables


def _figures(processors: Processors, package: int) -> dict[str, Any]:
    # A base clock above the maximum comes from a hypervisor that mixes the figures of two machines.
    sane = not (processors.base_hz and processors.max_hz and processors.base_hz > processors.max_hz)
    clock = {name: hertz for name, hertz in (("base", processors.base_hz), ("max", processors.max_hz)) if hertz and sane}
    found = {"model": processors.model, "clock": clock, "simd": processors.simd, "tdp": processors.tdp.get(package)}
    return {key: value for key, value in found.items() if value}


def _domains(package: int, cores: list[Core], domains: Sequence[frozenset[int]], facts: Facts) -> int:
    """The number of NUMA domains of these cores; the description has only domains of equal size, so an uneven count stays a fact."""
    cpus = frozenset(cpu for core in cores for cpu in core.cpus)
    numa = sum(1 for domain in domains if not domain.isdisjoint(cpus))
    if numa > 1 and len(cores) % numa:
        facts.add(f"cpus.package{package}.numa", numa, "NUMA domains")
        return 1
    return numa


def _levels(package: int, cores: list[Core], caches: list[Cache], facts: Facts) -> list[dict[str, int]]:
    """One entry per cache level; a level that does not divide the cores evenly stays a fact."""
    core_of = {cpu: k for k, core in enumerate(cores) for cpu in core.cpus}
    sharing: dict[int, list[int]] = defaultdict(list)
    sizes: dict[int, list[int]] = defaultdict(list)
    for cache in caches:
        shared_by = len({core_of[cpu] for cpu in cache.cpus if cpu in core_of})
        if shared_by:
            sharing[cache.level].append(shared_by)
            sizes[cache.level].append(cache.size)
    found = []
    for level in sorted(sharing):
        shared_by = max(sharing[level])
        if len(cores) % shared_by == 0 and len(sharing[level]) * shared_by == len(cores):
            found.append({"level": level, "size": max(sizes[level]), "shared_by": shared_by})
        else:
            facts.add(f"cpus.package{package}.l{level}", sum(sizes[level]), f"{CPUS}/cpu*/cache")
    return found
