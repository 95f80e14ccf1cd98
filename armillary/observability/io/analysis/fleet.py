"""Diagnoses a folder of logs, and says which applications and file systems have which faults, and which jobs share a slow target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.errors import InputError

from ..diagnosis.diagnosing import diagnose
from ..diagnosis.finding import plain
from ..diagnosis.report import Diagnosis
from ..logs.log import MOST_RECORDS, Log
from ..logs.read import logs_of, read_log

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Fleet:
    """The diagnoses of many logs by the names of their files, and the logs that could not be read with the reason."""

    diagnoses: dict[str, Diagnosis]
    unread: dict[str, str]

    def table(self) -> pl.DataFrame:
        """How many jobs of each application and file system have each label, and the mean share of I/O time that it touches."""
        import polars as pl

        rows = [
            {
                "application": application(one.log.executable), "file_system": file_system(one.log), "label": finding.label,
                "severity": finding.severity,
            }
            for one in self.diagnoses.values()
            for finding in one.findings
        ]  # fmt: skip
        if not rows:
            return pl.DataFrame(
                schema={"application": pl.String, "file_system": pl.String, "label": pl.String, "jobs": pl.UInt32, "severity": pl.Float64}
            )
        grouped = pl.DataFrame(rows).group_by("application", "file_system", "label").agg(pl.len().alias("jobs"), pl.col("severity").mean())
        return grouped.sort(["jobs", "severity", "label"], descending=[True, True, False])

    def slow_targets(self) -> dict[tuple[str, int], list[str]]:
        """The jobs that find the same storage target of the same file system to be slow; targets that two jobs or more name."""
        return shared_targets(
            (name, file_system(one.log), finding.targets)
            for name, one in self.diagnoses.items()
            for finding in one.findings
            if finding.label == "server-imbalance" and any(e.field == "slowest_over_usual" for e in finding.evidence)
        )

    def summary(self) -> str:
        """What a person would say of all the jobs."""
        faults = Counter(finding.label for one in self.diagnoses.values() for finding in one.findings)
        said = [f"{len(self.diagnoses)} logs were read."]
        said += [f"{label} concerns {number} of them." for label, number in faults.most_common(3)]
        said += [
            f"{len(names)} jobs share storage target {target} of {system} and are slow on it."
            for (system, target), names in self.slow_targets().items()
        ]
        return " ".join([*said, *([f"{len(self.unread)} could not be read."] if self.unread else [])])


def fleet(folder: str | Path, *, most_records: int = MOST_RECORDS) -> Fleet:
    """Diagnoses every log of a folder (.darshan, .txt, or packed); one that cannot be read does not stop the others."""
    diagnoses, unread = {}, {}
    for file in logs_of(Path(folder)):
        try:
            diagnoses[file.name] = diagnose(read_log(file, most_records=most_records))
        except InputError as error:
            unread[file.name] = error.message
    return Fleet(diagnoses, unread)


def shared_targets(named: Iterable[tuple[str, str, Sequence[int]]]) -> dict[tuple[str, int], list[str]]:
    """(file system, target) to the jobs, from (job, file system, targets that are slow for it); those that two jobs or more name."""
    found: dict[tuple[str, int], list[str]] = {}
    for name, system, targets in named:
        for target in targets:
            mine = found.setdefault((system, target), [])
            mine += [name] if name not in mine else []
    return {key: names for key, names in sorted(found.items()) if len(names) > 1}


def application(executable: str) -> str:
    """The name of the program without its folder and arguments; anonymised names stay as they are."""
    words = executable.split()
    return plain(words[0].rpartition("/")[2], 80) if words else "unknown"


def file_system(log: Log) -> str:
    """The mount point that holds most of the job's files."""
    mounts = Counter(log.mount_of(name)[0] for name in log.names.values() if name.startswith("/"))
    return plain(mounts.most_common(1)[0][0], 80) if mounts else "unknown"
