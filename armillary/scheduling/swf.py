"""Logs of batch jobs: the Standard Workload Format and Slurm's own texts, in and out.

```python
from armillary.scheduling.swf import read_jobs, read_queue, read_swf

jobs = read_jobs("NASA-iPSC.swf.gz")          # also `sacct --parsable2` and jobcomp/filetxt; told apart by their content
jobs.submit_s, jobs.run_s, jobs.nodes         # arrays with one entry per job, in the order (submit, job number)
swf = read_swf("NASA-iPSC.swf.gz")            # the file itself: all 18 fields, every comment; swf.text() writes it again
queue = read_queue(squeue_json)               # what `squeue --json` said, as a list of SlurmJob
sacct_text(jobs), jobcomp_text(jobs), queue_json(queue), Swf.of(jobs).text()      # and out again
```

`Jobs` is what arenas work with. Times are seconds since `epoch_s` (or since the log's own zero where that is unknown), durations are
seconds, sizes are nodes (processors where a log knows no nodes), and names are numbers with their texts in `names`.
"""

from __future__ import annotations

import datetime
import json
import math
import re
import zoneinfo
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line
from armillary.files import parse_json, read_head, read_lines
from armillary.wording import counted

if TYPE_CHECKING:
    import polars as pl

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: The fields of a line of SWF 2.2, in their order.
FIELDS = (
    "job", "submit", "wait", "run", "procs", "cpu", "memory", "requested_procs", "requested_time", "requested_memory", "status", "user",
    "group", "executable", "queue", "partition", "preceding", "think",
)  # fmt: skip
#: The keys of the header that the format names; others are kept too.
KEYS = frozenset((
    "Version", "Computer", "Installation", "Acknowledge", "Information", "Conversion", "MaxJobs", "MaxRecords", "Preemption",
    "UnixStartTime", "TimeZone", "TimeZoneString", "StartTime", "EndTime", "MaxNodes", "MaxProcs", "MaxRuntime", "AllowOveruse",
    "MaxQueues", "Queues", "Queue", "MaxPartitions", "Partitions", "Partition", "Note",
))  # fmt: skip
#: Lines of one log, jobs wider than any machine, and seconds beyond which a number is no time.
LINES, WIDEST, LONGEST_S = 5_000_000, 1 << 24, 1e11
#: What Slurm plans for a job without a time limit.
UNLIMITED_S = 365 * 86400.0
_DONE, _FAILED, _CANCELLED = 1, 0, 5
_STATUS = {"COMPLETED": _DONE, "CANCELLED": _CANCELLED, "PREEMPTED": _CANCELLED}
_STATUS |= dict.fromkeys(("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"), _FAILED)
_STATES = {_DONE: "COMPLETED", _FAILED: "FAILED", _CANCELLED: "CANCELLED"}
_NUMBERS = re.compile(r"[-+0-9.eE\s]*")
_UNUSUAL = re.compile(r"[.eE+]|(?<![0-9])-?0[0-9]|-0(?![0-9])")
_KEY = re.compile(r";[ \t]*([A-Za-z][A-Za-z0-9_]*):(.*)")
_NAMED = ("user", "group", "executable", "queue", "partition")


