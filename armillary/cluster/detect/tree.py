"""The files of one machine: its own /sys and /proc, or a copy of them made elsewhere.

Detection reads everything through a `Tree`, so a copied tree is as good as the machine that it came from. A file that is missing,
unreadable, too long or not text counts as absent, because virtual machines and containers leave out most files.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from typing import Any

from armillary.errors import one_line

#: The most bytes read from one file; /proc/cpuinfo of a machine with 1,024 hardware threads has about 1.5 MB.
MOST_BYTES = 8 << 20
#: The most entries read in one folder.
MOST_NAMES = 65_536


class Tree:
    """Reads files below `root`; nothing outside it is ever opened, wherever links lead.

    Paths are written as on the machine itself ("/sys/class/net"). `live` is true for the running machine; only then are libraries, affinity
    and environment consulted.
    """

    def __init__(self, root: str | os.PathLike[str] = "/") -> None:
        self.root = os.path.realpath(root)
        self.live = self.root == "/"
        #: The number of files opened so far, so that a test can count what detection costs.
        self.reads = 0
        # The real places of folders in a copied tree, because following the links of every path again would cost more than reading.
        self._folders: dict[str, str] = {}

    def _inside(self, path: str) -> str | None:
        if self.live:
            return path
        folder, _, name = path.rstrip("/").rpartition("/")
        place = self._followed(folder, name)
        return place if place == self.root or place.startswith(self.root + os.sep) else None

    def _followed(self, folder: str, name: str) -> str:
        """The real place of a name in a folder, after following all links."""
        if folder and folder not in self._folders:
            self._folders[folder] = self._followed(*folder.rpartition("/")[::2])
        place = f"{self._folders[folder] if folder else self.root}/{name}"
        return os.path.realpath(place) if name in ("", ".", "..") or os.path.islink(place) else place

    def raw(self, path: str, most: int = MOST_BYTES) -> bytes | None:
        """The first `most` bytes of a file, or None if it is not a plain, readable file."""
        place = self._inside(path)
        if place is None:
            return None
        self.reads += 1
        try:
            handle = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError):
            return None
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            parts = []
            while most > 0 and (part := os.read(handle, min(most, 1 << 16))):
                parts.append(part)
                most -= len(part)
            return b"".join(parts)
        except OSError:  # a sysfs attribute may refuse the read itself, for example `speed` of an interface that is down
            return None
        finally:
            os.close(handle)

    def text(self, path: str) -> str | None:
        """The file as text without surrounding blanks and zero bytes, or None if absent or empty."""
        found = self.raw(path)
        return found.decode("utf-8", "replace").strip(" \t\r\n\0") or None if found else None

    def number(self, path: str) -> int | None:
        """The whole number in the file, decimal or 0x…, or None for anything else."""
        return whole(self.text(path))

    def names(self, path: str) -> list[str]:
        """The names in a folder, in natural order (cpu2 before cpu10)."""
        place = self._inside(path)
        if place is None:
            return []
        try:
            with os.scandir(place) as entries:
                found = [entry.name for entry, _ in zip(entries, range(MOST_NAMES))]
        except (OSError, ValueError):
            return []
        return sorted(found, key=natural)

    def real(self, path: str) -> str | None:
        """The target of a link as a path of the tree, or None if there is nothing."""
        place = os.path.realpath(path) if self.live else self._inside(path)
        if place is None or not os.path.lexists(place):
            return None
        return place if self.live else place[len(self.root) :] or "/"

    def exists(self, path: str) -> bool:
        """Whether a file or folder of this name exists."""
        place = self._inside(path)
        return place is not None and os.path.exists(place)


@dataclass
class Facts:
    """The facts that were found and their sources, in order."""

    found: list[dict[str, Any]] = field(default_factory=list)

    def add(self, key: str, value: str | int | float | bool | None, source: str) -> None:
        """Keeps one fact, unless its value is absent."""
        if value is not None:
            kept = one_line(value, 200) if isinstance(value, str) else value
            self.found.append({"key": key, "value": kept, "source": one_line(source, 200)})

    def value(self, key: str) -> Any:
        """The first value kept under `key`, or None."""
        return next((fact["value"] for fact in self.found if fact["key"] == key), None)


def label(text: str) -> str:
    """A name in the form that a description allows: one line of at most 100 characters."""
    return one_line(text.strip(), 100) or "unnamed"


def natural(name: str) -> list[tuple[int, str]]:
    """A sorting key that puts 2 before 10."""
    return [(int(part[:18]), "") if part.isdecimal() and part.isascii() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def whole(text: str | None) -> int | None:
    """A whole number of at most 20 characters, decimal or 0x…; None for anything else."""
    if text is None or len(text) > 20:
        return None
    if re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    return int(text, 16) if re.fullmatch(r"0[xX][0-9a-fA-F]+", text) else None


def numbered(name: str, prefix: str) -> int | None:
    """The number in a name such as "cpu12"; None for another name."""
    rest = name[len(prefix) :]
    return int(rest) if name.startswith(prefix) and rest.isascii() and rest.isdecimal() and len(rest) < 7 else None


def cpu_list(text: str | None, most: int = 16_384) -> tuple[int, ...] | None:
    """The numbers of a kernel list such as "0-3,8,10-14:2/4", in ascending order; None if it is malformed or
    names a number above `most`.
    """
    if text is None or len(text) > 1 << 20:
        return None
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,7})(?:-([0-9]{1,7})(?::([0-9]{1,7})/([0-9]{1,7}))?)?\s*", part)
        if not match:
            return None
        low, high = int(match[1]), int(match[2] or match[1])
        used, period = int(match[3] or 1), int(match[4] or 1)
        if high > most or high < low or not 0 < used <= period:
            return None
        found.update(n for n in range(low, high + 1) if (n - low) % period < used)
    return tuple(sorted(found))
