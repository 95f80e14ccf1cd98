"""Reads the text that `darshan-parser` and `darshan-dxt-parser` print.

Lines that begin with # say who ran. A line of eight fields, separated by tabs, holds one counter of one record, and a line that begins
with X_ holds one traced request. Polars converts blocks of lines as a whole; every number is checked where it stands, so that a fault
names its line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import line_blocks
from armillary.files.opening import decoded

from .dxt_text import Traced
from .log import MOST_RECORDS, MOST_SEGMENTS, Log
from .modules import COUNTED, LEFT, TRACED, VERSIONS
from .records import Collected
from .stripes import stripes_of

if TYPE_CHECKING:
    import polars as pl

#: Bytes of text that are converted at a time.
BLOCK = 1 << 24
#: Lines about the job, the most that are kept, and the largest number of processes and of seconds.
MOST_HEADERS = 2_000_000
MOST_PROCESSES = 1 << 31
MOST_SECONDS = 1e12
_NEWLINE, _TAB, _HASH, _BLANK, _X = b"\n\t# X"


@dataclass
class _Job:
    facts: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    mounts: list[tuple[str, str]] = field(default_factory=list)
    modules: dict[str, int] = field(default_factory=dict)
    partial: list[str] = field(default_factory=list)


def is_text(head: bytes) -> bool:
    """Whether a file begins like the text of one of Darshan's parsers."""
    return head.lstrip()[:2000].startswith(b"#") and b"darshan log version" in head


def read_text_log(path: Path, *, most_records: int = MOST_RECORDS, most_segments: int = MOST_SEGMENTS) -> Log:
    """The log in the text of `darshan-parser`, of `darshan-dxt-parser`, or of both, one behind the other."""
    job = _Job()
    collected = Collected(str(path), most_records)
    traced = Traced(str(path), most_segments)
    for block, first in line_blocks(path, size=BLOCK):
        data = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(data == _NEWLINE)
        begins = np.concatenate([[0], ends[:-1] + 1])
        lead = data[begins]
        comments = np.flatnonzero(lead == _HASH)
        for line in comments.tolist():
            text = decoded(block[begins[line] : ends[line]], path, first + line).removesuffix("\r")
            if text.startswith("# DXT,"):
                traced.header(text, first + line)
            else:
                _comment(text, job, str(path), first + line)
        requests = np.flatnonzero((lead == _BLANK) | (lead == _X))
        traced.rows(block, data, begins, ends, requests, comments, first)
        counters = np.flatnonzero((lead != _HASH) & (lead != _BLANK) & (lead != _X) & (ends > begins))
        if len(counters):
            collected.add(_table(block, data, begins, ends, counters, first, path), first + counters)
        traced.end_block(first + len(ends))
    return _log(path, job, collected, traced)


def _table(block: bytes, data: Any, begins: Any, ends: Any, lines: Any, first: int, path: Path) -> pl.DataFrame:
    """The counter lines of a block as eight columns of text."""
    import polars as pl

    tabs = np.flatnonzero(data == _TAB)
    found = np.searchsorted(tabs, ends[lines]) - np.searchsorted(tabs, begins[lines])
    wrong = np.flatnonzero(found != 7)
    if len(wrong):
        at = int(lines[wrong[0]])
        raise InputError(f"found {int(found[wrong[0]]) + 1} fields; expected 8 fields, separated by tabs", where=f"{path}:{first + at}")
    texts = decoded(block, path, first).split("\n")
    column = pl.Series("line", [texts[i] for i in lines.tolist()])
    parts = column.str.strip_suffix("\r").str.split_exact("\t", 7).struct.unnest()
    return parts.rename(dict(zip(parts.columns, ("module", "rank", "id", "counter", "value", "file", "mount", "system"))))


def _comment(text: str, job: _Job, path: str, line: int) -> None:
    """One line about the job."""
    where = f"{path}:{line}"
    if len(job.facts) + len(job.mounts) + len(job.metadata) > MOST_HEADERS:
        raise InputError(f"found more than {MOST_HEADERS:,} lines about the job; expected at most as many", where=where)
    body = text.lstrip("#").strip()
    if body.startswith("*WARNING*") or body.startswith("*ERROR*"):
        named = [word for word in body.split() if word in COUNTED or word in TRACED or word in LEFT or word == "LUSTRE"]
        job.partial += [word for word in named[:1] if "incomplete" in body and word not in job.partial]
        return
    key, colon, value = body.partition(":")
    key, value = key.strip(), value.strip("\r\n")
    if not colon:
        return
    if key == "metadata":
        name, _, held = value.partition("=")
        job.metadata[name.strip()] = held.strip()
    elif key == "mount entry":
        place, tab, kind = value.lstrip("\t ").partition("\t")
        if tab:
            job.mounts.append((place.strip(), kind.strip()))
    elif key.endswith(" module"):
        name = key.removesuffix(" module").strip()
        if name in COUNTED or name in TRACED or name in LEFT or name == "LUSTRE":
            version = value.rpartition("ver=")[2].strip()
            job.modules[name] = int(version) if version.isdigit() and len(version) < 6 else 0
    elif key in ("darshan log version", "exe", "jobid", "start_time", "nprocs", "run time", "end_time", "uid"):
        job.facts.setdefault(key, value.strip())
        if key == "nprocs":
            _whole(value.strip(), 1, MOST_PROCESSES, "nprocs", where)
        elif key == "run time":
            _seconds(value.strip(), where)
        elif key == "darshan log version" and value.strip() not in VERSIONS:
            raise InputError(
                f'found the log version "{one_line(value.strip(), 20)}"; expected one of {", ".join(VERSIONS)}', where=where
            )  # fmt: skip


def _whole(text: str, least: int, most: int, what: str, where: str) -> int:
    if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 20 or not least <= int(text) <= most:
        raise InputError(f'{what}: found "{one_line(text, 40)}"; expected a whole number from {least} to {most:,}', where=where)
    return int(text)


def _seconds(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MOST_SECONDS:
        raise InputError(f'run time: found "{one_line(text, 40)}"; expected seconds from 0 to {MOST_SECONDS:g}', where=where)
    return value


def _log(path: Path, job: _Job, collected: Collected, traced: Traced) -> Log:
    if "darshan log version" not in job.facts:
        raise InputError('found no line "# darshan log version:"; expected the text of darshan-parser', where=str(path))
    if "nprocs" not in job.facts:
        raise InputError('found no line "# nprocs:"; expected the number of processes', where=str(path))
    processes = int(job.facts["nprocs"])
    modules, names = collected.modules(processes, job.modules, job.partial)
    names.update({number: name for number, name in traced.names.items() if number not in names})
    start = job.facts.get("start_time", "0")
    return Log(
        name=path.name,
        version=job.facts["darshan log version"],
        executable=job.facts.get("exe", ""),
        job=job.facts.get("jobid", ""),
        processes=processes,
        run_time_s=_seconds(job.facts.get("run time", "0"), str(path)),
        start_time_s=int(start) if start.isascii() and start.isdigit() and len(start) < 16 else 0,
        metadata=job.metadata,
        mounts=tuple(job.mounts),
        modules={name: module for name, module in modules.items() if name in COUNTED},
        stripes=stripes_of(collected.lustre, collected.most, str(path)),
        segments=traced.segments(processes),
        names=names,
        left=tuple(name for name in [*job.modules, *collected.left] if name in LEFT),
        partial=tuple(job.partial),
    )