@dataclass(frozen=True)
class Jobs:
    """The jobs of one machine's log that ran, in the order (submit, job number): arrays with one entry per job.

    `wait_s` is NaN where it is unknown; `waits_known` says whether any is known. `user`, `group`, `executable`, `queue` and `partition`
    are numbers, -1 if unknown; where the log has texts, `names["user"][number]` is the text. `status` is SWF's (1 done, 0 failed,
    5 cancelled, -1 unknown).
    """

    job: Integers
    submit_s: Floats
    wait_s: Floats
    run_s: Floats
    nodes: Integers
    #: What the user asked for; the run time where that is unknown.
    requested_s: Floats
    user: Integers
    group: Integers
    executable: Integers
    queue: Integers
    partition: Integers
    status: Integers
    #: The size of the machine: what the log says, or its widest job.
    machine_nodes: int
    #: Unix time of `submit_s == 0`, or None.
    epoch_s: float | None = None
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Jobs that were left out because they never ran, and jobs that stood in another order in the file.
    dropped: int = 0
    reordered: int = 0

    @staticmethod
    def of(
        submit_s: npt.ArrayLike, run_s: npt.ArrayLike, nodes: npt.ArrayLike, *, requested_s: npt.ArrayLike | None = None,
        machine_nodes: int = 0, job: npt.ArrayLike | None = None, **columns: Any,
    ) -> Jobs:  # fmt: skip
        """Jobs from arrays, checked and brought into order.

        What is not given is unknown: the request becomes the run time, jobs are numbered from 1, waits are NaN, other columns are -1.
        `columns` may name any further field of `Jobs`. A fault raises InputError with the number of the job.
        """
        submit = np.array(submit_s, np.float64)
        n = len(submit)
        number = np.arange(1, n + 1) if job is None else np.array(job, np.int64)
        run, size = np.array(run_s, np.float64), np.array(nodes, np.int64)
        asked = run.copy() if requested_s is None else np.array(requested_s, np.float64)
        whole = {name: np.array(columns.pop(name, np.full(n, -1)), np.int64) for name in (*_NAMED, "status")}
        wait = np.array(columns.pop("wait_s", np.full(n, np.nan)), np.float64)
        arrays: dict[str, npt.NDArray[Any]] = {
            "job": number, "submit_s": submit, "wait_s": wait, "run_s": run, "nodes": size, "requested_s": asked, **whole,
        }  # fmt: skip
        for name, values in arrays.items():
            if values.shape != (n,):
                raise InputError(f"found {name} of shape {values.shape}; expected one value for each of {counted(n, 'job')}")
        _check(number, submit, "submit time", -LONGEST_S)
        _check(number, run, "run time", 0.0)
        _check(number, asked, "requested time", 0.0)
        _check(number, np.nan_to_num(wait), "wait", 0.0)
        _check(number, size.astype(np.float64), "size", 1, WIDEST)
        widest = int(size.max()) if n else 1
        if machine_nodes and widest > machine_nodes:
            at = int(number[int(size.argmax())])
            raise InputError(f"found {counted(widest, 'node')}; expected at most the machine's {machine_nodes:,}", where=f"job {at}")
        order = np.lexsort((number, submit))
        moved = int(np.count_nonzero(order != np.arange(n)))
        columns.setdefault("reordered", moved)
        made: dict[str, Any] = {name: values[order] for name, values in arrays.items()}
        return Jobs(**made, machine_nodes=machine_nodes or widest, **columns)

    def __len__(self) -> int:
        return len(self.job)

    @property
    def waits_known(self) -> bool:
        """Whether the log has waits, so that one can learn from it; otherwise it can only be replayed."""
        return bool(len(self.wait_s)) and not bool(np.isnan(self.wait_s).all())

    @property
    def start_s(self) -> Floats:
        """When each job started, on the clock of `submit_s`; NaN where the wait is unknown."""
        return self.submit_s + self.wait_s

    @property
    def end_s(self) -> Floats:
        """When each job ended, on the clock of `submit_s`; NaN where the wait is unknown."""
        return self.submit_s + self.wait_s + self.run_s

    def take(self, which: npt.ArrayLike | slice) -> Jobs:
        """Some of the jobs, by a slice, a mask or rising positions."""
        chosen = which if isinstance(which, slice) else np.asarray(which)
        arrays = {f.name: getattr(self, f.name)[chosen] for f in fields(self) if isinstance(getattr(self, f.name), np.ndarray)}
        return replace(self, **arrays)

    def frame(self) -> pl.DataFrame:
        """One row per job; numbers that stand for texts are the texts."""
        import polars as pl

        columns = {f.name: getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), np.ndarray)}
        for name, texts in self.names.items():
            columns[name] = [texts[i] if 0 <= i < len(texts) else None for i in columns[name].tolist()]
        return pl.DataFrame(columns)


def _check(number: Integers, values: Floats, what: str, least: float, most: float = LONGEST_S) -> None:
    bad = ~((values >= least) & (values <= most))
    if bad.any():
        at = int(np.argmax(bad))
        raise InputError(f"found the {what} {values[at]:g}; expected {least:g} to {most:g}", where=f"job {int(number[at])}")


# The Standard Workload Format


