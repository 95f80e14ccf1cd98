"""Trees of files, from the output of `find -printf` or from a folder, for which operations are drawn."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import line_blocks

from ..workload import ATTRIBUTES, CLIENT, CLIENTS, CREATE, MKDIR, NAME, OBJECT, Work, WorkBuilder, mixture, numbered_names
from .paths import Paths

#: (path, whether it is a directory, bytes, mode, modification time in ns, where it was found).
Entry = tuple[bytes, bool, int, int, int, str]


def read_find(path: Path) -> Iterator[Entry]:
    """Yields the entries in the output of `find ROOT -printf '%y\\t%p\\t%s\\t%m\\t%T@\\n'`."""
    for block, first in line_blocks(path, limit=None):
        for number, line in enumerate(block.split(b"\n")[:-1], first):
            where = f"{path}:{number}"
            if not line.strip(b"\r"):
                continue
            # A name may hold tabs, so the path is what the other four fields leave.
            fields = line.rstrip(b"\r").split(b"\t")
            if len(fields) < 5:
                raise InputError(f"found {len(fields) - 1} tabs; expected 4 (type, path, size, mode, time)", where=where)
            kind, name = fields[0], b"\t".join(fields[1:-3])
            if len(kind) != 1 or kind not in b"fdlpscbD":
                shown = one_line(kind.decode(errors="replace"), 20)
                raise InputError(f'found type "{shown}"; expected one letter of fdlpscbD', where=where)
            size, mode, when = (text.decode("ascii", errors="replace") for text in fields[-3:])
            if not size.isdecimal() or len(size) > 18:
                raise InputError(f'size: found "{one_line(size, 40)}"; expected bytes', where=where)
            try:
                bits, seconds = int(mode, 8), float(when)
            except ValueError:
                bits, seconds = -1, math.nan
            if not 0 <= bits < 2**32 or not abs(seconds) <= 1e11:
                shown = f'mode "{one_line(mode, 20)}" and time "{one_line(when, 40)}"'
                raise InputError(f"found {shown}; expected octal and seconds", where=where)
            yield name, kind == b"d", int(size), bits, int(seconds * 1e9), where


def scanned(root: Path) -> Iterator[Entry]:
    """Yields the entries below a folder; links are not followed, and what cannot be read is left out."""
    todo = [os.fsencode(root)]
    while todo:
        folder = todo.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda e: e.name)
        except OSError:
            continue
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
                is_directory = entry.is_dir(follow_symlinks=False)
            except OSError:
                continue
            path = os.path.relpath(entry.path, os.fsencode(root))
            yield path, is_directory, found.st_size, found.st_mode, found.st_mtime_ns, os.fsdecode(entry.path)
            if is_directory:
                todo.append(entry.path)


@dataclass(frozen=True)
class Tree:
    """A tree that was read: the operations that build it, and the files of each directory, on which operations are drawn.

    An object's name has the object's number in the table of names (`text`, `offsets`).
    """

    load: np.ndarray
    text: np.ndarray
    offsets: np.ndarray
    attributes: np.ndarray
    #: Directories with files, how many each has, and the files' numbers, directory by directory.
    directories: np.ndarray
    sizes: np.ndarray
    numbers: np.ndarray
    label: str = field(default="", compare=False)

    def work(self, rng: np.random.Generator, ops: int) -> Work:
        """Returns the work that loads the tree and then does `ops` operations of the mixture."""
        fresh = len(self.offsets) - 1
        timed, end = mixture(rng, ops, self.directories, self.sizes, self.numbers, fresh)
        timed[:, CLIENT] = rng.integers(0, CLIENTS, ops)
        timed[:, ATTRIBUTES] = rng.integers(0, len(self.attributes), ops)
        # The first of the numbered names is the empty one.
        text, offsets = numbered_names(end - fresh, b"new.")
        names = np.concatenate([self.text[: self.offsets[-1]], text])
        places = np.concatenate([self.offsets, self.offsets[-1] + offsets[2:]])
        return Work(np.concatenate([self.load, timed]), names, places, self.attributes, len(self.load), label=self.label)


def load_tree(entries: Iterable[Entry], label: str) -> Tree:
    """Makes a tree of what `read_find` or `scanned` yields."""
    builder = WorkBuilder()
    paths = Paths(builder)
    files: dict[int, list[int]] = {}
    for client, (path, is_directory, size, mode, mtime, where) in enumerate(entries):
        names = paths.parts(path, where)
        if not names:
            continue
        home = paths.resolve(names[:-1], make=True)
        if home is None:
            raise InputError("found a file where the path has a directory", where=where)
        known = builder.find(home, names[-1])
        if known is not None:
            if is_directory and builder.is_directory(known):
                continue
            raise InputError("found the path twice", where=where)
        number = builder.add(MKDIR if is_directory else CREATE, home, names[-1], mode=mode, size=size, mtime=mtime, client=client)
        if not is_directory:
            files.setdefault(home, []).append(number)
    if not files:
        raise InputError("found no files; expected a tree with some", where=label)
    work = builder.build(label)
    # Names are numbered anew by their objects; object 0 does not exist, and the root has no name.
    named = np.zeros(work.objects, np.int64)
    named[work.ops[:, OBJECT]] = work.ops[:, NAME]
    lengths = np.diff(work.offsets)[named]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    text = work.text[np.repeat(work.offsets[named], lengths) + within]
    load = work.ops.copy()
    load[:, NAME] = load[:, OBJECT]
    sizes = np.array([len(numbers) for numbers in files.values()])
    return Tree(load, text, offsets, work.attributes, np.array(list(files)), sizes, np.concatenate(list(files.values())), label)
