"""What a fix is expected to bring: the requests of a log on a small model of a file system, as they are and as they would be.

The prices are those of `synthesis.timing`: 0.1 ms per request, 1.2 GB/s per storage target, 0.4 ms for a lock, 2 ms for a jump, 1 ms where
more than eight ranks use a target, 0.3 ms per metadata call. A log has no order of events, so the model takes the longer of two times, that
of the busiest rank and that of the busiest target, and adds that of the metadata server:

    seconds = max(max over ranks of its requests, max over targets of their requests) + calls * 0.3 ms

A fix changes the requests, and its gain is the share of these seconds that it saves. All of it is *modelled*: the seconds are those of no
real machine, and only their ratio is meant to be read. Files of which the log says nothing go to the targets in turn, and a shared file
with as many targets as ranks is taken to be written by aggregators that keep to a target each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from armillary.errors import unknown

from ..diagnosis.facts import DIRECTIONS, Facts
from ..diagnosis.labels import LABELS
from ..diagnosis.report import Diagnosis
from ..logs.log import Module
from ..logs.modules import PREFIX
from ..synthesis.timing import BANDWIDTH, INTERLEAVE_S, LOCK_S, METADATA_S, REQUEST_S, SEEK_S, STREAMS

#: Bytes of the requests that a buffer makes of small ones, and that an aggregator makes.
BUFFERED, AGGREGATED = 4 << 20, 16 << 20
#: Targets over which files could be spread where the log names no second one, because it does not say how many there are.
OTHERS = 8
FIXES = {
    "small": "requests of 4 MiB instead of small ones", "misaligned": "requests that begin where stripes do",
    "random": "requests in the order of their offsets", "repeated": "reading each byte once",
    "shared": "aggregators that write blocks of 16 MiB", "no-collective": "collective calls, whose aggregators move blocks of 16 MiB",
    "no-mpi": "a library whose aggregators move blocks of 16 MiB", "rank": "the same bytes for every rank",
    "server": "files that are spread over all targets, each as fast as the usual one", "high": "one call per file and rank",
    "low-level": "requests of 4 MiB instead of buffered streams",
}  # fmt: skip


@dataclass(frozen=True)
class Forecast:
    """What the model says of one fix: seconds as the job is, and seconds with the fix."""

    label: str
    fix: str
    now_s: float
    then_s: float

    @property
    def gain(self) -> float:
        """The share by which the fix shortens the modelled I/O, from its begin until the last rank is done."""
        return max(0.0, 1 - self.then_s / self.now_s) if self.now_s > 0 else 0.0

    def __str__(self) -> str:
        return f"{self.label}: {self.fix} would shorten the I/O by {100 * self.gain:.0f} % (modelled)."


@dataclass(frozen=True)
class _Work:
    """Requests of one direction and module: a row per record, all columns of equal length."""

    label: str
    wrote: bool
    file: np.ndarray
    #: The record's rank; -1 where `users` ranks share its requests evenly.
    rank: np.ndarray
    users: np.ndarray
    #: Ranks that use the record's file.
    sharers: np.ndarray
    number: np.ndarray
    bytes: np.ndarray
    misaligned: np.ndarray
    #: Requests that do not begin where the one before ended, and those of them that the order of offsets would spare.
    jumps: np.ndarray
    spared: np.ndarray


@dataclass(frozen=True)
class _Job:
    work: tuple[_Work, ...]
    calls: float
    calls_needed: float
    #: For each file the part of its requests that each target serves, as (file, target, part), and how slow each target is.
    file: np.ndarray
    target: np.ndarray
    part: np.ndarray
    slow: np.ndarray
    processes: int
    #: The files that several ranks use without aggregation, those for which aggregators took the ranks' place, and whether loads are even.
    alone: np.ndarray
    calm: np.ndarray
    even: bool = False


def predict(found: Diagnosis, labels: tuple[str, ...] | None = None) -> tuple[Forecast, ...]:
    """The fixes of a diagnosis's findings, or of these labels, each by itself, the largest gain first."""
    for label in labels or ():
        if label not in LABELS:
            raise unknown("label", label, LABELS)
    facts = Facts(found.log)
    job = _job(facts, found)
    now = _seconds(job)
    made = []
    for label in found.labels if labels is None else labels:
        fix = next(text for name, text in FIXES.items() if label.startswith(name))
        made.append(Forecast(label, fix, now, min(now, _seconds(_fixed(job, facts, label)))))
    return tuple(sorted(made, key=lambda one: (-one.gain, one.label)))