@dataclass(frozen=True)
class Swf:
    """A file in the Standard Workload Format 2.2 as it stands: `text()` writes it again, equal up to spacing."""

    #: One row of 18 numbers per job, in the order of the file; -1 is unknown.
    rows: Floats
    #: The number of jobs before each comment, and the comment with its semicolon.
    comments: tuple[tuple[int, str], ...] = ()
    #: Texts of numbers that are not written in the plainest way, by row and column: "007", "12.50".
    spelled: Mapping[tuple[int, int], str] = field(default_factory=dict)
    #: The line of each row, and the file's name, for messages.
    lines: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    path: str = ""

    @property
    def header(self) -> dict[str, list[str]]:
        """Key to its values in the order of the file; a value that goes on in following comment lines is joined by line feeds."""
        found: dict[str, list[str]] = {}
        last: list[str] | None = None
        place = 0
        for before, comment in self.comments:
            last, place = (last if before == place else None), before
            key = _KEY.match(comment)
            body = comment[1:]
            indented = len(body) - len(body.lstrip())
            if key and (key[1] in KEYS or (indented <= 1 and key[1][0].isupper() and not key[2].startswith("//"))):
                last = found.setdefault(key[1], [])
                last.append(key[2].strip())
            elif not body.strip():
                last = None
            elif last is not None:
                last[-1] += "\n" + body.strip()
        return found

    def number(self, key: str) -> int | None:
        """The whole number with which the first value of a header key begins, or None."""
        found = re.match(r"-?\d{1,15}(?![\d.])", self.header.get(key, [""])[0])
        return int(found[0]) if found else None

    def column(self, name: str) -> Floats:
        """One of `FIELDS`, for every row."""
        values: Floats = self.rows[:, FIELDS.index(name)]
        return values

    def text(self) -> str:
        """The file's text, with one space between numbers."""
        out: list[str] = []
        at = 0
        for i, row in enumerate(self.rows.tolist()):
            while at < len(self.comments) and self.comments[at][0] <= i:
                out.append(self.comments[at][1])
                at += 1
            out.append(" ".join(self.spelled.get((i, j)) or _plain(value) for j, value in enumerate(row)))
        out += [comment for _, comment in self.comments[at:]]
        return "\n".join(out) + "\n" if out else ""

    def jobs(self, *, machine_nodes: int = 0) -> Jobs:
        """The jobs that ran.

        Parts of jobs (status 2, 3 and 4) are passed over, because another line sums them up. A requested size of -1 is the allocated
        one, a requested time of -1 the run time. A job without a run time or a size is dropped and counted.
        The machine has `machine_nodes`, or the header's MaxProcs, or MaxNodes, or the size of the widest job.
        """
        status, run = self.column("status"), self.column("run")
        self._refuse((run < 0) & (run != -1), "run", "0 or more, or -1 if it is unknown")
        self._refuse(~(np.abs(self.column("submit")) <= LONGEST_S), "submit", "seconds")
        asked, allocated = self.column("requested_procs"), self.column("procs")
        size = np.where(asked > 0, asked, allocated)
        whole = ~np.isin(status, (2, 3, 4))
        kept = whole & (run >= 0) & (size > 0)
        machine = machine_nodes or self.number("MaxProcs") or self.number("MaxNodes") or 0
        machine = machine if 0 < machine <= WIDEST else 0
        self._refuse(kept & (size > (machine or WIDEST)), "requested_procs", f"at most the machine's {machine or WIDEST:,}", size)
        requested, wait = self.column("requested_time"), self.column("wait")
        requested = np.where(requested >= 0, requested, run)
        for name, values in (("run", run), ("requested_time", requested), ("wait", wait)):
            self._refuse(kept & (values > LONGEST_S), name, f"at most {LONGEST_S:g} s", values)
        rows = np.nonzero(kept)[0]
        start = self.number("UnixStartTime")
        return Jobs.of(
            self.column("submit")[rows], run[rows], size[rows], requested_s=requested[rows], machine_nodes=machine,
            job=self.column("job")[rows], wait_s=np.where(wait >= 0, wait, np.nan)[rows], status=status[rows],
            epoch_s=float(start) if start is not None and start >= 0 else None, dropped=int(np.count_nonzero(whole & ~kept)),
            **{name: self.column(name)[rows] for name in _NAMED},
        )  # fmt: skip

    def _refuse(self, bad: npt.NDArray[np.bool_], name: str, expected: str, values: Floats | None = None) -> None:
        if bad.any():
            i = int(np.argmax(bad))
            found = self.column(name)[i] if values is None else values[i]
            where = f"{self.path}:{int(self.lines[i])}" if i < len(self.lines) else f"row {i + 1}"
            raise InputError(f"field {FIELDS.index(name) + 1} ({name}): found {_plain(float(found))}; expected {expected}", where=where)

    @staticmethod
    def of(jobs: Jobs, *, notes: Sequence[str] = ()) -> Swf:
        """A log as a file: what `Jobs` knows, and -1 for the rest."""
        rows = np.full((len(jobs), len(FIELDS)), -1.0)
        known = {
            "job": jobs.job, "submit": jobs.submit_s, "wait": np.where(np.isnan(jobs.wait_s), -1.0, jobs.wait_s), "run": jobs.run_s,
            "procs": jobs.nodes, "requested_procs": jobs.nodes, "requested_time": jobs.requested_s, "status": jobs.status,
        }  # fmt: skip
        for name, values in (known | {name: getattr(jobs, name) for name in _NAMED}).items():
            rows[:, FIELDS.index(name)] = values
        header = ["; Version: 2.2", f"; MaxJobs: {len(jobs)}", f"; MaxNodes: {jobs.machine_nodes}", f"; MaxProcs: {jobs.machine_nodes}"]
        if jobs.epoch_s is not None:
            header.insert(1, f"; UnixStartTime: {int(jobs.epoch_s)}")
        header += [f"; Note: {one_line(note)}" for note in notes]
        return Swf(rows, tuple((0, line) for line in header))


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def read_swf(path: str | Path, *, most: int = LINES) -> Swf:
    """Reads a log in the Standard Workload Format (`.swf`, `.swf.gz`), at most `most` lines of it."""
    comments: list[tuple[int, str]] = []
    spelled: dict[tuple[int, int], str] = {}
    lines: list[int] = []
    values: list[float] = []
    blocks: list[Floats] = []
    shown = one_line(str(path), 200)
    for number, line in read_lines(path, most=most):
        text = line.strip()
        if not text:
            continue
        if text[0] == ";":
            comments.append((len(lines), text))
            continue
        cells = text.split()
        if len(cells) != len(FIELDS):
            raise InputError(f"found {counted(len(cells), 'field')}; expected the 18 numbers of SWF", where=f"{shown}:{number}")
        try:
            if not _NUMBERS.fullmatch(text):
                raise ValueError
            found = [float(cell) for cell in cells]
            if max(map(abs, found)) > 1 << 53:
                raise ValueError
        except ValueError:
            j = next(j for j, cell in enumerate(cells) if not _is_number(cell))
            message = f'field {j + 1} ({FIELDS[j]}): found "{one_line(cells[j], 40)}"; expected a number of at most 2⁵³'
            raise InputError(message, where=f"{shown}:{number}") from None
        if _UNUSUAL.search(text):
            spelled.update({(len(lines), j): cell for j, cell in enumerate(cells) if cell != _plain(found[j])})
        values += found
        lines.append(number)
        if len(values) >= 1 << 18:
            blocks.append(np.array(values))
            values = []
    rows = np.concatenate([*blocks, np.array(values)]).reshape(-1, len(FIELDS))
    return Swf(rows, tuple(comments), spelled, np.array(lines, np.int64), shown)


