"""What a directory holds, as contents of versions, and which paths may be used.

A path is text with undecodable bytes as surrogates (PEP 383), separated by "/", relative to the root; on disk and in the database it is
bytes.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from armillary.errors import InputError, one_line

from ..replicas.versions import Version, version
from ..world.schedule import check_path

Kind = Literal["file", "dir", "link"]
KINDS: tuple[Kind, ...] = ("file", "dir", "link")
#: Permission bits that travel; set-user-id, set-group-id and sticky bits stay where they are.
MODE = 0o777
HASH_BYTES = 32
#: Linux's limits in bytes.
NAME_BYTES, PATH_BYTES = 255, 4095
#: A time stamp of a file may lie this far behind the clock that stamps it, ns; two seconds where stamps are whole seconds.
GRAIN_NS, COARSE_GRAIN_NS = 20_000_000, 2_000_000_000


@dataclass(frozen=True)
class Entry:
    """A file (`data` is BLAKE2b-256 of its bytes), a symbolic link (`data` is its target) or a directory (`data` is empty)."""

    kind: Kind
    mode: int
    size: int
    data: str

    def alike(self, other: Entry) -> bool:
        """Returns whether both hold the same, permissions aside."""
        return self.kind == other.kind and self.data == other.data


class Stat(NamedTuple):
    """What tells that a file was touched since: its bytes, two time stamps in ns, and its number."""

    size: int
    mtime: int
    ctime: int
    ino: int


def signature(found: os.stat_result) -> Stat:
    """Returns the signature of a file from its `lstat`."""
    return Stat(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def is_racy(found: Stat, stamp_ns: int) -> bool:
    """Returns whether the file is as young as the clock at `stamp_ns`, so that it could change under the same time stamp (git's rule)."""
    grain = GRAIN_NS if found.mtime % 1_000_000_000 else COARSE_GRAIN_NS
    return found.mtime >= stamp_ns - grain


def kind_of(mode: int) -> Kind | None:
    """Returns the kind that `st_mode` says; None for devices, pipes and sockets, which are not synchronised."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "link" if stat.S_ISLNK(mode) else None


def entry(of: Version) -> Entry | None:
    """Returns what a version of a directory holds, or None if it is deleted."""
    return cast("Entry | None", of.content)


def kind(of: Version | None) -> Kind | None:
    """Returns which sort of thing a version shows, or None if it shows nothing."""
    holds = None if of is None else entry(of)
    return None if holds is None else holds.kind


def entry_version(parents: tuple[str, ...], file: str, path: str, holds: Entry | None, group: str = "") -> Version:
    """Returns a version with its id; the same fields give the same id everywhere."""
    return version(parents, file, path, cast(Any, holds), group, ())


def raw(path: str) -> bytes:
    """Returns the bytes of a path or target."""
    return path.encode("utf-8", "surrogateescape")


def text(path: bytes) -> str:
    """Returns the text of a path or target."""
    return path.decode("utf-8", "surrogateescape")


def above(path: str) -> list[str]:
    """Returns the directories that a path lies in, the outermost first."""
    return [path[:k] for k, c in enumerate(path) if c == "/"]


def check_entry_path(path: str, state: str, where: str) -> None:
    """Raises InputError unless `path` stays below the root and outside the state folder, and the file system can hold it."""
    check_path(path, where)
    parts = raw(path).split(b"/")
    if len(raw(path)) > PATH_BYTES or max(map(len, parts)) > NAME_BYTES:
        raise InputError(f'path: found "{one_line(path, 60)}"; expected names up to {NAME_BYTES} bytes, {PATH_BYTES} in all', where=where)
    if state and parts[0] == raw(state):
        raise InputError(f'path: found "{one_line(path, 60)}"; expected nothing in the state folder', where=where)


def conflict_name(path: str, id: str, digits: int = 8) -> str:
    """Returns the name under which a second head is shown: `name~conflict-<id>`, cut to what a file system holds."""
    folder, _, name = path.rpartition("/")
    tail = f"~conflict-{id[:digits]}"
    name = text(raw(name)[: NAME_BYTES - len(tail)]) + tail
    return f"{folder}/{name}" if folder else name


def content_hash() -> hashlib.blake2b:
    """Returns a new hash of contents, to be fed."""
    return hashlib.blake2b(digest_size=HASH_BYTES)
