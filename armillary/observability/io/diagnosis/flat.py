"""One flat pass of threshold rules over the totals of a whole job, as published rule-based tools do it.

No file is looked at by itself, and no finding explains another.
"""

from __future__ import annotations

import numpy as np

from ..logs.log import Log
from ..logs.modules import BIN_NAMES, SMALL_BINS
from .facts import DIRECTIONS, Facts
from .finding import Evidence, Finding
from .labels import DIRECTNESS, MEANING, Thresholds


def flat(log: Log, t: Thresholds) -> list[Finding]:
    """What the thresholds say of a job's totals, ranked by the share of the I/O time that the totals give each label."""
    facts, total = Facts(log), log.totals
    found: list[Finding] = []

    def say(label: str, severity: float, distance: float, **evidence: float) -> None:
        sure = (0.5 + 0.45 * (1 - 1 / max(1.0, distance))) * DIRECTNESS.get(label, 1.0)
        shown = tuple(Evidence("totals", name, float(value)) for name, value in evidence.items())
        found.append(Finding(label, min(1.0, max(0.0, severity)), sure, shown, f"Over the whole job, {MEANING[label]}."))

    data_s = max(facts.data_s, 1e-12)
    process_s = log.run_time_s * log.processes
    aligned = facts.posix.amount("POSIX_FILE_ALIGNMENT") > 1
    requests = {way: float(facts.requests(way).sum()) for way in DIRECTIONS}
    every = sum(requests.values())
    wrong = float((facts.posix.amount("POSIX_FILE_NOT_ALIGNED") * aligned).sum())
    for way, (plural, past) in DIRECTIONS.items():
        n, spent = requests[way], total.get(f"POSIX_F_{way.upper()}_TIME", 0.0)
        small = sum(total.get(f"POSIX_SIZE_{way.upper()}_{name}", 0.0) for name in BIN_NAMES[:SMALL_BINS])
        in_small = spent * small / max(n, 1.0)
        many = n and small / n > t.small_share and small > t.small_count
        costly = in_small > t.small_time_few * spent and in_small > 0.01 * process_s
        if many or (0 < n <= t.small_count and small / n > t.small_share_few and costly):
            limit = t.small_share if many else t.small_share_few
            say(f"small-{way}", in_small / data_s, small / n / limit, small=small, requests=n)
        if n and wrong / every > t.misaligned_share and n / every > 0.1:
            say(f"misaligned-{way}", spent * wrong / every / data_s, wrong / every / t.misaligned_share, misaligned=wrong, requests=every)
        records = float((facts.requests(way) > 0).sum())
        jumped = n - total.get(f"POSIX_SEQ_{plural}", 0.0) - records
        long = n and spent * jumped / n > t.small_time_few * data_s
        if n and jumped / n > t.random_share and (jumped > t.random_count or long):
            say(f"random-{way}", spent * jumped / n / data_s, jumped / n / t.random_share, random=jumped, requests=n)
        calls = {kind: total.get(f"MPIIO_{kind}_{plural}", 0.0) for kind in ("COLL", "INDEP", "SPLIT", "NB")}
        mpi = sum(calls.values())
        if mpi > t.collective_count and (calls["COLL"] + calls["SPLIT"]) / mpi < t.collective_share:
            say(f"no-collective-{way}", spent / data_s, mpi / t.collective_count, collective=calls["COLL"], independent=calls["INDEP"])
        streamed, plain = total.get(f"STDIO_BYTES_{past}", 0.0), total.get(f"POSIX_BYTES_{past}", 0.0)
        if streamed >= t.stdio_bytes and streamed / (streamed + plain) > t.stdio_share:
            severity = total.get(f"STDIO_F_{way.upper()}_TIME", 0.0) / data_s
            say(f"low-level-{way}", severity, streamed / (streamed + plain) / t.stdio_share, streamed=streamed, plain=plain)
    read = total.get("POSIX_BYTES_READ", 0.0)
    extent = float(facts.posix.amount("POSIX_MAX_BYTE_READ").sum()) + len(facts.posix)
    if read and read > t.repeated_times * extent:
        say(
            "repeated-read",
            total.get("POSIX_F_READ_TIME", 0.0) * (1 - extent / read) / data_s,
            read / extent,
            bytes_read=read,
            extent=extent,
        )
    _whole_job(facts, t, say)
    return sorted(found, key=lambda one: (-one.weight, one.label))


