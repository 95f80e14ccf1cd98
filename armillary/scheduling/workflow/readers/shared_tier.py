"""Which of the tiers that a file names is the shared one."""

from __future__ import annotations

from collections.abc import Sequence

from armillary.errors import InputError

#: Names of shared file systems.
SHARED = ("beegfs", "lustre", "gpfs", "pfs", "nfs", "ceph", "shared", "daos", "orangefs")


def shared_tier(names: Sequence[str], said: str, where: str) -> int:
    """The number of the shared tier: the one that is said, or the only one with the name of a shared file system."""
    found = [n for n, name in enumerate(names) if (name == said if said else name.lower() in SHARED)]
    if len(found) != 1:
        what = f'the tier "{said}"' if said else f"exactly one of {', '.join(SHARED)}"
        raise InputError(f"found the tiers {', '.join(names) or 'none'}; expected {what}; say which is shared with --shared", where=where)
    return found[0]


def by_speed(names: Sequence[str], shared: int) -> list[str]:
    """The shared tier first, then local ones with those in memory last, which stand for the fastest."""
    memory = ("tmpfs", "shm", "dram", "ram", "memory")
    local = [name for n, name in enumerate(names) if n != shared]
    return [names[shared], *sorted(local, key=lambda name: (name.lower() in memory, name))]
