"""Reads a Darshan log of any kind: binary, or the text of Darshan's parsers, plain or packed."""

from __future__ import annotations

import os
from pathlib import Path

from armillary.errors import InputError, one_line
from armillary.files import read_head

from .binary import read_binary_log
from .header import is_binary
from .log import MOST_RECORDS, MOST_SEGMENTS, Log
from .text import is_text, read_text_log

#: Endings of logs in a folder, and the most logs of one.
SUFFIXES, MOST_LOGS = (".darshan", ".txt", ".gz", ".zst"), 10_000


def logs_of(folder: Path) -> list[Path]:
    """The files of a folder that end like logs, by their names; other files, links and inner folders are passed over."""
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES and not file.is_symlink() and file.is_file())
    except OSError as error:
        raise InputError(f"cannot be listed ({one_line(error.strerror or '', 60)}); expected a folder of logs", where=str(folder)) from None
    if not 1 <= len(files) <= MOST_LOGS:
        raise InputError(f"found {len(files):,} files that end in {', '.join(SUFFIXES)}; expected 1 to {MOST_LOGS:,}", where=str(folder))
    return files


def read_log(path: str | os.PathLike[str], *, most_records: int = MOST_RECORDS, most_segments: int = MOST_SEGMENTS) -> Log:
    """What a Darshan log says: a binary one of version 3.00 to 3.41, or the text of `darshan-parser` and `darshan-dxt-parser`.

    Either may be packed by gzip or Zstandard. A log with more than `most_records` records or `most_segments` traced requests is refused.
    """
    file = Path(path)
    head = read_head(file, 1 << 16)
    if is_text(head):
        return read_text_log(file, most_records=most_records, most_segments=most_segments)
    if not is_binary(head):
        raise InputError("found no Darshan log; expected a .darshan file or the text of darshan-parser", where=str(file))
    return read_binary_log(file, most_records=most_records, most_segments=most_segments)