def _whole_job(facts: Facts, t: Thresholds, say: object) -> None:
    """Labels that concern the job rather than a direction."""
    assert callable(say)
    log, posix = facts.log, facts.posix
    moved = facts.bytes("read") + facts.bytes("write")
    shared = (posix.ranks < 0) & (posix.column("POSIX_FASTEST_RANK_BYTES") > 0)
    share = float(moved[shared].sum()) / max(1.0, float(moved.sum()))
    spent = facts.time("read") + facts.time("write")
    if share > t.shared_bytes:
        say("shared-file", facts.share(float(spent[shared].sum())), share / t.shared_bytes, shared_bytes_share=share)
    joined = np.flatnonzero(posix.ranks < 0)
    if len(joined):
        slow = posix.amount("POSIX_F_SLOWEST_RANK_TIME")[joined]
        fast = posix.amount("POSIX_F_FASTEST_RANK_TIME")[joined]
        at = int(np.argmax(slow))
        spread = (slow[at] - fast[at]) / slow[at] if slow[at] > 0 else 0.0
        if spread > t.imbalance_time and slow[at] > t.imbalance_seconds:
            say("rank-imbalance", spread, spread / t.imbalance_time, slowest_s=slow[at], fastest_s=fast[at])
    ranks, by_rank, seconds = facts.by_rank()
    if len(ranks) > 1 and not any(r < 0 for r in ranks.tolist()):
        spread = float(by_rank.max() - by_rank.min()) / max(1.0, float(by_rank.max()))
        if spread > t.imbalance_bytes and seconds.max() > t.imbalance_seconds:
            say(
                "rank-imbalance",
                1 - float(seconds.mean() / seconds.max()),
                spread / t.imbalance_bytes,
                most=by_rank.max(),
                least=by_rank.min(),
            )
    meta = log.totals.get("POSIX_F_META_TIME", 0.0)
    on_rank, part = meta / log.processes, meta / max(facts.io_s, 1e-12)
    calls = log.totals.get("POSIX_OPENS", 0.0) + log.totals.get("POSIX_STATS", 0.0)
    data = float(facts.requests("read").sum() + facts.requests("write").sum())
    if on_rank > t.metadata_seconds or (calls > t.metadata_calls and (part > t.metadata_share or calls > t.metadata_calls_per_data * data)):
        say("high-metadata", part, max(on_rank / t.metadata_seconds, part / t.metadata_share), metadata_s=meta, calls=calls)
    if log.processes > 1 and not len(facts.mpi) and moved.sum() > t.no_mpi_bytes:
        say(
            "no-mpi", facts.data_s / max(facts.io_s, 1e-12), float(moved.sum()) / t.no_mpi_bytes, processes=log.processes, bytes=moved.sum()
        )
    _targets(facts, t, say)


def _targets(facts: Facts, t: Thresholds, say: object) -> None:
    """Sums of time and bytes by storage target."""
    assert callable(say)
    stripes = facts.log.stripes
    if stripes is None or not len(facts.posix):
        return
    ids, _ = facts.files
    moved, spent = facts.by_file(facts.bytes("read") + facts.bytes("write")), facts.by_file(facts.time("read") + facts.time("write"))
    at = np.minimum(np.searchsorted(ids, stripes.ids), len(ids) - 1)
    width = np.diff(stripes.begin)
    rows = np.flatnonzero((ids[at] == stripes.ids) & (width > 0) & (moved[at] > 0))
    if not len(rows):
        return
    target = np.concatenate([stripes.of(int(row)) for row in rows])
    targets, number = np.unique(target, return_inverse=True)
    load = np.bincount(number.reshape(-1), np.repeat(moved[at[rows]] / width[rows], width[rows]), len(targets))
    busy = np.bincount(number.reshape(-1), np.repeat(spent[at[rows]] / width[rows], width[rows]), len(targets))
    if len(targets) >= 4:
        rate = busy / np.maximum(load, 1)
        times, uneven = float(rate.max() / max(np.median(rate), 1e-300)), float(load.max() / load.mean())
        if times > t.server_times or uneven > t.server_bytes:
            worst = float(busy.max() - busy.mean())
            distance = max(times / t.server_times, uneven / t.server_bytes)
            say("server-imbalance", facts.share(worst), distance, slowest_over_usual=times, bytes_over_mean=uneven)