def _is_number(cell: str) -> bool:
    try:
        return bool(_NUMBERS.fullmatch(cell)) and abs(float(cell)) <= 1 << 53
    except ValueError:
        return False


# Slurm's accounting


@dataclass
class _Rows:
    """Jobs as they are found in a text of Slurm's, until all are there."""

    rows: list[tuple[float, ...]] = field(default_factory=list)
    names: dict[str, dict[str, int]] = field(default_factory=lambda: {name: {} for name in _NAMED})
    dropped: int = 0

    def named(self, column: str, text: str) -> int:
        return self.names[column].setdefault(text, len(self.names[column])) if text else -1

    def add(
        self, where: str, job: int, times: Sequence[float | None], limit: float | None, nodes: int, state: str, names: Mapping[str, str]
    ) -> None:  # fmt: skip
        submit, start, end = times
        if submit is None or start is None or end is None or nodes < 1:
            self.dropped += 1
            return
        if end < start or start < submit:
            earlier, later = ("End", "Start") if end < start else ("Start", "Submit")
            raise InputError(f"found {earlier} before {later}; expected Submit, Start and End in this order", where=where)
        words = state.split()
        status = _STATUS.get(words[0], -1) if words else -1
        asked = end - start if limit is None else limit
        self.rows.append(
            (job, submit, start - submit, end - start, nodes, asked, *(self.named(n, names.get(n, "")) for n in _NAMED), status)
        )

    def jobs(self, machine_nodes: int) -> Jobs:
        table = np.array(self.rows, np.float64).reshape(-1, 12)
        first = float(table[:, 1].min()) if len(table) else 0.0
        names = {name: tuple(texts) for name, texts in self.names.items() if texts}
        columns = dict(zip((*_NAMED, "status"), table[:, 6:].T, strict=True))
        return Jobs.of(
            table[:, 1] - first, table[:, 3], table[:, 4], requested_s=table[:, 5], machine_nodes=machine_nodes, job=table[:, 0],
            wait_s=table[:, 2], epoch_s=first if len(table) else None, names=names, dropped=self.dropped, **columns,
        )  # fmt: skip


