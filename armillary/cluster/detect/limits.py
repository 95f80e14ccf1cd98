"""What this process may use of the machine, by affinity, control groups of either version, and the share of a batch job.

The machine itself is described as it is, and `usable` beside it is the part that is left for this process. A limit at a higher level
applies too, so the smallest one along the path counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from armillary.cluster.detect.cpus import Processors
from armillary.cluster.detect.tree import Facts, Tree, cpu_list, whole

CGROUPS = "/sys/fs/cgroup"
#: A memory limit from here on means that there is none (version 1 rounds 2⁶³ down to a page).
NO_LIMIT = 1 << 60


def usable(tree: Tree, processors: Processors, memory: int | None, environ: Mapping[str, str], facts: Facts) -> dict[str, Any]:
    """`{cores, memory}`: the cores (possibly a fraction) and bytes that this process may use; unknown keys are absent.

    Cores are the whole cores that affinity and cpusets leave, limited by the processor time that is granted.
    """
    paths = _own_groups(tree)
    allowed = frozenset(cpu for core in processors.cores for cpu in core.cpus)
    for listed, source in [_affinity(tree), *_cpusets(tree, paths)]:
        facts.add("limits.cpus", len(listed) if listed else None, source)
        # An empty intersection comes from a tree that was assembled from two machines; it limits nothing.
        allowed = (allowed & listed) or allowed if listed else allowed
    cores = sum(1 for core in processors.cores if not allowed.isdisjoint(core.cpus))
    granted = [float(cores)] if cores else []
    for share, source in _quotas(tree, paths):
        facts.add("limits.cpu_quota", share, source)
        granted.append(share)
    tasks = whole(environ.get("SLURM_CPUS_ON_NODE"))
    if tasks and tasks > 0:
        facts.add("limits.cpus", tasks, "SLURM_CPUS_ON_NODE")
        granted.append(float(tasks))
    sizes = [memory] if memory else []
    for size, source in _memory_limits(tree, paths):
        facts.add("limits.memory", size, source)
        sizes.append(size)
    megabytes = whole(environ.get("SLURM_MEM_PER_NODE"))
    if megabytes and megabytes > 0:
        facts.add("limits.memory", megabytes << 20, "SLURM_MEM_PER_NODE")
        sizes.append(megabytes << 20)
    if allowed and processors.cores:
        facts.add("usable.threads", len(allowed), "affinity and cpusets")
    found: dict[str, Any] = {}
    if granted:
        found["cores"] = min(granted)
    if sizes:
        found["memory"] = min(sizes)
    return found


def _affinity(tree: Tree) -> tuple[frozenset[int] | None, str]:
    if tree.live and hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0)), "sched_getaffinity"
    for line in (tree.text("/proc/self/status") or "").splitlines():
        label, _, value = line.partition(":")
        if label == "Cpus_allowed_list":
            return frozenset(cpu_list(value.strip()) or ()) or None, "/proc/self/status"
    return None, ""


def _own_groups(tree: Tree) -> dict[str, list[str]]:
    """For each controller ("" for version 2), the folders from this process's group up to the mount."""
    mounts = _mounts(tree)
    found: dict[str, list[str]] = {}
    for line in (tree.text("/proc/self/cgroup") or "").splitlines()[:100]:
        parts = line.split(":", 2)
        if len(parts) != 3 or not parts[2].startswith("/"):
            continue
        # Seen from inside a container the path may begin above the mount ("/../x"), or name folders that are not mounted here.
        steps = [step for step in parts[2].split("/") if step not in ("", ".", "..")][:100]
        for controller in parts[1].split(","):
            top = mounts.get(controller)
            if top is not None:
                found[controller] = [top + "".join(f"/{step}" for step in steps[:depth]) for depth in range(len(steps), -1, -1)]
    return found


def _mounts(tree: Tree) -> dict[str, str]:
    found = {"": CGROUPS} if tree.exists(f"{CGROUPS}/cgroup.controllers") else {}
    if "" not in found and tree.exists(f"{CGROUPS}/unified"):
        found[""] = f"{CGROUPS}/unified"
    for line in (tree.text("/proc/self/mounts") or tree.text("/proc/mounts") or "").splitlines()[:10_000]:
        parts = line.split()
        if len(parts) < 4 or not parts[1].startswith("/"):
            continue
        if parts[2] == "cgroup2":
            found.setdefault("", parts[1])
        elif parts[2] == "cgroup":
            for option in parts[3].split(","):
                if option in ("cpu", "cpuset", "memory"):
                    found.setdefault(option, parts[1])
    for controller in ("cpu", "cpuset", "memory"):
        if controller not in found and tree.exists(f"{CGROUPS}/{controller}"):
            found[controller] = f"{CGROUPS}/{controller}"
    return found


def _cpusets(tree: Tree, groups: dict[str, list[str]]) -> Iterator[tuple[frozenset[int] | None, str]]:
    for controller, names in (("", ("cpuset.cpus.effective",)), ("cpuset", ("cpuset.effective_cpus", "cpuset.cpus"))):
        for path in (f"{folder}/{name}" for folder in groups.get(controller, ()) for name in names):
            listed = cpu_list(tree.text(path))
            if listed:
                yield frozenset(listed), path
                break


def _quotas(tree: Tree, groups: dict[str, list[str]]) -> Iterator[tuple[float, str]]:
    for folder in groups.get("", ()):
        parts = (tree.text(f"{folder}/cpu.max") or "").split()
        quota, period = (whole(parts[0]), whole(parts[1])) if len(parts) == 2 else (None, None)
        if quota and period and quota > 0 and period > 0:
            yield quota / period, f"{folder}/cpu.max"
    for folder in groups.get("cpu", ()):
        quota, period = tree.number(f"{folder}/cpu.cfs_quota_us"), tree.number(f"{folder}/cpu.cfs_period_us")
        if quota and period and quota > 0 and period > 0:
            yield quota / period, f"{folder}/cpu.cfs_quota_us"


def _memory_limits(tree: Tree, groups: dict[str, list[str]]) -> Iterator[tuple[int, str]]:
    for controller, name in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        for folder in groups.get(controller, ()):
            size = tree.number(f"{folder}/{name}")
            if size is not None and 0 < size < NO_LIMIT:
                yield size, f"{folder}/{name}"
