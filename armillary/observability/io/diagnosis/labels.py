"""The labels of I/O faults, and the thresholds above which the rules speak of them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

LABELS = (
    "small-read", "small-write", "misaligned-read", "misaligned-write", "random-read", "random-write", "repeated-read", "shared-file",
    "rank-imbalance", "server-imbalance", "high-metadata", "no-mpi", "no-collective-read", "no-collective-write", "low-level-read",
    "low-level-write",
)  # fmt: skip

#: What each label says, as a sentence about the job.
MEANING = {
    "small-read": "many reads are small", "small-write": "many writes are small",
    "misaligned-read": "reads do not begin at the file's alignment", "misaligned-write": "writes do not begin at the file's alignment",
    "random-read": "reads jump about in their files", "random-write": "writes jump about in their files",
    "repeated-read": "the same bytes are read again and again", "shared-file": "many ranks use one file without aggregation",
    "rank-imbalance": "some ranks do much more I/O than others", "server-imbalance": "the load of the storage targets is uneven",
    "high-metadata": "opening and examining files takes too long", "no-mpi": "many processes move data without MPI-IO",
    "no-collective-read": "MPI-IO reads are not collective", "no-collective-write": "MPI-IO writes are not collective",
    "low-level-read": "data are read through buffered streams (STDIO)", "low-level-write": ("data are written through "
"buffered streams (STDIO)"),
}  # fmt: skip

#: How directly the counters behind a label show lost time: a way of doing I/O costs something only under circumstances.
DIRECTNESS = {
    "no-mpi": 0.3, "shared-file": 0.5, "misaligned-read": 0.6, "misaligned-write": 0.6, "no-collective-read": 0.8,
    "no-collective-write": 0.8,
}  # fmt: skip


@dataclass(frozen=True)
class Thresholds:
    """Where the rules begin to speak; shares are of 1. The defaults are those of a published rule-based tool where it has one."""

    small_share: float = 0.10
    small_count: float = 1_000
    small_share_few: float = 0.50
    small_time_few: float = 0.25
    misaligned_share: float = 0.10
    random_share: float = 0.20
    random_count: float = 1_000
    repeated_times: float = 2.0
    repeated_bytes: float = 0.10
    shared_bytes: float = 0.30
    imbalance_time: float = 0.15
    imbalance_seconds: float = 1.0
    imbalance_bytes: float = 0.30
    server_times: float = 3.0
    server_bytes: float = 2.0
    hot_bytes: float = 0.30
    hot_ranks: float = 8
    metadata_seconds: float = 30.0
    metadata_share: float = 0.25
    metadata_calls_per_data: float = 10.0
    metadata_calls: float = 1_000
    no_mpi_bytes: float = float(1 << 30)
    collective_count: float = 1_000
    collective_share: float = 0.50
    stdio_share: float = 0.10
    stdio_bytes: float = float(64 << 20)

    def scaled(self, factor: float) -> Thresholds:
        """All thresholds times a factor; shares stay below 1, and what must exceed a ratio of 1 keeps doing so."""
        if factor == 1.0:
            return self
        made = {}
        for one in fields(self):
            value = getattr(self, one.name) * factor
            share = one.name.endswith(("_share", "_few", "_bytes", "_time")) and getattr(self, one.name) < 1
            made[one.name] = min(value, 0.99) if share else max(value, 1.05) if one.name.endswith("_times") else value
        return replace(self, **made)