_SACCT = ("JobIDRaw", "Submit", "Start", "End", "Timelimit", "NNodes", "State")
_SACCT_NAMES = {"user": "User", "group": "Account", "executable": "JobName", "queue": "QOS", "partition": "Partition"}


def read_sacct(path: str | Path, *, machine_nodes: int = 0, zone: str = "UTC") -> Jobs:
    """The ended jobs in the text of `sacct --parsable2` with at least JobIDRaw, Submit, Start, End, Timelimit, NNodes and State.

    Lines of job steps are passed over. Jobs that did not start or did not end are dropped and counted. `zone` is the time zone in which
    sacct printed its times.
    """
    shown = one_line(str(path), 200)
    found, header = _Rows(), list[str]()
    clock = _zone(zone)
    for number, line in read_lines(path, most=LINES):
        if not line.strip():
            continue
        cells, where = line.rstrip("\r").split("|"), f"{shown}:{number}"
        if not header:
            header = [cell.strip() for cell in cells]
            lacking = [name for name in _SACCT if name not in header]
            if lacking:
                raise InputError(f"found no column {lacking[0]}; expected {', '.join(_SACCT)} in the first line", where=where)
            continue
        if len(cells) != len(header):
            raise InputError(f"found {counted(len(cells), 'cell')}; expected {len(header)}, as in the first line", where=where)
        row = dict(zip(header, cells, strict=True))
        if "." in row["JobIDRaw"]:
            continue
        names = {ours: row.get(theirs, "") for ours, theirs in _SACCT_NAMES.items()}
        found.add(
            where, _whole(row["JobIDRaw"], where, "JobIDRaw"), [_moment(row[k], clock, where, k) for k in ("Submit", "Start", "End")],
            _limit(row["Timelimit"], where), _whole(row["NNodes"], where, "NNodes"), row["State"], names,
        )  # fmt: skip
    if not header:
        raise InputError("found an empty file; expected the text of sacct --parsable2", where=shown)
    return found.jobs(machine_nodes)


def sacct_text(jobs: Jobs, *, zone: str = "UTC") -> str:
    """The jobs as `sacct --parsable2` would print them; jobs need known waits and `epoch_s`."""
    epoch, clock = _epoch(jobs), _zone(zone)
    out = ["JobIDRaw|User|Account|JobName|Partition|QOS|Submit|Start|End|Timelimit|NNodes|State"]
    for i in range(len(jobs)):
        user, account, name, queue, partition = (_text(jobs, column, i).replace("|", "/") for column in _NAMED)
        times = (_said(epoch + t, clock) for t in (jobs.submit_s[i], jobs.start_s[i], jobs.end_s[i]))
        state = _STATES.get(int(jobs.status[i]), "COMPLETED")
        cells = (str(jobs.job[i]), user, account, name, partition, queue, *times, _duration(jobs.requested_s[i]), str(jobs.nodes[i]), state)
        out.append("|".join(cells))
    return "\n".join(out) + "\n"


