"""Trees of files, from the output of `find -printf` or from a folder, for which operations are drawn."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import line_blocks
from armillary.workloads import draw

from ..workload import CREATE, MKDIR, OPEN, READDIRPLUS, SETATTR, STAT, UNLINK, Work, WorkBuilder
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


def with_mixture(tree: Iterable[Entry], ops: int, label: str) -> Work:
    """Loads a tree, then does `ops` operations of the mixture on it; directories are popular by Zipf 0.9, files by Zipf 0.6."""
    builder = WorkBuilder()
    paths = Paths(builder)
    files: dict[int, list[bytes]] = {}
    client = 0
    for path, is_directory, size, mode, mtime, where in tree:
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
        client += 1
        builder.add(MKDIR if is_directory else CREATE, home, names[-1], mode=mode, size=size, mtime=mtime, client=client)
        if not is_directory:
            files.setdefault(home, []).append(names[-1])
    if not files:
        raise InputError("found no files; expected a tree with some", where=label)
    builder.load_ends()
    rng = np.random.default_rng(20250902)
    homes = list(files)
    weights = (1 + np.arange(len(homes))) ** -0.9
    chosen = rng.permutation(len(homes))[draw(rng, np.cumsum(weights) / weights.sum(), ops, side="left")]
    kinds = rng.choice([STAT, OPEN, READDIRPLUS, CREATE, UNLINK, SETATTR], size=ops, p=[0.55, 0.2, 0.1, 0.08, 0.05, 0.02])
    draws = rng.random(ops)
    for i, (d, kind, u) in enumerate(zip(chosen.tolist(), kinds.tolist(), draws.tolist(), strict=True)):
        home = homes[d]
        names = files[home]
        if kind == READDIRPLUS:
            builder.add(kind, home, client=i)
            continue
        if kind == CREATE or not names:
            names.append(b"new.%08d" % i)
            builder.add(CREATE, home, names[-1], client=i)
            continue
        k = min(len(names) - 1, int(len(names) * u**2.5))
        builder.add(kind, home, names[k], client=i)
        if kind == UNLINK:
            names[k] = names[-1]
            names.pop()
    return builder.build(label)
