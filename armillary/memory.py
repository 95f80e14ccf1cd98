"""How much memory there is, and a refusal in time where a request needs more."""

from __future__ import annotations

import os

from armillary.errors import InputError


def free_bytes() -> int:
    """Bytes of memory that could be taken now."""
    try:
        with open("/proc/meminfo") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def too_much(need: int, what: str) -> str | None:
    """What to say where `need` bytes for `what` are more than is free; None where they are not."""
    free = free_bytes()
    if need <= free:
        return None
    return f"{what} needs about {need / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free"


def require(need: int, what: str, where: str | None = None) -> None:
    """Raises InputError where `need` bytes for `what` are more than is free, before they are asked for one by one."""
    said = too_much(need, what)
    if said:
        raise InputError(said, where=where)