#: The keys of a line of jobcomp/filetxt in their order; those with a bracket may be missing.
_JOBCOMP = (
    "JobId", "UserId", "GroupId", "Name", "JobState", "Partition", "TimeLimit", "StartTime", "EndTime", "NodeList", "NodeCnt", "ProcCnt",
    "WorkDir", "ReservationName", "Tres", "Account", "QOS", "WcKey", "Cluster", "SubmitTime", "EligibleTime", "[ArrayJobId",
    "[ArrayTaskId", "[HetJobId", "[HetJobOffset", "DerivedExitCode", "ExitCode",
)  # fmt: skip


def read_jobcomp(path: str | Path, *, machine_nodes: int = 0, zone: str = "UTC") -> Jobs:
    """The jobs in a file that Slurm's jobcomp/filetxt plugin wrote; jobs that never started are dropped and counted.

    `zone` is the time zone of the controller, because the file has local times.
    """
    shown = one_line(str(path), 200)
    found, clock = _Rows(), _zone(zone)
    for number, line in read_lines(path, most=LINES):
        if not line.strip():
            continue
        where = f"{shown}:{number}"
        row = _jobcomp_line(line.rstrip("\r\n "), where)
        names = {
            "user": row["UserId"].partition("(")[0], "group": row["GroupId"].partition("(")[0], "executable": row["Name"],
            "queue": row["QOS"], "partition": row["Partition"],
        }  # fmt: skip
        limit = None
        if row["TimeLimit"] not in ("Partition_Limit", ""):
            unlimited = row["TimeLimit"] == "UNLIMITED"
            limit = UNLIMITED_S if unlimited else 60.0 * _whole(row["TimeLimit"], where, "TimeLimit")
        found.add(
            where, _whole(row["JobId"], where, "JobId"),
            [_moment(row[k], clock, where, k) for k in ("SubmitTime", "StartTime", "EndTime")], limit,
            _whole(row["NodeCnt"], where, "NodeCnt"), row["JobState"], names,
        )  # fmt: skip
    return found.jobs(machine_nodes)


def _jobcomp_line(line: str, where: str) -> dict[str, str]:
    """Key to value. A value ends where the next known key begins, because names and folders may hold spaces."""
    row: dict[str, str] = {}
    last, begin, text = "", 0, " " + line
    for listed_key in _JOBCOMP:
        key = listed_key.removeprefix("[")
        at = text.find(f" {key}=", begin)
        if at < 0:
            if key != listed_key:
                continue
            raise InputError(f"found no {key}= after {last or 'the beginning'}; expected the keys of jobcomp/filetxt", where=where)
        if last:
            row[last] = text[begin:at]
        elif at:
            raise InputError(f'found "{one_line(line, 30)}"; expected JobId=', where=where)
        last, begin = key, at + len(key) + 2
    row[last] = text[begin:]
    return row


def jobcomp_text(jobs: Jobs, *, zone: str = "UTC") -> str:
    """The jobs as Slurm's jobcomp/filetxt plugin would write them; jobs need known waits and `epoch_s`."""
    epoch, clock = _epoch(jobs), _zone(zone)
    out = []
    for i in range(len(jobs)):
        user, group, name, queue, partition = (_text(jobs, column, i) for column in _NAMED)
        submit, start, end = (_said(epoch + t, clock) for t in (jobs.submit_s[i], jobs.start_s[i], jobs.end_s[i]))
        state = _STATES.get(int(jobs.status[i]), "COMPLETED")
        limit = "UNLIMITED" if jobs.requested_s[i] >= UNLIMITED_S else str(math.ceil(jobs.requested_s[i] / 60))
        out.append(
            f"JobId={jobs.job[i]} UserId={user}({jobs.user[i]}) GroupId={group}({jobs.group[i]}) Name={name} JobState={state} "
            f"Partition={partition} TimeLimit={limit} StartTime={start} EndTime={end} NodeList=(null) NodeCnt={jobs.nodes[i]} "
            f"ProcCnt={jobs.nodes[i]} WorkDir=/ ReservationName= Tres= Account={group} QOS={queue} WcKey= Cluster= SubmitTime={submit} "
            f"EligibleTime={submit} DerivedExitCode=0:0 ExitCode=0:0 "
        )
    return "\n".join(out) + "\n" if out else ""


