"""Joins the records of a file that every rank used into one record of rank -1, as Darshan does when a job ends.

Amounts and times are added, positions and longest times are maxima, and the record names the ranks that spent the least and the most
time, with the variances of time and of bytes over all ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..logs.log import Module
from ..logs.modules import PREFIX, is_float

_MAXIMA = ("MAX_BYTE_READ", "MAX_BYTE_WRITTEN", "ALIGNMENT", "_END_TIMESTAMP", "F_MAX_READ_TIME", "F_MAX_WRITE_TIME", "_MODE", "_HINTS")


def reduced(module: Module, processes: int, *, all_files: bool = False) -> Module:
    """The module with each file that all `processes` ranks used in one record of rank -1; with `all_files` every file."""
    files, number, uses = np.unique(module.ids, return_inverse=True, return_counts=True)
    shared = (uses == processes) & (processes > 1) | all_files
    alone = np.flatnonzero(~shared[number])
    together = np.flatnonzero(shared[number])
    if not len(together):
        return module
    kept, group = np.unique(number[together], return_inverse=True)
    prefix = PREFIX[module.name]
    joined: dict[str, Any] = {}
    for name, values in module.counters.items():
        joined[name] = _joined(name, values[together], group, len(kept))
    _common_values(module, together, group, len(kept), joined, prefix)
    _ranks(module, together, group, len(kept), joined, prefix)
    counters = {name: np.concatenate([values[alone], joined[name]]) for name, values in module.counters.items()}
    ids = np.concatenate([module.ids[alone], files[kept]])
    ranks = np.concatenate([module.ranks[alone], np.full(len(kept), -1, np.int64)])
    return Module(module.name, ids, ranks, counters, module.partial, module.version)


def _joined(name: str, values: Any, group: Any, n: int) -> Any:
    if name.endswith("START_TIMESTAMP"):
        found = np.full(n, np.inf)
        np.minimum.at(found, group[values > 0], values[values > 0])
        return np.where(np.isfinite(found), found, 0.0)
    if any(part in name for part in _MAXIMA):
        found = np.zeros(n, values.dtype)
        np.maximum.at(found, group, values)
        return found
    if "TIME_SIZE" in name or "RANK" in name or "VARIANCE" in name:
        return np.zeros(n, values.dtype)
    if is_float(name):
        return np.bincount(group, values, n)
    monitored = values >= 0
    found = np.zeros(n, np.int64)
    np.add.at(found, group[monitored], values[monitored])
    never = np.bincount(group[monitored], minlength=n) == 0
    found[never] = -1
    return found


def _common_values(module: Module, rows: Any, group: Any, n: int, joined: dict[str, Any], prefix: str) -> None:
    """The four most common request sizes among the four that each rank kept."""
    if f"{prefix}ACCESS1_ACCESS" not in joined:
        return
    for i in range(1, 5):
        joined[f"{prefix}ACCESS{i}_ACCESS"], joined[f"{prefix}ACCESS{i}_COUNT"] = np.zeros(n, np.int64), np.zeros(n, np.int64)
    sizes = np.concatenate([module.counters[f"{prefix}ACCESS{i}_ACCESS"][rows] for i in range(1, 5)])
    counts = np.concatenate([module.counters[f"{prefix}ACCESS{i}_COUNT"][rows] for i in range(1, 5)])
    which = np.tile(group, 4)
    for one in range(n):
        mine = (which == one) & (counts > 0)
        found, at = np.unique(sizes[mine], return_inverse=True)
        total = np.bincount(at, counts[mine], len(found)).astype(np.int64)
        for place, best in enumerate(np.lexsort((-found, -total))[:4].tolist(), 1):
            joined[f"{prefix}ACCESS{place}_ACCESS"][one], joined[f"{prefix}ACCESS{place}_COUNT"][one] = found[best], total[best]


def _ranks(module: Module, rows: Any, group: Any, n: int, joined: dict[str, Any], prefix: str) -> None:
    """The fastest and the slowest rank, and the variances."""
    taken = module.taken(rows)
    time = sum((taken.column(f"{prefix}F_{part}_TIME") for part in ("READ", "WRITE", "META")), np.zeros(len(rows)))
    moved = taken.amount(f"{prefix}BYTES_READ") + taken.amount(f"{prefix}BYTES_WRITTEN")
    size = np.maximum(np.bincount(group, minlength=n), 1)
    for part, values in (("TIME", time), ("BYTES", moved)):
        mean = np.bincount(group, values, n) / size
        joined[f"{prefix}F_VARIANCE_RANK_{part}"] = np.bincount(group, (values - mean[group]) ** 2, n) / size
    order = np.lexsort((taken.ranks, time, group))
    edges = np.searchsorted(group[order], np.arange(n + 1))
    for name, at in (("FASTEST", order[edges[:-1]]), ("SLOWEST", order[edges[1:] - 1])):
        joined[f"{prefix}{name}_RANK"] = taken.ranks[at]
        joined[f"{prefix}{name}_RANK_BYTES"] = moved[at].astype(np.int64)
        joined[f"{prefix}F_{name}_RANK_TIME"] = time[at]
    for part in ("READ", "WRITE"):
        name = f"{prefix}MAX_{part}_TIME_SIZE"
        if name in module.counters:
            longest = taken.column(f"{prefix}F_MAX_{part}_TIME")
            order = np.lexsort((longest, group))
            at = order[np.searchsorted(group[order], np.arange(n), side="right") - 1]
            joined[name] = taken.column(name)[at]