def _job(facts: Facts, found: Diagnosis) -> _Job:
    log = facts.log
    ids = np.unique(np.concatenate([facts.posix.ids, facts.stdio.ids]))
    work = [_work(facts, module, way, ids) for module in (facts.posix, facts.stdio) if len(module) for way in DIRECTIONS]
    calls = sum((facts.posix.amount(f"POSIX_{name}") for name in ("OPENS", "STATS")), np.zeros(len(facts.posix)))
    needed = np.minimum(calls, np.where(facts.posix.ranks < 0, log.processes, 1))
    file, target, part = _targets(facts, ids)
    slow = np.ones(int(target.max(initial=0)) + 1)
    servers = found.fragments.get("LUSTRE.servers")
    if servers is not None and servers.number("slowest_over_usual") > 1:
        known = np.unique(log.stripes.osts) if log.stripes is not None else np.zeros(0, np.int64)
        slow[np.searchsorted(known, int(servers.number("slowest_target")))] = servers.number("slowest_over_usual")
    alone = np.isin(ids, facts.files[0][(facts.users > 1) & ~facts.aggregated])
    calm = np.zeros(len(ids), np.bool_)
    return _Job(tuple(work), float(calls.sum()), float(needed.sum()), file, target, part, slow, log.processes, alone, calm)


def _work(facts: Facts, module: Module, way: str, ids: np.ndarray) -> _Work:
    prefix, (plural, _) = PREFIX[module.name], DIRECTIONS[way]
    number, moved = module.amount(f"{prefix}{plural}"), facts.bytes(way, module)
    file = np.searchsorted(ids, module.ids)
    posix = module.name == "POSIX"
    # A shared record is taken to be used by all ranks, unless the counters of module POSIX tell otherwise.
    several = facts.users[facts.files[1]] if posix else np.full(len(module), float(facts.log.processes))
    users = np.where(module.ranks < 0, np.maximum(1.0, several), 1.0)
    sharers = np.maximum(users, np.bincount(file[(module.ranks >= 0) & (number > 0)], minlength=len(ids))[file])
    both = sum((facts.requests(one) for one in DIRECTIONS), np.zeros(1)) if posix else number
    wrong = module.amount("POSIX_FILE_NOT_ALIGNED") * number / np.maximum(both, 1) if posix else np.zeros(len(module))
    first = np.minimum(number, users)
    on, after = (module.amount(f"POSIX_{kind}_{plural}") if posix else number for kind in ("CONSEC", "SEQ"))
    jumps, back = np.maximum(0.0, number - first - on), np.maximum(0.0, number - first - after)
    # Where many requests go back, those that go forth jump as well, and both end with the order; strides remain.
    spared = np.where(back > 0.2 * number, jumps, np.minimum(jumps, back))
    # A read smaller than the alignment touches one block wherever it begins.
    wrong = wrong * (1.0 if way == "write" or not posix else moved >= number * np.maximum(1.0, module.amount("POSIX_FILE_ALIGNMENT")))
    misaligned = np.minimum(wrong, number)
    return _Work(f"{module.name}-{way}", way == "write", file, module.ranks, users, sharers, number, moved, misaligned, jumps, spared)