def _zone(name: str) -> datetime.tzinfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise InputError(f'found "{one_line(name, 60)}"; expected a time zone such as UTC or Europe/Berlin', where="zone") from None


def _moment(text: str, zone: datetime.tzinfo, where: str, key: str) -> float | None:
    """Unix time of a local time without zone; None where Slurm knows none."""
    if text.strip().lower() in ("unknown", "none", "", "(null)", "n/a"):
        return None
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", text.strip()):
        try:
            return datetime.datetime.fromisoformat(text.strip()).replace(tzinfo=zone).timestamp()
        except (ValueError, OverflowError):
            pass
    raise InputError(f'{key}: found "{one_line(text, 40)}"; expected a time such as 2026-01-31T12:00:00', where=where)


def _limit(text: str, where: str) -> float | None:
    """Seconds of `[days-]hours:minutes:seconds`, `minutes:seconds` or `minutes`; None where the log does not say."""
    if text in ("", "Partition_Limit", "NONE", "INVALID"):
        return None
    if text in ("UNLIMITED", "INFINITE"):
        return UNLIMITED_S
    found = re.fullmatch(r"(?:(?:(\d{1,6})-)?(\d{1,7}):)?(\d{1,9}):(\d{1,2})|(\d{1,9})", text)
    if not found:
        raise InputError(f'Timelimit: found "{one_line(text, 40)}"; expected [days-]hours:minutes:seconds', where=where)
    days, hours, minutes, seconds, alone = (int(part or 0) for part in found.groups())
    return 86400.0 * days + 3600.0 * hours + 60.0 * (minutes + alone) + seconds


def _whole(text: str, where: str, key: str) -> int:
    if not re.fullmatch(r"\d{1,15}", text.strip()):
        raise InputError(f'{key}: found "{one_line(text, 40)}"; expected a whole number', where=where)
    return int(text)


def _epoch(jobs: Jobs) -> float:
    if len(jobs) and (jobs.epoch_s is None or bool(np.isnan(jobs.wait_s).any())):
        raise InputError("found jobs without a known start; expected epoch_s and all waits, because Slurm's texts hold dates")
    return jobs.epoch_s or 0.0


def _text(jobs: Jobs, column: str, i: int) -> str:
    number, texts = int(getattr(jobs, column)[i]), jobs.names.get(column, ())
    return texts[number] if 0 <= number < len(texts) else f"{column}{number}" if number >= 0 else ""


def _said(moment: float, zone: datetime.tzinfo) -> str:
    return datetime.datetime.fromtimestamp(moment, zone).strftime("%Y-%m-%dT%H:%M:%S")


def _duration(seconds: float) -> str:
    if seconds >= UNLIMITED_S:
        return "UNLIMITED"
    whole = math.ceil(seconds)
    return f"{whole // 86400}-{whole % 86400 // 3600:02d}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def read_jobs(path: str | Path, *, machine_nodes: int = 0, zone: str = "UTC") -> Jobs:
    """The jobs of a log, whose kind is told by its first line: SWF, `sacct --parsable2` or jobcomp/filetxt."""
    kinds = "a log in SWF (18 numbers per line), the text of sacct --parsable2, or a file of jobcomp/filetxt"
    raw = read_head(path)
    if b"\0" in raw:
        raise InputError(f"found no text; expected {kinds}", where=one_line(str(path), 200))
    first = raw.decode("utf-8", "replace").removeprefix("\ufeff").lstrip().split("\n", 1)[0]
    try:
        if first.startswith("JobId="):
            return read_jobcomp(path, machine_nodes=machine_nodes, zone=zone)
        if "|" in first and not first.startswith(";"):
            return read_sacct(path, machine_nodes=machine_nodes, zone=zone)
        if first.startswith(";") or _is_number(first.split()[0] if first.split() else ""):
            return read_swf(path).jobs(machine_nodes=machine_nodes)
    except InputError as error:
        # Jobs that were made from a file know their numbers only.
        if not (error.where or "").startswith("job "):
            raise
        raise InputError(error.message, where=f"{one_line(str(path), 200)}: {error.where}") from None
    raise InputError(f'found "{one_line(first, 60)}"; expected {kinds}', where=f"{one_line(str(path), 200)}:1")


# Slurm's queue


