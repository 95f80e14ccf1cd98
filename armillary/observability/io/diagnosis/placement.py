"""How the storage targets (OSTs) of a Lustre file system are loaded, and how fast each was."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .facts import Facts
from .finding import Fragment, Value, plain

#: Files that a target needs before its speed is compared.
LEAST_FILES = 3


def servers(facts: Facts) -> Fragment | None:
    """Bytes and speed of each target, and files that many ranks use on one target; None where the log does not tell."""
    stripes = facts.log.stripes
    if stripes is None or not len(facts.posix):
        return None
    ids, _ = facts.files
    moved = facts.by_file(facts.bytes("read") + facts.bytes("write"))
    spent = facts.by_file(facts.time("read") + facts.time("write"))
    at = np.searchsorted(ids, stripes.ids)
    there = (at < len(ids)) & (ids[np.minimum(at, len(ids) - 1)] == stripes.ids)
    width = np.diff(stripes.begin)
    rows = np.flatnonzero(there & (width > 0))
    rows = rows[moved[at[rows]] > 0]
    if not len(rows):
        return None
    # Components of a file share its bytes evenly, as the log does not say more.
    components = np.bincount(at[rows], minlength=len(ids))
    part = moved[at[rows]] / components[at[rows]]
    target = np.concatenate([stripes.of(int(row)) for row in rows])
    each = np.repeat(part / width[rows], width[rows])
    rate = np.repeat(spent[at[rows]] / np.maximum(moved[at[rows]], 1), width[rows])
    seconds = np.repeat(spent[at[rows]] / components[at[rows]] / width[rows], width[rows])
    targets, number = np.unique(target, return_inverse=True)
    number = number.reshape(-1)
    load = np.bincount(number, each, len(targets))
    busy = np.bincount(number, seconds, len(targets))
    files = np.bincount(number, minlength=len(targets))
    order = np.lexsort((rate, number))
    edges = np.searchsorted(number[order], np.arange(len(targets) + 1))
    median = np.array([np.median(rate[order[edges[i] : edges[i + 1]]]) for i in range(len(targets))])
    enough = files >= LEAST_FILES
    fields: dict[str, Value] = {
        "targets": len(targets),
        "targets_compared": int(enough.sum()),
        "bytes_most_over_mean": float(load.max() / load.mean()),
    }
    fields["busiest_target"] = int(targets[np.argmax(load)])
    fields["bytes_severity"] = max(0.0, facts.share(float(busy[np.argmax(load)] - busy.mean())))
    top: tuple[Mapping[str, Value], ...] = ()
    if enough.sum() >= 2:
        normal = float(np.median(median[enough]))
        worst = int(np.argmax(np.where(enough, median, -1)))
        slow_s = np.where(enough & (median > 0), busy * (1 - np.minimum(1.0, normal / np.maximum(median, 1e-300))), 0.0)
        fields |= {
            "slowest_target": int(targets[worst]), "slowest_s_per_gib": float(median[worst] * 2**30), "usual_s_per_gib": normal * 2**30,
            "slowest_over_usual": float(median[worst] / normal) if normal > 0 else 0.0, "slow_severity": facts.share(float(slow_s[worst])),
            "files_on_slowest": int(files[worst]), "median_file_s_on_slowest": float(np.median(_times(rate, number, worst, each))),
        }  # fmt: skip
        ranked = np.argsort(-np.where(enough, median, -1), kind="stable")[:5]
        top = tuple({"target": int(targets[i]), "files": int(files[i]), "s_per_gib": float(f"{median[i] * 2**30:.6g}")} for i in ranked)
    fields |= _hot(facts, ids, moved, spent, at[rows], width[rows], stripes.osts[stripes.begin[:-1]][rows] if len(stripes.osts) else rows)
    made = {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in fields.items()}
    return Fragment("LUSTRE", "servers", made, top)


def _times(rate: np.ndarray, number: np.ndarray, which: int, each: np.ndarray) -> np.ndarray:
    """Seconds of each file of one target."""
    mine = number == which
    return rate[mine] * each[mine]


def _hot(
    facts: Facts, ids: np.ndarray, moved: np.ndarray, spent: np.ndarray, file: np.ndarray, width: np.ndarray, first: np.ndarray
) -> dict[str, Value]:
    """The largest file on a single target, with the ranks that use it, through collective calls or by themselves."""
    single = np.flatnonzero(width == 1)
    if not len(single):
        return {"hot_bytes_share": 0.0, "hot_ranks": 0}
    mpi = {int(one) for one, rank in zip(facts.mpi.ids.tolist(), facts.mpi.ranks.tolist()) if rank < 0}
    asked = np.array([facts.log.processes if int(ids[f]) in mpi else 0 for f in file[single]], np.float64)
    ranks = np.maximum(facts.users[file[single]], asked)
    weight = np.where(ranks > 1, facts.slowest_s[file[single]], 0.0)
    at = int(np.argmax(weight))
    chosen = int(file[single][at])
    # The job waits for the slowest rank, however little that is of all ranks' time together.
    waited = min(1.0, float(facts.slowest_s[chosen]) / facts.critical_s) if facts.critical_s > 0 else 0.0
    return {
        "hot_file": plain(facts.log.file(int(ids[chosen]))[-48:]), "hot_bytes_share": float(moved[chosen] / max(1.0, moved.sum())),
        "hot_ranks": int(ranks[at]),
        "hot_target": int(first[single][at]), "hot_time_share": facts.share(float(spent[chosen])), "hot_wait_share": waited,
        "hot_severity": max(facts.share(float(spent[chosen])), waited),
        "hot_users": int(facts.users[chosen]), "hot_aggregated": int(facts.aggregated[chosen]),
    }  # fmt: skip
