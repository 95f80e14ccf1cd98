"""Which findings explain others: causes are kept, their effects are named with them, and artefacts of aggregation are put aside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from .finding import Evidence, Finding, Fragment

Findings = dict[str, Finding]
Fragments = Mapping[str, Fragment]
#: An even load is one in which no rank's bytes differ from another's by more than this share.
EVEN = 0.10


def explained(found: Mapping[str, Finding], fragments: Fragments) -> Findings:
    """The findings after all rules; a finding that a rule puts aside keeps its place and says why."""
    now = dict(found)
    for rule in RULES:
        rule(now, fragments)
    return now


def _number(fragments: Fragments, key: str, field: str) -> float:
    return fragments[key].number(field) if key in fragments else 0.0


def _put_aside(found: Findings, label: str, why: str) -> None:
    if label in found and not found[label].demoted:
        found[label] = replace(found[label], demoted=why)


def _behind(found: Findings, cause: str, label: str, words: str) -> None:
    """`label` is an effect of `cause`, which says so."""
    if label not in found or cause not in found or found[label].demoted:
        return
    first = found[cause]
    found[cause] = replace(
        first, cause=first.cause or words, explains=tuple(dict.fromkeys([*first.explains, label])),
        severity=max(first.severity, found[label].severity), evidence=tuple(dict.fromkeys([*first.evidence, *found[label].evidence])),
    )  # fmt: skip
    found[label] = replace(found[label], demoted=f"an effect of {cause}")


def _artefacts(found: Findings, fragments: Fragments) -> None:
    """(i) Small POSIX requests of a file that is aggregated are how the aggregators write, not how the program asks."""
    for way in ("read", "write"):
        label = f"small-{way}"
        if label in found and not found[label].demoted:
            share = _number(fragments, "POSIX.sizes", f"{way}_small_aggregated_share")
            rest = _number(fragments, "POSIX.sizes", f"{way}_small_severity_not_aggregated")
            if share >= 0.5 and rest < 0.05:
                _put_aside(found, label, f"{share:.0%} of the small {way}s are made by the aggregators of collective calls")
            elif share > 0:
                # What aggregators do is no part of the loss.
                sizes = Evidence("POSIX.sizes", f"{way}_small_severity_not_aggregated", rest)
                found[label] = replace(found[label], severity=min(found[label].severity, rest), evidence=(*found[label].evidence, sizes))


def _one_stripe(found: Findings, fragments: Fragments) -> None:
    """(ii) Even MPI-IO calls, uneven POSIX ranks: aggregation; and on a single stripe it is the stripe that forces one aggregator."""
    if "rank-imbalance" not in found or found["rank-imbalance"].demoted:
        return
    even = _number(fragments, "MPI-IO.ranks", "bytes_spread") <= EVEN and _number(fragments, "MPI-IO.ranks", "bytes") > 0
    hot = _number(fragments, "LUSTRE.servers", "hot_aggregated") > 0 and _number(fragments, "LUSTRE.servers", "hot_users") <= 1
    if even and hot and "server-imbalance" in found:
        words = "A file on a single stripe forces one aggregator to move everything for all ranks; the ranks themselves ask evenly."
        _behind(found, "server-imbalance", "rank-imbalance", words)
        return
    rest = _number(fragments, "POSIX.ranks", "own_not_aggregated_bytes_spread_among_users")
    among = _number(fragments, "POSIX.ranks", "own_not_aggregated_ranks")
    shared = any(one.field == "shared_time_spread" for one in found["rank-imbalance"].evidence)
    aggregated_shared = _number(fragments, "POSIX.ranks", "shared_file_aggregated") > 0
    if even and (not shared or aggregated_shared) and (among == 0 or rest <= 0.3):
        _put_aside(found, "rank-imbalance", "the busy ranks are the aggregators of collective calls, in which all ranks ask evenly")


def _slow_target(found: Findings, fragments: Fragments) -> None:
    """(vi) Ranks are late because their files lie on a slow target."""
    slow = "server-imbalance" in found and any(one.field == "slowest_over_usual" for one in found["server-imbalance"].evidence)
    if slow:
        spread = _number(fragments, "POSIX.ranks", "own_bytes_spread_among_users")
        if spread <= EVEN or _number(fragments, "POSIX.ranks", "shared_bytes_spread") <= EVEN:
            _behind(found, "server-imbalance", "rank-imbalance", "A slow storage target keeps the ranks waiting whose files lie on it.")


def _transfer(found: Findings, fragments: Fragments) -> None:
    """(iii) Requests whose size is no multiple of the stripe size drift across stripes."""
    over = _number(fragments, "POSIX.alignment", "request_mod_stripe")
    for way in ("read", "write"):
        label = f"misaligned-{way}"
        if label in found and over > 0 and not found[label].cause:
            words = "The usual request is no multiple of the stripe size, so requests drift across the borders of stripes."
            evidence = Evidence("POSIX.alignment", "request_mod_stripe", over)
            found[label] = replace(found[label], cause=words, evidence=(*found[label].evidence, evidence))


def _many_files(found: Findings, fragments: Fragments) -> None:
    """(iv) Many small files per rank make both the metadata calls and the small requests."""
    per_rank = _number(fragments, "POSIX.metadata", "small_files_per_rank")
    median = _number(fragments, "POSIX.metadata", "median_file_bytes")
    if "high-metadata" in found and per_rank > 1 and _number(fragments, "JOB.context", "processes") > 1:
        words = (
            f"Each rank has {per_rank:.1f} files of less than 1 MiB, {median / 1024:.0f} KiB in the "
            f"median: every one is opened, and none is large enough for large requests."
        )
        # Small requests elsewhere are a fault of their own.
        if _number(fragments, "POSIX.metadata", "small_files_share_of_small_requests") > 0.5:
            for way in ("read", "write"):
                _behind(found, "high-metadata", f"small-{way}", words)
                _behind(found, "high-metadata", f"misaligned-{way}", words)
        if not found["high-metadata"].cause:
            found["high-metadata"] = replace(found["high-metadata"], cause=words)


def _chunking(found: Findings, fragments: Fragments) -> None:
    """(v) Small reads in random order that come back to the same bytes lack a cache, or chunks of the right shape."""
    three = ("random-read", "repeated-read", "small-read")
    if all(label in found and not found[label].demoted for label in three):
        words = "Small pieces are read in random order and again and again: the data lack a cache, or chunks that fit how they are read."
        # One cause has one rank: what is read in this way stands before how small the pieces are.
        most, sure = max(found[label].severity for label in three), max(found[label].confidence for label in three)
        for label in three[:2]:
            found[label] = replace(found[label], cause=words, severity=most, confidence=sure)


def _small_are_misaligned(found: Findings, fragments: Fragments) -> None:
    """Requests smaller than the alignment cannot all be aligned, so a file's small requests explain its misaligned ones."""
    for way in ("read", "write"):
        small, wrong = f"small-{way}", f"misaligned-{way}"
        if small in found and wrong in found and not found[small].demoted:
            share = _number(fragments, "POSIX.sizes", f"{way}_small_share")
            if share > 0.5 and _number(fragments, "POSIX.alignment", "alignment") > _number(fragments, "POSIX.alignment", "common_request"):
                words = (
                    found[wrong].cause or "The requests are smaller than the alignment, so most of them cannot begin at a multiple of it."
                )
                found[wrong] = replace(found[wrong], cause=words)


def _contradictions(found: Findings, fragments: Fragments) -> None:
    """A finding that a counter speaks against directly does not count."""
    for way in ("read", "write"):
        if _number(fragments, "MPI-IO.calls", f"{way}_collective_share") >= 0.5:
            _put_aside(found, f"no-collective-{way}", "at least half of the calls are collective")
    if "JOB.context" in fragments and fragments["JOB.context"].number("mpi_io"):
        _put_aside(found, "no-mpi", "the job uses MPI-IO")


RULES: tuple[Callable[[Findings, Fragments], None], ...] = (
    _contradictions, _artefacts, _slow_target, _one_stripe, _many_files, _transfer, _chunking, _small_are_misaligned,
)  # fmt: skip
