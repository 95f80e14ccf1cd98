"""The built-in work: mdtest, an image loader, checkpoints, and a mixture. Every draw comes from the given stream."""

from __future__ import annotations

import numpy as np
from numba import njit

from armillary.errors import InputError, unknown

from .workload import (
    CLIENTS,
    CREATE,
    MKDIR,
    OPEN,
    READDIRPLUS,
    RENAME,
    ROOT,
    SETATTR,
    STAT,
    UNLINK,
    Work,
    numbered_names,
)  # fmt: skip

NAMES = ("mdtest", "loader", "checkpoint", "mixed")
#: Of `mixed`: stat, open, readdirplus, create, unlink, rename, setattr.
SHARES = (0.55, 0.20, 0.10, 0.08, 0.05, 0.01, 0.01)
MIXED_KINDS = (STAT, OPEN, READDIRPLUS, CREATE, UNLINK, RENAME, SETATTR)


def generate(name: str, rng: np.random.Generator, files: int, ops: int) -> Work:
    """A built-in piece of work of about so many files and timed operations."""
    makers = {"mdtest": mdtest, "loader": loader, "checkpoint": checkpoint, "mixed": mixed}
    if name not in makers:
        raise unknown("work", name, makers)
    return makers[name](rng, files, ops)


def mdtest(rng: np.random.Generator, files: int, ops: int = 0, *, depth: int = 4, branch: int = 8) -> Work:
    """mdtest: a tree of directories (`branch`, `depth`), `files` files spread over its directories; create, stat, readdirplus, unlink.

    As `mdtest -z depth -b branch -I files/directories`: each client creates in the directories in turn, and stats another client's files.
    `ops` is not used: there are four phases over all files.
    """
    if not 1 <= branch <= 1000 or not 0 <= depth <= 20 or branch**depth > 10_000_000:
        raise InputError(f"depth {depth}, branch {branch}: expected at most ten million directories")
    parents = [np.array([ROOT])]
    made = [np.zeros(0, np.int64)]
    next_id = ROOT + 1
    dir_rows = []
    for _ in range(depth):
        if len(parents[-1]) * branch > max(16, files // 4):
            break
        up = np.repeat(parents[-1], branch)
        numbers = next_id + np.arange(len(up))
        next_id += len(up)
        dir_rows.append(_rows(MKDIR, up, numbers, numbers))
        parents.append(numbers)
        made.append(numbers)
    directories = np.concatenate(made) if next_id > 2 else np.array([ROOT])
    leaves = directories
    # Client c works on its own slice of directories' files, so that neighbours in time are in different directories.
    home = leaves[np.arange(files) % len(leaves)]
    numbers = next_id + np.arange(files)
    create = _rows(CREATE, home, numbers, numbers)
    shift = rng.permutation(files)
    stat = _rows(STAT, home[shift], numbers[shift], numbers[shift])
    listing = _rows(READDIRPLUS, leaves, np.zeros(len(leaves), np.int64), np.zeros(len(leaves), np.int64))
    order = rng.permutation(files)
    unlink = _rows(UNLINK, home[order], numbers[order], numbers[order])
    load = np.concatenate(dir_rows) if dir_rows else np.zeros((0, 8), np.int64)
    return _work([load, create, stat, listing, unlink], len(load), next_id + files, rng, b"file.mdtest.")


def loader(rng: np.random.Generator, files: int, ops: int) -> Work:
    """An image loader: directories of up to 1281 files, each listed first, then random opens in shuffled epochs."""
    per = min(1281, max(20, files // 50))
    count = max(1, files // per)
    directories = ROOT + 1 + np.arange(count)
    numbers = ROOT + 1 + count + np.arange(count * per)
    home = np.repeat(directories, per)
    # The tree was unpacked by several writers: neighbours in time come from 16 directories.
    stripes = np.argsort(np.tile(np.arange(per), count) + (np.repeat(np.arange(count), per) // 16) * per, kind="stable")
    load = np.concatenate([_rows(MKDIR, np.full(count, ROOT), directories, directories),
                           _rows(CREATE, home[stripes], numbers[stripes], numbers[stripes])])  # fmt: skip
    zeros = np.zeros(count, np.int64)
    parts = [_rows(READDIRPLUS, directories, zeros, zeros)]
    left = ops - count
    while left > 0:
        order = rng.permutation(len(numbers))[:left]
        parts.append(_rows(OPEN, home[order], numbers[order], numbers[order]))
        left -= len(order)
    return _work([load, *parts], len(load), int(numbers[-1]) + 1, rng, b"n0144076_img")


def checkpoint(rng: np.random.Generator, files: int, ops: int) -> Work:
    """Checkpoints: 64 writers × 200 files into a few directories under temporary names, then each renamed; older trees lie around."""
    writers, each = 64, 200
    rounds = max(1, ops // (2 * writers * each))
    if ops < 2 * writers * each:
        each = max(1, ops // (2 * writers))
    base = mixed(rng, files, 0)
    first = base.objects
    directories = first + np.arange(4 * rounds)
    number = first + 4 * rounds
    parts = [_rows(MKDIR, np.full(len(directories), ROOT), directories, directories)]
    for r in range(rounds):
        n = writers * each
        ids = number + np.arange(n)
        number += n
        home = directories[4 * r + (np.arange(n) % writers) % 4]
        parts.append(_rows(CREATE, home, ids, ids))
        final = _rows(RENAME, home, ids, ids)
        final[:, 4], final[:, 5] = home, ids + n * rounds
        parts.append(final)
    return _work([base.ops, *parts], len(base.ops), number + writers * each * rounds, rng, b"ckpt.shard.")


def mixed(rng: np.random.Generator, files: int, ops: int) -> Work:
    """The mixture of a shared file system: directory popularity Zipf 0.9, files within a directory Zipf 0.6.

    Directories hold a log-normal number of files (median 40) below 32 top directories; the tree was made in random order.
    """
    sizes = np.maximum(1, rng.lognormal(np.log(40), 1.0, max(4, files // 60))).astype(np.int64)
    sizes = np.maximum(1, sizes * files // sizes.sum())
    count, tops = len(sizes), min(32, max(1, len(sizes) // 4))
    top = ROOT + 1 + np.arange(tops)
    directories = ROOT + 1 + tops + np.arange(count)
    load = [_rows(MKDIR, np.full(tops, ROOT), top, top), _rows(MKDIR, top[np.arange(count) % tops], directories, directories)]
    total = int(sizes.sum())
    numbers = ROOT + 1 + tops + count + np.arange(total)
    home = np.repeat(np.arange(count), sizes)
    order = rng.permutation(total)
    load.append(_rows(CREATE, directories[home[order]], numbers[order], numbers[order]))
    loaded = np.concatenate(load)
    if not ops:
        return _work([loaded], len(loaded), int(numbers[-1]) + 1, rng, b"file.")
    popularity = (1 + np.arange(count)) ** -0.9
    chosen = rng.permutation(count)[np.searchsorted(np.cumsum(popularity) / popularity.sum(), rng.random(ops)).clip(0, count - 1)]
    kinds = rng.choice(np.array(MIXED_KINDS), size=ops, p=SHARES)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    room = sizes + 2 * np.bincount(chosen, minlength=count)  # creates, and what renames bring
    slots = np.concatenate([[0], np.cumsum(room)])
    alive = np.zeros(slots[-1], np.int64)
    for i in range(count):
        alive[slots[i] : slots[i] + sizes[i]] = numbers[starts[i] : starts[i] + sizes[i]]
    out = np.zeros((ops, 8), np.int64)
    end = _mix(kinds, chosen, rng.random(ops), directories, slots, sizes.copy(), alive, int(numbers[-1]) + 1, out)
    return _work([loaded, out], len(loaded), int(end), rng, b"file.")


@njit(nogil=True, cache=True)
def _mix(kinds, chosen, draws, directories, slots, sizes, alive, number, out):
    # alive[slots[d] : slots[d] + sizes[d]] are the files of directory d, the popular first; a name's number is its object's, or a fresh
    # one.
    name_of = np.arange(number + 2 * len(kinds) + 1)
    fresh = number
    for i in range(len(kinds)):
        d, kind = chosen[i], kinds[i]
        if sizes[d] == 0 and kind != READDIRPLUS:
            kind = CREATE
        rank = min(sizes[d] - 1, np.int64(sizes[d] * draws[i] ** 2.5))
        out[i, 0] = kind
        out[i, 1] = directories[d]
        if kind == READDIRPLUS:
            continue
        at = slots[d] + rank
        if kind == CREATE:
            at = slots[d] + sizes[d]
            sizes[d] += 1
            alive[at] = fresh
            fresh += 1
        o = alive[at]
        out[i, 2] = name_of[o]
        out[i, 3] = o
        if kind == UNLINK:
            sizes[d] -= 1
            alive[at] = alive[slots[d] + sizes[d]]
        elif kind == RENAME:
            name_of[o] = fresh
            fresh += 1
            out[i, 4] = directories[d]
            out[i, 5] = name_of[o]
            # Half of the renames go to a directory that is busy at the time.
            to = chosen[i - 1] if i > 0 and draws[i] < 0.5 else d
            if to != d and slots[to] + sizes[to] < slots[to + 1]:
                sizes[d] -= 1
                alive[at] = alive[slots[d] + sizes[d]]
                alive[slots[to] + sizes[to]] = o
                sizes[to] += 1
                out[i, 4] = directories[to]
    return fresh


def _rows(kind: int, directory: np.ndarray, name: np.ndarray, number: np.ndarray) -> np.ndarray:
    rows = np.zeros((len(directory), 8), np.int64)
    rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3] = kind, directory, name, number
    return rows


def _work(parts: list[np.ndarray], loaded: int, names: int, rng: np.random.Generator, stem: bytes) -> Work:
    ops = np.concatenate(parts)
    # Name 0 is the empty one; object o is called by number o.
    text, offsets = numbered_names(names, stem)
    ops[:, 6] = rng.integers(0, CLIENTS, len(ops))
    attributes = np.zeros((1024, 7), np.int64)
    attributes[:, 0] = 0o100644
    attributes[:, 3] = rng.lognormal(10, 2, 1024).astype(np.int64)
    attributes[:, 4:] = 1_700_000_000_000_000_000 + rng.integers(0, 10**15, 1024)[:, None]
    ops[:, 7] = rng.integers(0, 1024, len(ops))
    return Work(ops, text, offsets, attributes, loaded)
