"""Writes a log as the text of `darshan-parser` 3.5, and its traced requests as that of `darshan-dxt-parser`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .log import Log, Module
from .modules import is_float

VERSION = "3.41"
_TRACED = {"DXT_POSIX": "X_POSIX", "DXT_MPIIO": "X_MPIIO"}


def write_text_log(log: Log, path: Path) -> None:
    """Writes a log as text, counters first and then the traced requests, in UTF-8."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for line in text_lines(log):
            file.write(line + "\n")


def text_lines(log: Log) -> Iterator[str]:
    """The lines of `write_text_log`."""
    yield f"# darshan log version: {VERSION}"
    yield "# compression method: ZLIB"
    yield f"# exe: {log.executable}"
    yield "# uid: 1000"
    yield f"# jobid: {log.job or 0}"
    yield f"# start_time: {log.start_time_s}"
    yield f"# nprocs: {log.processes}"
    yield f"# run time: {log.run_time_s:.4f}"
    for key, value in log.metadata.items():
        yield f"# metadata: {key} = {value}"
    yield ""
    for name, module in log.modules.items():
        yield f"# {name} module: 0 bytes (compressed), ver={module.version}"
    for place, kind in log.mounts:
        yield f"# mount entry:\t{place}\t{kind}"
    for name in log.partial:
        yield f"# *WARNING*: The {name} module contains incomplete data!"
    yield ""
    yield "#<module>\t<rank>\t<record id>\t<counter>\t<value>\t<file name>\t<mount pt>\t<fs type>"
    for module in log.modules.values():
        yield from _module(log, module)
    yield from _stripes(log)
    yield from _requests(log)


def _tail(log: Log, number: int) -> str:
    name = log.file(number)
    place, kind = log.mount_of(name)
    return f"{name}\t{place}\t{kind}"


def _module(log: Log, module: Module) -> Iterator[str]:
    counters = [(name, is_float(name), values.tolist()) for name, values in module.counters.items()]
    for row, (number, rank) in enumerate(zip(module.ids.tolist(), module.ranks.tolist())):
        head, tail = f"{module.name}\t{rank}\t{number}\t", _tail(log, number)
        for name, real, values in counters:
            value = f"{values[row]:.6f}" if real else str(values[row])
            yield f"{head}{name}\t{value}\t{tail}"


def _stripes(log: Log) -> Iterator[str]:
    stripes = log.stripes
    if stripes is None:
        return
    for row in range(len(stripes)):
        number = int(stripes.ids[row])
        head, tail, i = f"LUSTRE\t{int(stripes.ranks[row])}\t{number}\t", _tail(log, number), int(stripes.component[row])
        yield f"{head}LUSTRE_COMP{i}_STRIPE_SIZE\t{int(stripes.size[row])}\t{tail}"
        yield f"{head}LUSTRE_COMP{i}_STRIPE_COUNT\t{int(stripes.count[row])}\t{tail}"
        yield f"{head}LUSTRE_COMP{i}_STRIPE_PATTERN\traid0\t{tail}"
        for place, ost in enumerate(stripes.of(row).tolist()):
            yield f"{head}LUSTRE_COMP{i}_OST_ID_{place}\t{ost}\t{tail}"


def _requests(log: Log) -> Iterator[str]:
    for name, part in log.segments.items():
        last = None
        counts: dict[bool, int] = {}
        columns = (part.ids, part.ranks, part.wrote, part.offset, part.length, part.start_s, part.end_s)
        for number, rank, wrote, offset, length, start, end in zip(*(column.tolist() for column in columns)):
            if (number, rank) != last:
                last, counts = (number, rank), {True: 0, False: 0}
                mine = (part.ids == number) & (part.ranks == rank)
                yield f"# DXT, file_id: {number}, file_name: {log.file(number)}"
                yield f"# DXT, rank: {rank}, hostname: n0"
                yield f"# DXT, write_count: {int(part.wrote[mine].sum())}, read_count: {int((~part.wrote[mine]).sum())}"
                place, kind = log.mount_of(log.file(number))
                yield f"# DXT, mnt_pt: {place}, fs_type: {kind}"
                yield "# Module    Rank  Wt/Rd  Segment          Offset       Length    Start(s)      End(s)"
            word = "write" if wrote else "read"
            yield f" {_TRACED[name]} {rank:7d} {word:>6} {counts[wrote]:8d} {offset:15d} {length:12d} {start:11.4f} {end:11.4f}"
            counts[wrote] += 1
