"""Detects drives and shared file systems.

Drives come from /sys/block, without the kernel's own devices (loops, RAM disks, mappings). Shared file systems come from the mount table;
their sizes are not read, because the read would hang with a file system that hangs.
"""

from __future__ import annotations

import re
from typing import Any

from armillary.cluster.detect.tree import Facts, Tree

BLOCK = "/sys/block"
SHARED = {
    "lustre": "lustre",
    "beegfs": "beegfs",
    "gpfs": "gpfs",
    "nfs": "nfs",
    "nfs4": "nfs",
    "ceph": "ceph",
    "panfs": "panfs",
    "daos": "daos",
}
#: The kernel counts sectors of 512 bytes, whatever the sector size of the drive.
SECTOR = 512
INVENTED = re.compile(r"(loop|ram|zram|dm-|md|sr|fd|nbd|rbd|drbd|zd)[0-9]*")
# A second view of the same drive, such as an eMMC boot partition, or one path of a multipath NVMe drive (nvme0c1n1).
SECOND_VIEW = re.compile(r"mmcblk[0-9]+(boot[0-9]+|rpmb)|nvme[0-9]+c[0-9]+n[0-9]+")


def read_storage(tree: Tree, facts: Facts) -> list[dict[str, Any]]:
    """The `memory` tables of drives (equal ones counted together) and of shared file systems, with the fastest kind first."""
    drives: dict[tuple[str, int], int] = {}
    for name in tree.names(BLOCK)[:4096]:
        sectors = tree.number(f"{BLOCK}/{name}/size")
        if INVENTED.fullmatch(name) or SECOND_VIEW.fullmatch(name) or not sectors or sectors < 0:
            continue
        rotates = tree.number(f"{BLOCK}/{name}/queue/rotational")
        kind = "nvme" if name.startswith("nvme") else "pmem" if name.startswith("pmem") else "hdd" if rotates == 1 else "ssd"
        facts.add(f"storage.{name}.{kind}", sectors * SECTOR, f"{BLOCK}/{name}/size")
        drives[kind, sectors * SECTOR] = drives.get((kind, sectors * SECTOR), 0) + 1
    return drive_tables(drives) + _shared(tree, facts)


def drive_tables(drives: dict[tuple[str, int], int]) -> list[dict[str, Any]]:
    """The `memory` tables of the given numbers of drives of each kind and size (bytes)."""
    tables: list[dict[str, Any]] = []
    for kind in ("pmem", "nvme", "ssd", "hdd"):
        sizes = sorted((size for found, size in drives if found == kind), reverse=True)[:100]
        for k, size in enumerate(sizes):
            name = kind if k == 0 else f"{kind}-{k + 1}"
            tables.append({"name": name, "kind": kind, "count": drives[kind, size], "size": size, "attached": "node"})
    return tables


def _shared(tree: Tree, facts: Facts) -> list[dict[str, Any]]:
    source = "/proc/self/mounts" if tree.exists("/proc/self/mounts") else "/proc/mounts"
    found: dict[str, dict[str, Any]] = {}
    for line in (tree.text(source) or "").splitlines()[:10_000]:
        parts = line.split()
        kind = SHARED.get(parts[2]) if len(parts) >= 4 else None
        if kind is None:
            continue
        # A file system that is mounted in five places is one file system, so what is mounted tells them apart, not where.
        if parts[0] not in found:
            facts.add(f"storage.pfs.{kind}", parts[1], source)
            found[parts[0]] = {"name": f"{kind}-{len(found) + 1}" if found else kind, "kind": "pfs", "attached": "network"}
    return list(found.values())[:64]
