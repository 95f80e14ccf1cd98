"""The daily files of a log: dated CSV in a folder, plain or packed, or in zip archives such as those of a quarter.

A member of an archive is copied to a temporary file before it is read, and its size is bounded by its packed size. What macOS adds to
archives (`__MACOSX/._2019-01-01.csv`) is passed over.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from armillary.errors import InputError, one_line
from armillary.files import column_names, open_file
from armillary.files.opening import FREE_BYTES, RATIO

#: Bytes of one day in an archive, members of an archive, and files of a log.
MEMBER_BYTES, MEMBERS, MOST_FILES = 1 << 32, 10_000, 40_000
_DATED = re.compile(r"(\d{4})(-?)(\d\d)\2(\d\d)\.csv(?:\.gz|\.zst)?", re.IGNORECASE)
_FAULTS = (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError, NotImplementedError, OverflowError)


@dataclass(frozen=True)
class Day:
    """One dated file: a path of its own, or a member of an archive."""

    date: date
    path: Path
    member: str = ""

    @property
    def shown(self) -> str:
        """Its name in messages."""
        return f"{self.path}/{self.member}" if self.member else str(self.path)

    @contextlib.contextmanager
    def file(self) -> Iterator[Path]:
        """A file to read it from; whatever is wrong with a copy is said of the archive."""
        if not self.member:
            yield self.path
            return
        with tempfile.NamedTemporaryFile(prefix="armillary-", suffix=".csv") as copy:
            with _archive(self.path) as archive, archive.open(self.member) as source:
                while piece := source.read(1 << 20):
                    copy.write(piece)
            copy.flush()
            try:
                yield Path(copy.name)
            except InputError as error:
                raise InputError(error.message, where=(error.where or "").replace(copy.name, self.shown) or None) from None

    def columns(self) -> list[str]:
        """The names of its columns."""
        if not self.member:
            return column_names(self.path)
        with _archive(self.path) as archive, archive.open(self.member) as source:
            line = source.readline(1 << 20).decode("utf-8", "replace")
        return [name.strip().strip('"') for name in line.removeprefix("\ufeff").strip().split(",")]


def days(path: Path) -> list[Day]:
    """The dated files of a folder, of the archives in it, or of one archive, in the order of their dates."""
    found: list[Day] = []
    if path.is_dir():
        for number, name in enumerate(_files(path)):
            if number > MOST_FILES:
                raise InputError(f"found more than {MOST_FILES:,} files; expected fewer", where=str(path))
            if name.suffix.lower() == ".zip":
                found += _members(name)
            elif (day := _dated(name.name, str(name))) is not None:
                found.append(Day(day, name))
    elif path.suffix.lower() == ".zip":
        found = _members(path)
    elif (day := _dated(path.name, str(path))) is not None:
        found = [Day(day, path)]
    if not found:
        raise InputError("found no file named by its date; expected 20180103.csv or 2018-01-03.csv", where=str(path))
    found.sort(key=lambda one: one.date)
    for one, other in itertools.pairwise(found):
        if one.date == other.date:
            raise InputError(f"found {one.date} again, in {one_line(one.shown, 120)} too; expected one file per day", where=other.shown)
    return found


def _files(folder: Path) -> Iterator[Path]:
    """All files below a folder but those that links lead to, in the order of their names."""
    for base, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if not name.startswith("._") and (path := Path(base, name)).is_file():
                yield path


def _dated(name: str, where: str) -> date | None:
    found = _DATED.fullmatch(name)
    if found is None:
        return None
    try:
        return date(int(found[1]), int(found[3]), int(found[4]))
    except ValueError:
        raise InputError("found a date that does not exist in the file's name; expected one such as 2018-01-03", where=where) from None


def _members(path: Path) -> list[Day]:
    found = []
    with _archive(path) as archive:
        entries = archive.infolist()
        if len(entries) > MEMBERS:
            raise InputError(f"found {len(entries):,} files inside; expected at most {MEMBERS:,}", where=str(path))
        for entry in entries:
            folder, _, name = entry.filename.rpartition("/")
            if name.startswith("._") or "__MACOSX" in folder.split("/"):
                continue
            where = f"{path}/{one_line(entry.filename, 120)}"
            day = _dated(name, where)
            if day is None:
                continue
            if not name.lower().endswith(".csv"):
                raise InputError("found a packed file within an archive; expected CSV", where=where)
            if entry.flag_bits & 1:
                raise InputError("found an encrypted file; expected a plain one", where=where)
            if entry.file_size > MEMBER_BYTES:
                raise InputError(f"found {entry.file_size:,} bytes; expected at most {MEMBER_BYTES:,}", where=where)
            if entry.file_size - FREE_BYTES > RATIO * entry.compress_size:
                raise InputError(f"found bytes that unpack to more than {RATIO} times as many; expected fewer", where=where)
            found.append(Day(day, path, entry.filename))
    return found


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with open_file(path, limit=None, unpack=False) as file, zipfile.ZipFile(file) as archive:
            yield archive
    except InputError:
        raise
    except (*_FAULTS, KeyError) as error:
        raise InputError(f"cannot be read as a zip archive ({one_line(str(error), 100)})", where=str(path)) from None
