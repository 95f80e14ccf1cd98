"""What is known about jobs' I/O, from a table or from Darshan's totals.

A table (`job,bytes_read,bytes_written,io_time_s[,phases]`) has one row per job. A folder of texts that `darshan-parser --total` printed has
one or several per job. Darshan sums its times over the processes of a job, so they are divided by `nprocs`; the bytes of MPI-IO are
not added, because they pass through POSIX.
"""

from __future__ import annotations

import re
from pathlib import Path

from armillary.errors import InputError, one_line
from armillary.files import Column, column_names, read_head, read_lines, read_table
from armillary.scheduling.batch.knowledge.history import JobIo, Moved

#: Texts in one folder, lines of one text, and the largest number of I/O phases.
TEXTS, LINES, PHASES = 100_000, 1_000_000, 1_000_000
_MOST = float(1 << 62)
_MODULES = ("POSIX", "STDIO")
_TIMES = ("F_READ_TIME", "F_WRITE_TIME", "F_META_TIME")
_KINDS = "a table with the columns job, bytes_read, bytes_written and io_time_s, or a folder of texts of darshan-parser --total"


def read_io(path: str | Path) -> JobIo:
    """The I/O of jobs, from a table, from one text of `darshan-parser --total`, or from a folder of them."""
    path = Path(path)
    if path.is_dir():
        return _folder(path)
    head = read_head(path, 4096)
    if _is_binary_darshan(path, head):
        raise InputError("found a binary Darshan log; expected the text that darshan-parser --total prints", where=str(path))
    if head.lstrip().startswith(b"#"):
        number, moved = read_darshan_total(path)
        return JobIo({number: moved})
    return _table(path)


def _is_binary_darshan(path: Path, head: bytes) -> bool:
    return path.name.endswith(".darshan") and b"\0" in head


def _table(path: Path) -> JobIo:
    if not {"job", "io_time_s"} <= set(column_names(path)):
        raise InputError(f"found no columns job and io_time_s; expected {_KINDS}", where=f"{one_line(str(path), 200)}:1")
    table = read_table(
        path,
        [
            Column("job", "int", least=0, most=1 << 53),
            Column("bytes_read", least=0, most=_MOST, unit="bytes"),
            Column("bytes_written", least=0, most=_MOST, unit="bytes"),
            Column("io_time_s", least=0, most=1e11, unit="seconds"),
            Column("phases", "int", least=1, most=PHASES, optional=True),
        ],
        unique=("job",),
        may_be_empty=True,
    )
    phases = table["phases"] if "phases" in table else [0] * table.rows
    rows = zip(table["job"], table["bytes_read"], table["bytes_written"], table["io_time_s"], phases, strict=True)
    return JobIo({int(job): Moved(float(read + written), float(seconds), int(k)) for job, read, written, seconds, k in rows})


def _folder(path: Path) -> JobIo:
    texts = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
    if not texts:
        raise InputError(f"found an empty folder; expected {_KINDS}", where=str(path))
    if len(texts) > TEXTS:
        raise InputError(f"found {len(texts):,} files; expected at most {TEXTS:,}", where=str(path))
    moved: dict[int, Moved] = {}
    for text in texts:
        if _is_binary_darshan(text, read_head(text, 4096)):
            raise InputError("found a binary Darshan log; expected the text that darshan-parser --total prints", where=str(text))
        number, found = read_darshan_total(text)
        # A job may have run several programs, one after the other.
        before = moved.get(number, Moved(0.0, 0.0))
        moved[number] = Moved(before.bytes + found.bytes, before.seconds + found.seconds)
    return JobIo(moved)


def read_darshan_total(path: str | Path) -> tuple[int, Moved]:
    """(job number, what it moved) of one text that `darshan-parser --total` printed."""
    shown = one_line(str(path), 200)
    facts: dict[str, float] = {}
    for number, line in read_lines(path, most=LINES):
        found = re.match(r"# (jobid|nprocs):\s*(\S+)\s*$|total_((?:POSIX|STDIO)_\w+):\s*(\S+)\s*$", line)
        if not found:
            continue
        name, text = found[1] or found[3], found[2] or found[4]
        try:
            value = float(text)
            if not abs(value) <= _MOST:
                raise ValueError
        except ValueError:
            raise InputError(f'{name}: found "{one_line(text, 40)}"; expected a number', where=f"{shown}:{number}") from None
        # Darshan writes -1 where a module has no such counter.
        facts[name] = max(value, 0.0)
    for name in ("jobid", "nprocs"):
        if name not in facts:
            raise InputError(f'found no line "# {name}:"; expected the text of darshan-parser --total', where=shown)
    if not any(name.startswith(_MODULES) for name in facts):
        raise InputError("found no total_POSIX_ and no total_STDIO_ line; expected the text of darshan-parser --total", where=shown)
    if not 1 <= facts["nprocs"] <= 1 << 32 or facts["jobid"] > 1 << 53:
        raise InputError(f"found {facts['nprocs']:g} processes; expected 1 to 2^32 and a job number", where=shown)
    size = sum(facts.get(f"{module}_BYTES_{way}", 0.0) for module in _MODULES for way in ("READ", "WRITTEN"))
    seconds = sum(facts.get(f"{module}_{time}", 0.0) for module in _MODULES for time in _TIMES)
    return int(facts["jobid"]), Moved(size, seconds / facts["nprocs"])
