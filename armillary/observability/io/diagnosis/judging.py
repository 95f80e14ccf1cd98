"""The rules that look at one fragment and say what is wrong, each with the numbers that it rests on.

A rule reads the fields of its fragment only, so that whoever has the fragment can check it. Confidence grows with the distance from the
threshold, and is lower where a module is incomplete and where a counter shows a way of doing I/O rather than lost time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from .finding import Evidence, Finding, Fragment
from .labels import DIRECTNESS, Thresholds

Rule = Callable[[Fragment, Fragment, Thresholds], Iterator[Finding]]
_WAYS = ("read", "write")


def judged(fragment: Fragment, context: Fragment, thresholds: Thresholds) -> list[Finding]:
    """What the rules say of one fragment; `context` holds the figures of the whole job."""
    rule = RULES.get(fragment.key)
    return [] if rule is None else list(rule(fragment, context, thresholds))


def _finding(
    label: str, severity: float, distance: float, context: Fragment, fragment: Fragment,
    evidence: Sequence[tuple[str, float | None]],
    text: str,
    *, ranks: tuple[int, ...] = (), targets: tuple[int, ...] = (),
) -> Finding:  # fmt: skip
    """A finding whose confidence follows from how many times its figure is the threshold."""
    sure = 0.5 + 0.45 * (1 - 1 / max(1.0, distance))
    partial = fragment.module in str(context.fields.get("partial", "")).split()
    confidence = sure * DIRECTNESS.get(label, 1.0) * (0.7 if partial else 1.0)
    shown = tuple(Evidence(fragment.key, name, fragment.number(name), limit) for name, limit in evidence)
    files = tuple(str(one["file"]) for one in fragment.top if "file" in one)
    return Finding(label, max(0.0, min(1.0, severity)), confidence, shown, text, files, ranks, targets)


def _sizes(f: Fragment, context: Fragment, t: Thresholds) -> Iterator[Finding]:
    process_s = context.number("run_time_s") * context.number("processes")
    for way in _WAYS:
        total, small, share = f.number(f"{way}s"), f.number(f"{way}s_small"), f.number(f"{way}_small_share")
        many = share > t.small_share and small > t.small_count
        costly = f.number(f"{way}_small_share_of_time") > t.small_time_few and f.number(f"{way}_time_in_small_s") > 0.01 * process_s
        few = total <= t.small_count and share > t.small_share_few and costly
        # A few large requests may carry a direction whose small ones take its time all the same.
        if many or few:
            limit = t.small_share if many else t.small_share_few
            text = (
                f"{small:,.0f} of {total:,.0f} {way}s ({share:.0%}) move at most 1 MiB, "
                f"{f.number(f'{way}_mean_bytes') / 1024:,.1f} KiB on average over all {way}s."
            )
            evidence = [(f"{way}s_small", t.small_count if many else None), (f"{way}_small_share", limit), (f"{way}_time_in_small_s", None)]
            yield _finding(f"small-{way}", f.number(f"{way}_small_severity"), share / limit, context, f, evidence, text)


def _alignment(f: Fragment, context: Fragment, t: Thresholds) -> Iterator[Finding]:
    for way in _WAYS:
        share, wrong = f.number(f"{way}_misaligned_share"), f.number(f"{way}s_misaligned")
        if share > t.misaligned_share and wrong >= 1:
            how = {"mixed": " (reads and writes are counted together, so the split is an estimate)"}.get(str(f.fields["attributed"]), "")
            text = f"{wrong:,.0f} {way}s ({share:.0%}) do not begin at a multiple of {f.number('alignment'):,.0f} bytes{how}."
            evidence = [(f"{way}s_misaligned", None), (f"{way}_misaligned_share", t.misaligned_share), ("alignment", None)]
            yield _finding(
                f"misaligned-{way}", f.number(f"{way}_misaligned_severity"), share / t.misaligned_share, context, f, evidence, text
            )


def _order(f: Fragment, context: Fragment, t: Thresholds) -> Iterator[Finding]:
    for way in _WAYS:
        total, jumped = f.number(f"{way}s"), f.number(f"{way}s_random")
        share = f.number(f"{way}_random_share")
        busy = f.number(f"{way}s_random_in_busy_files") / max(1.0, f.number(f"{way}s_in_busy_files"))
        # In files that take time the share counts by itself, whatever the rest of the job does.
        few = max(share, busy) > t.random_share and f.number(f"{way}_random_severity") > t.small_time_few
        if ((share > t.random_share or busy > t.random_share) and jumped > t.random_count) or few:
            text = f"{jumped:,.0f} of {total:,.0f} {way}s ({share:.0%}) begin before the end of the one before."
            evidence = [(f"{way}s_random", t.random_count), (f"{way}_random_share", t.random_share)]
            severity, distance = f.number(f"{way}_random_severity"), max(share, busy) / t.random_share
            yield _finding(f"random-{way}", severity, distance, context, f, evidence, text)


def _repeats(f: Fragment, context: Fragment, t: Thresholds) -> Iterator[Finding]:
    share, times = f.number("repeated_bytes_share"), f.number("repeated_times")
    if times > t.repeated_times and share > t.repeated_bytes:
        text = f"{share:.0%} of the bytes read come from files that are read more than twice over, {times:.1f} times on average."
        evidence = [("repeated_times", t.repeated_times), ("repeated_bytes_share", t.repeated_bytes), ("bytes_read", None)]
        yield _finding("repeated-read", f.number("repeated_severity"), times / t.repeated_times, context, f, evidence, text)


def _sharing(f: Fragment, context: Fragment, t: Thresholds) -> Iterator[Finding]:
    share = f.number("bytes_shared_not_aggregated_share")
    if share > t.shared_bytes:
        text = (
            f"{share:.0%} of the bytes are in files that up to {f.number('ranks_on_largest'):,.0f} ranks use at once without aggregation."
        )
        evidence = [
            ("bytes_shared_not_aggregated_share", t.shared_bytes),
            ("shared_files_not_aggregated", None),
            ("ranks_on_largest", None),
        ]
        yield _finding("shared-file", f.number("shared_severity"), share / t.shared_bytes, context, f, evidence, text)


def _ranks(f: Fragment, context: Fragment, t: Thresholds) -> Iterator[Finding]:
    critical = max(f.number("critical_s"), 1e-12)
    spread, slow = f.number("shared_time_spread"), f.number("shared_slowest_s")
    uneven = f.number("shared_bytes_spread") > t.imbalance_bytes
    if f.number("shared_files") and slow > t.imbalance_seconds and (spread > t.imbalance_time or uneven):
        rank = int(f.number("shared_slowest_rank"))
        text = f"On the shared file the slowest rank ({rank}) spends {slow:.1f} s and the fastest {f.number('shared_fastest_s'):.1f} s."
        evidence = [("shared_slowest_s", t.imbalance_seconds), ("shared_fastest_s", None), ("shared_time_spread", t.imbalance_time)]
        severity = (slow - f.number("shared_fastest_s")) / critical
        yield _finding("rank-imbalance", severity, spread / t.imbalance_time, context, f, evidence, text, ranks=(rank,))
    own = f.number("own_bytes_spread")
    if f.number("own_ranks") > 1 and own > t.imbalance_bytes and f.number("own_slowest_s") > t.imbalance_seconds:
        rank = int(f.number("own_busiest_rank"))
        most, least = f.number("own_bytes_most"), f.number("own_bytes_least")
        text = f"Of files of their own, rank {rank} moves {most / 2**20:,.0f} MiB and the rank with the least {least / 2**20:,.0f} MiB."
        severity = f.number("own_time_lost_share") * f.number("own_slowest_s") / critical
        evidence = [("own_bytes_spread", t.imbalance_bytes), ("own_bytes_most", None), ("own_bytes_least", None)]
        yield _finding("rank-imbalance", severity, own / t.imbalance_bytes, context, f, evidence, text, ranks=(rank,))


def _servers(f: Fragment, context: Fragment, t: Thresholds) -> Iterator[Finding]:
    times, target = f.number("slowest_over_usual"), int(f.number("slowest_target"))
    if times > t.server_times:
        text = (
            f"Storage target {target} takes {times:.1f} times as long per byte as the usual one "
            f"({f.number('slowest_s_per_gib'):.1f} against {f.number('usual_s_per_gib'):.1f} s per GiB)."
        )
        evidence = [("slowest_over_usual", t.server_times), ("slowest_target", None), ("files_on_slowest", None)]
        yield _finding("server-imbalance", f.number("slow_severity"), times / t.server_times, context, f, evidence, text, targets=(target,))
    uneven = f.number("bytes_most_over_mean")
    if f.number("targets") >= 4 and uneven > t.server_bytes:
        target = int(f.number("busiest_target"))
        text = f"Storage target {target} holds {uneven:.1f} times as many bytes as the targets do on average."
        evidence = [("bytes_most_over_mean", t.server_bytes), ("busiest_target", None), ("targets", None)]
        yield _finding(
            "server-imbalance", f.number("bytes_severity"), uneven / t.server_bytes, context, f, evidence, text, targets=(target,)
        )
    share, ranks = f.number("hot_bytes_share"), f.number("hot_ranks")
    busy = max(share, f.number("hot_severity"))
    if busy > t.hot_bytes and ranks > t.hot_ranks:
        target = int(f.number("hot_target"))
        text = (
            f"A file that {ranks:,.0f} ranks use lies on storage target {target} alone "
            f"and takes {f.number('hot_severity'):.0%} of the time."
        )
        evidence = [("hot_severity", t.hot_bytes), ("hot_bytes_share", None), ("hot_ranks", t.hot_ranks), ("hot_target", None)]
        found = _finding("server-imbalance", f.number("hot_severity"), busy / t.hot_bytes, context, f, evidence, text, targets=(target,))
        yield Finding(**{**found.__dict__, "files": (str(f.fields.get("hot_file", "")),)})


def _metadata(f: Fragment, context: Fragment, t: Thresholds) -> Iterator[Finding]:
    on_rank, share = f.number("metadata_s_on_one_rank"), f.number("share_of_slowest_rank")
    many = f.number("calls") > t.metadata_calls
    ratio = f.number("calls_per_data_request")
    if on_rank > t.metadata_seconds or (many and (share > t.metadata_share or ratio > t.metadata_calls_per_data)):
        text = (
            f"Opening and examining files takes {on_rank:.1f} s on a rank ({share:.0%} of its I/O time) for {f.number('calls'):,.0f} calls."
        )
        evidence = [
            ("metadata_s_on_one_rank", t.metadata_seconds),
            ("share_of_slowest_rank", t.metadata_share),
            ("calls", t.metadata_calls),
        ]
        distance = max(
            on_rank / t.metadata_seconds, share / t.metadata_share if many else 0, ratio / t.metadata_calls_per_data if many else 0
        )
        yield _finding("high-metadata", share, distance, context, f, evidence, text)


def _calls(f: Fragment, context: Fragment, t: Thresholds) -> Iterator[Finding]:
    for way in _WAYS:
        total, share = f.number(f"{way}s"), f.number(f"{way}_collective_share")
        # One process alone has nobody to share a call with.
        if total > t.collective_count and share < t.collective_share and context.number("processes") > 1:
            alone = f.number(f"{way}s_independent")
            text = f"{alone:,.0f} of {total:,.0f} MPI-IO {way}s are independent; {share:.0%} are collective."
            evidence = [(f"{way}s_independent", None), (f"{way}s", t.collective_count), (f"{way}_collective_share", t.collective_share)]
            distance = total / t.collective_count
            yield _finding(f"no-collective-{way}", f.number(f"{way}_independent_severity"), distance, context, f, evidence, text)


def _streams(f: Fragment, context: Fragment, t: Thresholds) -> Iterator[Finding]:
    for way in _WAYS:
        share, moved = f.number(f"{way}_share_of_bytes"), f.number(f"{way}_bytes")
        if share > t.stdio_share and moved >= t.stdio_bytes:
            text = (
                f"{moved / 2**20:,.0f} MiB ({share:.0%} of what is {'read' if way == 'read' else 'written'}) go through buffered streams."
            )
            evidence = [(f"{way}_share_of_bytes", t.stdio_share), (f"{way}_bytes", t.stdio_bytes), (f"{way}_time_s", None)]
            yield _finding(f"low-level-{way}", f.number(f"{way}_severity"), share / t.stdio_share, context, f, evidence, text)


def _context(f: Fragment, context: Fragment, t: Thresholds) -> Iterator[Finding]:
    moved, processes = f.number("posix_bytes"), f.number("processes")
    if processes > 1 and not f.number("mpi_io") and moved > t.no_mpi_bytes:
        text = f"{processes:,.0f} processes move {moved / 2**30:,.1f} GiB, and none of them uses MPI-IO."
        evidence: Sequence[tuple[str, float | None]] = [("processes", 1), ("mpi_io", None), ("posix_bytes", t.no_mpi_bytes)]
        yield _finding(
            "no-mpi", f.number("data_time_s") / max(1e-12, f.number("io_time_s")), moved / t.no_mpi_bytes, context, f, evidence, text
        )


RULES: Mapping[str, Rule] = {
    "JOB.context": _context, "POSIX.sizes": _sizes, "POSIX.alignment": _alignment, "POSIX.order": _order, "POSIX.repeats": _repeats,
    "POSIX.sharing": _sharing, "POSIX.ranks": _ranks, "POSIX.metadata": _metadata, "MPI-IO.calls": _calls, "STDIO.streams": _streams,
    "LUSTRE.servers": _servers,
}  # fmt: skip