@dataclass(frozen=True)
class SlurmJob:
    """One job that Slurm knows now, as `squeue --json` tells it. Times are Unix times."""

    job: int
    #: PENDING, RUNNING, COMPLETING, …
    state: str
    submit_s: float
    #: The start of a running job; of a pending one the start that Slurm plans, or None.
    start_s: float | None
    limit_s: float
    nodes: int
    priority: int = 0
    partition: str = ""
    user: str = ""
    name: str = ""
    #: Why it waits, in Slurm's word: Priority, Resources, JobHeldUser, JobHeldAdmin, …
    reason: str = ""
    #: The administrator's comment, which `Governor` marks its own holds with.
    comment: str = ""

    @property
    def pending(self) -> bool:
        """Whether it waits for nodes."""
        return self.state == "PENDING"

    @property
    def running(self) -> bool:
        """Whether it has nodes, which it keeps while it completes."""
        return self.state in ("RUNNING", "COMPLETING", "CONFIGURING", "STAGE_OUT", "SIGNALING", "SUSPENDED", "STOPPED", "RESIZING")

    @property
    def held(self) -> bool:
        """Whether somebody holds it: Slurm gives such a job the priority 0."""
        return self.pending and (self.priority == 0 or self.reason in ("JobHeldUser", "JobHeldAdmin"))


def read_queue(text: str | bytes, *, where: str = "squeue --json") -> list[SlurmJob]:
    """The jobs in what `squeue --json` printed (OpenAPI v0.0.38, Slurm 22.05, and later), in the order of the text."""
    document = parse_json(text, where)
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        raise InputError('found no list under "jobs"; expected what squeue --json prints', where=where)
    return [_queued(job, f"{where}: jobs[{i}]") for i, job in enumerate(jobs)]


def _queued(job: Any, where: str) -> SlurmJob:
    if not isinstance(job, dict):
        raise InputError("found no object; expected a job", where=where)
    state = job.get("job_state")
    state = state[0] if isinstance(state, list) and state else state
    if not isinstance(state, str):
        raise InputError("job_state: found no text; expected a state such as PENDING", where=where)
    # Older versions print 0 or a number near 2³² for "no limit".
    limit, infinite = _number(job, "time_limit", where)
    limit_s = UNLIMITED_S if infinite or limit is None or not 0 < limit < 1 << 31 else 60.0 * limit
    start, _ = _number(job, "start_time", where)
    submit, _ = _number(job, "submit_time", where)
    identifier, _ = _number(job, "job_id", where)
    nodes, _ = _number(job, "node_count", where)
    if identifier is None or submit is None:
        raise InputError(f"{'job_id' if identifier is None else 'submit_time'}: found none; expected a number", where=where)
    priority, _ = _number(job, "priority", where)
    text = {key: str(job.get(key) or "") for key in ("partition", "user_name", "name", "state_reason", "admin_comment")}
    return SlurmJob(
        int(identifier), state, submit, start if start else None, limit_s, max(1, int(nodes or 1)), int(priority or 0), text["partition"],
        text["user_name"], text["name"], text["state_reason"], text["admin_comment"],
    )  # fmt: skip


def _number(job: Mapping[str, Any], key: str, where: str) -> tuple[float | None, bool]:
    """A number that later versions wrap as {set, infinite, number}, and whether it is infinite; None where it is not set."""
    found = job.get(key)
    if isinstance(found, dict):
        if found.get("infinite") is True:
            return None, True
        found = found.get("number") if found.get("set", True) else None
    if found is None:
        return None, False
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= 1 << 53:
        raise InputError(f"{key}: found {one_line(json.dumps(found), 40)}; expected a number of 0 or more", where=where)
    return float(found), False


def queue_json(queue: Iterable[SlurmJob]) -> str:
    """Jobs as `squeue --json` of Slurm 22.05 prints them, as far as `SlurmJob` knows them."""
    return json.dumps(
        {
            "jobs": [
                {
                    "job_id": job.job, "job_state": job.state, "submit_time": int(job.submit_s), "start_time": int(job.start_s or 0),
                    "time_limit": math.ceil(job.limit_s / 60), "node_count": job.nodes, "priority": job.priority,
                    "partition": job.partition, "user_name": job.user, "name": job.name, "state_reason": job.reason,
                    "admin_comment": job.comment,
                }
                for job in queue
            ]
        }
    )  # fmt: skip
