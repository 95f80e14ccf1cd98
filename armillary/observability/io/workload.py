"""Logs with what is known to be wrong in them: planted, labelled by hand, or unknown."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary import extras
from armillary.errors import InputError
from armillary.files import read_json

from .diagnosis.finding import Answer
from .diagnosis.labels import LABELS
from .logs.log import MOST_SEGMENTS, Log
from .logs.read import MOST_LOGS, logs_of, read_log
from .synthesis.logs import log_of
from .synthesis.planting import TooCheap, Truth, decoy, planted, without_mpi
from .synthesis.program import Program

#: Shares of the I/O time that a planted fault is asked to cost.
SEVERITIES = (0.1, 0.3, 0.6)
#: What each fault of a mixture costs at least, and how often another program is drawn where it cannot.
LEAST_SEVERITY, TRIES = 0.1, 20


@dataclass(frozen=True)
class Known:
    """One log, what is known to be wrong with it, and the file that it came from."""

    log: Log
    truth: Truth | None = None
    path: Path | None = None


@dataclass(frozen=True)
class IoWork:
    """Logs to diagnose, and a factor on all thresholds of techniques that have any."""

    logs: tuple[Known, ...]
    scale: float = 1.0


#: The logs that the package `darshan` brings, with what is known of them: labels that are there, and labels that are not. What neither
#: list names is undecided. Counters behind each are in docs/io.md.
SHIPPED: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "bad-target": (
        "examples/example_logs/sample-badost.darshan", ("server-imbalance", "no-mpi"),
        ("small-write", "misaligned-write", "random-write", "shared-file", "no-collective-write", "low-level-write", "repeated-read"),
        ("server-imbalance",),
    ),
    "good-target": (
        "tests/input/sample-goodost.darshan", ("no-mpi",),
        ("server-imbalance", "small-write", "misaligned-write", "random-write", "shared-file", "low-level-write", "high-metadata"), (),
    ),
    "vpic": (
        "examples/example_logs/example.darshan", ("misaligned-write", "rank-imbalance", "shared-file"),
        ("small-write", "no-collective-write", "no-mpi", "random-write", "high-metadata", "low-level-write"),
        ("misaligned-write", "rank-imbalance"),
    ),
    "macsio": (
        "examples/example_logs/shane_macsio_id29959_5-22-32552-7035573431850780836_1590156158.darshan",
        ("small-write", "misaligned-write", "no-collective-write"), ("no-mpi", "random-write", "server-imbalance", "low-level-write"),
        ("small-write", "no-collective-write"),
    ),
    "one-process": (
        "examples/example_logs/dxt.darshan", ("small-read", "random-read", "high-metadata"),
        ("no-mpi", "no-collective-read", "no-collective-write", "shared-file", "rank-imbalance", "server-imbalance"), ("high-metadata",),
    ),
    "streams": (
        "examples/example_logs/noposix.darshan", ("low-level-read",),
        tuple(label for label in LABELS if not label.startswith("low-level") and label != "no-mpi"), ("low-level-read",),
    ),
    "tiny": ("tests/input/sample-dxt-simple.darshan", (), LABELS, ()),
    "ior-hdf5": (
        "examples/example_logs/ior_hdf5_example.darshan", ("misaligned-write", "small-write"),
        ("no-mpi", "no-collective-write", "no-collective-read", "low-level-write", "low-level-read", "high-metadata"), (),
    ),
}  # fmt: skip


def shipped() -> Path | None:
    """The folder of the installed package `darshan`, in which its example logs lie; None where it is not installed."""
    found = importlib.util.find_spec("darshan")
    return None if found is None or found.origin is None else Path(found.origin).parent


def shipped_log(name: str) -> Known:
    """One of the logs that the package `darshan` brings."""
    folder = shipped()
    if folder is None:
        raise extras.missing("darshan")
    file, there, absent, causes = SHIPPED[name]
    path = folder / file
    if not path.exists():
        raise InputError("found no such log in the installed package darshan", where=file)
    truth = Truth(dict.fromkeys(there, 0.0), causes=frozenset(causes), absent=frozenset(absent))
    return Known(read_log(path), truth, path)


def made(kind: str, names: Sequence[str], number: int, most_ranks: int, rng: np.random.Generator) -> tuple[Known, ...]:
    """Synthetic logs of one kind: `single` faults, a `mixture`, a `decoy` or programs `without-mpi`."""
    found = []
    for i in range(number):
        # A stream for each log, so that more logs do not change the first ones.
        own = np.random.Generator(np.random.PCG64DXSM(int(rng.integers(1 << 62))))
        ranks = int(own.choice([p for p in (4, 16, 64, 128, 256, 1024, 4096) if p <= most_ranks]))
        program, truth = _program(kind, names, i, ranks, own)
        found.append(Known(log_of(program, f"{'-'.join(names[:1])}-{i + 1}", own), truth))
    return tuple(found)


def _program(kind: str, names: Sequence[str], i: int, ranks: int, rng: np.random.Generator) -> tuple[Program, Truth]:
    asked = SEVERITIES[i % len(SEVERITIES)]
    if kind == "decoy":
        return decoy(names[0], ranks, rng)
    if kind == "without-mpi":
        return without_mpi(asked, max(ranks, 64), rng)
    if kind == "mixture":
        return _mixture(list(names), 2 + i % 4, max(ranks, 16), rng)
    least = 64 if names[0] in ("shared-file", "no-collective-read", "no-collective-write", "server-imbalance", "slow-target") else 4
    for _ in range(TRIES):
        try:
            return planted(names, [asked], max(ranks, least), rng)
        except TooCheap:
            continue
    raise RuntimeError(f"{names[0]} cannot be planted on {ranks} ranks")


def _mixture(names: list[str], many: int, ranks: int, rng: np.random.Generator) -> tuple[Program, Truth]:
    """A program with `many` faults, each of which costs about a tenth of the I/O time or more; those that cannot are drawn anew."""
    for _ in range(TRIES):
        chosen = [str(name) for name in rng.choice(names, many, replace=False)]
        extra = rng.uniform(0.0, 1.0, many)
        asked = LEAST_SEVERITY + (0.8 - LEAST_SEVERITY * many) * extra / max(1.0, float(extra.sum()) * 1.5)
        try:
            program, truth = planted(chosen, asked.tolist(), ranks, rng, least=0.9 * LEAST_SEVERITY)
        except TooCheap:
            continue
        if min(truth.severity.values()) >= 0.9 * LEAST_SEVERITY:
            return program, truth
    return _mixture(names, many - 1, ranks, rng)


@dataclass(frozen=True)
class Score:
    """How far a technique's labels are from what is known, over several logs."""

    found: int
    wrong: int
    missed: int
    #: Logs whose first finding names the cause, and logs with a known cause or a known absence of faults.
    first: int
    judged: int

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall over all labels; 1 where there was nothing to find and nothing was said."""
        total = 2 * self.found + self.wrong + self.missed
        return 2 * self.found / total if total else 1.0

    @property
    def precision(self) -> float:
        """The share of what was said that is true; 1 where nothing was said."""
        said = self.found + self.wrong
        return self.found / said if said else 1.0

    @property
    def recall(self) -> float:
        """The share of what is true that was said; 1 where nothing is."""
        there = self.found + self.missed
        return self.found / there if there else 1.0

    @property
    def root_cause(self) -> float:
        """The share of logs whose cause was named first."""
        return self.first / self.judged if self.judged else 1.0


def score(pairs: Sequence[tuple[Truth, Answer]]) -> Score:
    """Compares answers with the truth. Labels that a fault brings about by itself count neither way, nor do undecided ones."""
    found = wrong = missed = first = judged = 0
    for truth, answer in pairs:
        said, there = set(answer.labels), truth.labels
        found += len(said & there)
        missed += len(there - said)
        false = said - there - truth.brings
        wrong += len(false if truth.absent is None else false & truth.absent)
        if truth.causes or truth.absent is None or not there:
            judged += 1
            leading = answer.labels[0] if answer.labels else None
            first += leading in truth.causes if truth.causes else leading is None
    return Score(found, wrong, missed, first, judged)


def read_labelled(path: Path, most_records: int) -> tuple[Known, ...]:
    """The logs that a JSON file names beside itself, with their labels: one object or a list of `{"log": path, "issues": [label, …]}`."""
    rows: Any = read_json(path)
    rows = rows if isinstance(rows, list) else [rows]
    if not 1 <= len(rows) <= MOST_LOGS:
        raise InputError(f"found {len(rows):,} logs; expected 1 to {MOST_LOGS:,}", where=str(path))
    files = list[tuple[Path, Truth | None]]()
    for number, row in enumerate(rows):
        where = f"{path}: [{number}]"
        if not isinstance(row, dict) or set(row) - {"log", "issues"} or not isinstance(row.get("log"), str):
            raise InputError('expected {"log": path, "issues": [label, …]}', where=where)
        issues = row.get("issues")
        if not isinstance(issues, list) or not all(isinstance(one, str) and one in LABELS for one in issues):
            wrong = next((one for one in issues if one not in LABELS), "") if isinstance(issues, list) else issues
            raise InputError(f"issues: found {str(wrong)[:60]!r}; expected a list of {', '.join(LABELS)}", where=where)
        file = Path(row["log"])
        if file.is_absolute() or ".." in file.parts:
            raise InputError(f"log: found {row['log'][:80]!r}; expected a file beside this one", where=where)
        files.append((path.parent / file, Truth(dict.fromkeys(issues, 0.0))))
    return _read_all(files, most_records)


def read_folder(path: Path, most_records: int) -> tuple[Known, ...]:
    """Every log of a folder, in the order of their names; files with other endings are passed over, and a bad log is refused."""
    return _read_all([(file, None) for file in logs_of(path)], most_records)


def _read_all(files: Sequence[tuple[Path, Truth | None]], most_records: int) -> tuple[Known, ...]:
    """Several logs, which together have at most `most_records` records and so many traced requests as one log may have."""
    found: list[Known] = []
    records, segments = most_records, MOST_SEGMENTS
    for file, truth in files:
        log = read_log(file, most_records=records, most_segments=segments)
        records -= sum(map(len, log.modules.values())) + (len(log.stripes) if log.stripes is not None else 0)
        segments -= sum(map(len, log.segments.values()))
        if records < 0 or segments < 0:
            raise InputError(f"found more than {most_records:,} records in all logs; expected at most as many", where=str(file))
        found.append(Known(log, truth, file))
    return tuple(found)