def _targets(facts: Facts, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(file, target, part of the file there); files of which the log says nothing go to the targets in turn."""
    stripes = facts.log.stripes
    file, target, part = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
    known = np.zeros(len(ids), np.bool_)
    many = OTHERS
    if stripes is not None and len(ids):
        osts, place = np.unique(stripes.osts, return_inverse=True)
        many = len(osts) or OTHERS
        width = np.diff(stripes.begin)
        at = np.minimum(np.searchsorted(ids, stripes.ids), len(ids) - 1)
        there = (ids[at] == stripes.ids) & (width > 0)
        components = np.bincount(at[there], minlength=len(ids))
        rows = np.repeat(np.arange(len(stripes)), width)
        kept = there[rows]
        file.append(at[rows][kept])
        target.append(place.reshape(-1)[kept])
        part.append(1.0 / (width[rows] * np.maximum(components[at[rows]], 1))[kept])
        known[at[there]] = True
    rest = np.flatnonzero(~known)
    file.append(rest)
    target.append(np.arange(len(rest)) % many)
    part.append(np.ones(len(rest)))
    return np.concatenate(file), np.concatenate(target).astype(np.int64), np.concatenate(part)


def _seconds(job: _Job) -> float:
    targets = len(job.slow) if not len(job.target) else max(len(job.slow), int(job.target.max()) + 1)
    slow = np.concatenate([job.slow, np.ones(targets - len(job.slow))])
    files = int(job.file.max(initial=-1)) + 1
    factor = np.bincount(job.file, job.part * slow[job.target], files)
    crowded = _crowded(job, targets, files) * ~job.calm
    on_target, total, shared, ranks, own = np.zeros(targets), 0.0, 0.0, [np.zeros(0, np.int64)], [np.zeros(0)]
    for one in job.work:
        locks = one.misaligned * ((one.sharers > 1) if one.wrote else np.ones(len(one.users)))
        spent = REQUEST_S * one.number + one.bytes / BANDWIDTH + LOCK_S * locks + SEEK_S * one.jumps
        spent = spent + INTERLEAVE_S * one.number * crowded[one.file]
        of_file = np.bincount(one.file, spent, files)
        on_target += np.bincount(job.target, of_file[job.file] * job.part * slow[job.target], targets)
        spent = spent * factor[one.file]
        total += float(spent.sum())
        shared += float((spent / one.users)[one.rank < 0].sum())
        ranks.append(one.rank[one.rank >= 0])
        own.append(spent[one.rank >= 0])
    _, place = np.unique(np.concatenate(ranks), return_inverse=True)
    by_rank = np.bincount(place.reshape(-1), np.concatenate(own))
    if job.even:
        used = int((on_target > 0).sum())
        busy = max(total / job.processes, float(on_target.sum()) / (used if used > 1 else OTHERS))
    else:
        busy = max(float(by_rank.max(initial=0.0)) + shared, float(on_target.max(initial=0.0)))
    return busy + METADATA_S * job.calls


def _crowded(job: _Job, targets: int, files: int) -> np.ndarray:
    """The part of each file's requests that meet targets which more ranks use than they serve without interleaving."""
    users = np.zeros(files)
    for one in job.work:
        np.maximum.at(users, one.file, np.where(one.number > 0, one.sharers, 0))
    most = np.zeros(targets)
    # Where a file has at least as many targets as ranks, these are aggregators, which keep to a target each.
    width = np.bincount(job.file, minlength=files)
    np.maximum.at(most, job.target, np.where(users <= width, 1.0, users)[job.file])
    most = np.maximum(most, np.bincount(job.target, (users == 1)[job.file], targets))
    return np.bincount(job.file, job.part * (most > STREAMS)[job.target], files)


def _fixed(job: _Job, facts: Facts, label: str) -> _Job:
    """The job after the fix of one label."""
    way = "write" if label.endswith("-write") else "read" if label.endswith("-read") else ""

    def mine(one: _Work, module: str = "POSIX") -> bool:
        return one.label.startswith(module) and one.label.endswith(way)

    if label == "high-metadata":
        return replace(job, calls=job.calls_needed)
    if label == "rank-imbalance":
        return replace(job, even=True)
    if label == "server-imbalance":
        return replace(job, even=True, slow=np.ones(len(job.slow)))
    if label == "repeated-read":
        return replace(job, work=tuple(_once(one, facts) if mine(one) else one for one in job.work))
    if label in ("shared-file", "no-mpi") or label.startswith("no-collective"):
        files = np.ones(len(job.alone), np.bool_) if label == "no-mpi" else job.alone
        work = (_merged(one, AGGREGATED, files[one.file]) if mine(one) else one for one in job.work)
        return replace(job, calm=files, work=tuple(work))
    made = []
    for one in job.work:
        if label.startswith("low-level") and mine(one, "STDIO"):
            one = _merged(one, BUFFERED, np.ones(len(one.file), np.bool_))
        elif label.startswith("small") and mine(one):
            one = _merged(one, BUFFERED, one.bytes <= one.number * (1 << 20))
        elif label.startswith("misaligned") and mine(one):
            one = replace(one, misaligned=np.zeros(len(one.file)))
        elif label.startswith("random") and mine(one):
            one = replace(one, jumps=one.jumps - one.spared)
        made.append(one)
    return replace(job, work=tuple(made))


def _merged(one: _Work, size: int, which: np.ndarray) -> _Work:
    """Fewer and larger requests, in order and aligned, in some of the records."""
    part = np.where(which, 0.0, 1.0)
    number = np.where(which, np.minimum(one.number, np.ceil(one.bytes / size)), one.number)
    return replace(one, number=number, misaligned=one.misaligned * part, jumps=one.jumps * part, spared=one.spared * part)


def _once(one: _Work, facts: Facts) -> _Work:
    """Each byte of a file is read once."""
    extent = facts.posix.amount("POSIX_MAX_BYTE_READ") + 1
    part = np.minimum(1.0, extent / np.maximum(one.bytes, 1))
    columns = {name: getattr(one, name) * part for name in ("number", "bytes", "misaligned", "jumps", "spared")}
    return replace(one, **columns)
