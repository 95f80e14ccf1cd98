"""Faults of I/O programs, each as the phases that have it and the phases of the same work without it.

The difference of their times on the model is what the fault costs. A fault names its labels, and those that it brings about by itself
(a file on one target has one busy rank), which are neither asked of a technique nor held against it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..counters.requests import OPEN, STAT, SYNC
from .program import MIB, Calls, Phase, Program, metadata, requests

KIB = 1 << 10
#: Requests of one phase in all, so that a log of 4,096 ranks is made in seconds.
MOST_REQUESTS = 20_000


@dataclass(frozen=True)
class Fault:
    """One fault of a program: phases with it and without it, its labels, what it brings about, and the labels that name its cause."""

    name: str
    flawed: tuple[Phase, ...]
    repaired: tuple[Phase, ...]
    labels: frozenset[str]
    brings: frozenset[str] = frozenset()
    causes: frozenset[str] = frozenset()
    #: Targets as they are when the fault is repaired.
    heals: bool = False


def _pick(rng: np.random.Generator, values: Any) -> int:
    return int(rng.choice(np.asarray(values)))


def _count(rng: np.random.Generator, low: int, high: int, ranks: int, scale: float) -> int:
    """Requests per rank: drawn between low and high, scaled, and bounded over all ranks."""
    drawn = float(np.exp(rng.uniform(np.log(low), np.log(high))))
    return int(np.clip(round(drawn * scale), 4, max(4, MOST_REQUESTS // ranks)))


def _own_files(program: Program, name: str, ranks: range, home: bool = False) -> list[int]:
    """A file for each rank, spread over the targets."""
    place, stripe = ("/home/user", 4096) if home else ("/scratch/run", MIB)
    targets = program.targets
    return [program.add(f"{place}/{name}.{rank:05d}", (rank % targets,), MIB, stripe) for rank in ranks]


def small(program: Program, rng: np.random.Generator, scale: float, wrote: bool) -> Fault:
    """Requests of a few KiB, one behind the other, to a file per rank."""
    ranks = range(min(program.processes, 8 * program.targets))
    home = bool(rng.random() < 0.5)
    files = _own_files(program, "small", ranks, home)
    size, count = _pick(rng, [4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB]), _count(rng, 200, 2000, len(ranks), scale)
    direction = "write" if wrote else "read"
    starts = [0] * len(ranks)
    large = max(1, count * size // (4 * MIB))
    flawed = requests(ranks, files, wrote, starts, count, size)
    repaired = requests(ranks, files, wrote, starts, large, max(1, count * size // large))
    brings = frozenset() if home else frozenset({f"misaligned-{direction}"})
    return Fault(f"small-{direction}", (flawed,), (repaired,), frozenset({f"small-{direction}"}), brings)


def misaligned(program: Program, rng: np.random.Generator, scale: float, wrote: bool) -> Fault:
    """Requests a little larger than a stripe to a file that all ranks share, so that none begins where a stripe does."""
    ranks = range(min(program.processes, 8 * program.targets))
    stripe = MIB
    file = program.add("/scratch/run/shifted.dat", range(program.targets), stripe)
    size = stripe + _pick(rng, [4, 20, 36, 68, 100, 132]) * KIB
    count = _count(rng, 40, 400, len(ranks), scale)
    span = -(-count * size // stripe) * stripe
    shift = _pick(rng, [512, 2048, 5000, 40_000])
    calls = (Calls(file, len(ranks), wrote, min(count, 4), count * size // min(count, 4), True),)
    flawed = requests(ranks, [file] * len(ranks), wrote, [rank * (span + stripe) + shift for rank in ranks], count, size, calls=calls)
    whole = max(1, count * size // stripe)
    repaired = requests(ranks, [file] * len(ranks), wrote, [rank * (span + stripe) for rank in ranks], whole, stripe, calls=calls)
    direction = "write" if wrote else "read"
    return Fault(f"misaligned-{direction}", (flawed,), (repaired,), frozenset({f"misaligned-{direction}"}), frozenset({"shared-file"}))


def random_order(program: Program, rng: np.random.Generator, scale: float, wrote: bool) -> Fault:
    """Large aligned requests in random order to a file per rank."""
    ranks = range(min(program.processes, 8 * program.targets))
    files = _own_files(program, "random", ranks)
    size, count = _pick(rng, [2, 3, 4]) * MIB, _count(rng, 40, 400, len(ranks), scale)
    starts = [0] * len(ranks)
    flawed = requests(ranks, files, wrote, starts, count, size, order=rng.permutation(count))
    repaired = requests(ranks, files, wrote, starts, count, size)
    return Fault("random", (flawed,), (repaired,), frozenset({f"random-{'write' if wrote else 'read'}"}))


def repeated(program: Program, rng: np.random.Generator, scale: float) -> Fault:
    """Every rank reads its file from begin to end several times."""
    ranks = range(min(program.processes, 8 * program.targets))
    files = _own_files(program, "input", ranks)
    times, count = _pick(rng, [3, 4, 6, 8]), _count(rng, 10, 100, len(ranks), scale)
    starts = [0] * len(ranks)
    flawed = requests(ranks, files, False, starts, count, 4 * MIB, order=np.tile(np.arange(count), times))
    repaired = requests(ranks, files, False, starts, count, 4 * MIB)
    return Fault("repeated-read", (flawed,), (repaired,), frozenset({"repeated-read"}))


def shared(program: Program, rng: np.random.Generator, scale: float, collective: bool, wrote: bool = True) -> Fault:
    """All ranks move interleaved blocks of one file: in collective calls that nobody aggregates, or in calls of their own."""
    ranks = range(program.processes)
    size = _pick(rng, [2, 3, 4]) * MIB
    count = _count(rng, 10, 100, len(ranks), scale)
    width = max(1, min(program.targets, program.processes // 16))
    file = program.add("/scratch/run/shared.dat", range(width), MIB)
    starts = [rank * size for rank in ranks]
    calls = (Calls(file, len(ranks), wrote, count, size, collective),)
    flawed = requests(ranks, [file] * len(ranks), wrote, starts, count, size, step=size * len(ranks), calls=calls)
    few = range(min(program.processes, width))
    block = 16 * MIB
    each = max(1, count * size * len(ranks) // (block * len(few)))
    calls = (Calls(file, len(ranks), wrote, count, size, True),)
    repaired = requests(few, [file] * len(few), wrote, [rank * block for rank in few], each, block, step=block * len(few), calls=calls)
    if collective:
        return Fault("shared-file", (flawed,), (repaired,), frozenset({"shared-file"}))
    label = f"no-collective-{'write' if wrote else 'read'}"
    return Fault(label, (flawed,), (repaired,), frozenset({label}), frozenset({"shared-file"}))


def one_rank(program: Program, rng: np.random.Generator, scale: float) -> Fault:
    """One rank writes nearly everything; the others wait for it."""
    ranks = range(min(program.processes, 8 * program.targets))
    files = _own_files(program, "part", ranks)
    count = _count(rng, 60, 400, 1, scale)
    little = max(1, count // _pick(rng, [20, 40]))
    heavy = requests([0], [files[0]], True, [0], count, 8 * MIB)
    light = requests(ranks[1:], files[1:], True, [0] * (len(ranks) - 1), little, 8 * MIB)
    names = ("rank", "file", "kind", "offset", "length")
    columns: dict[str, Any] = {name: np.concatenate([getattr(heavy, name), getattr(light, name)]) for name in names}
    both = Phase(**columns)
    equal = max(1, (count + little * (len(ranks) - 1)) // len(ranks))
    repaired = requests(ranks, files, True, [0] * len(ranks), equal, 8 * MIB)
    # The busy rank's file lies on one target, which then holds most bytes.
    return Fault("rank-imbalance", (both,), (repaired,), frozenset({"rank-imbalance"}), frozenset({"server-imbalance"}))


def hot_target(program: Program, rng: np.random.Generator, scale: float) -> Fault:
    """Many ranks write large blocks of one file that lies on a single target."""
    ranks = range(min(program.processes, 64))
    size, count = _pick(rng, [8, 12, 16]) * MIB, _count(rng, 10, 60, len(ranks), scale)
    narrow = program.add("/scratch/run/hot.dat", (_pick(rng, range(program.targets)),), MIB)
    wide = program.add("/scratch/run/hot.dat.wide", range(program.targets), MIB)
    starts = [rank * size * count for rank in ranks]
    calls = (Calls(narrow, len(ranks), True, count, size, True),)
    flawed = requests(ranks, [narrow] * len(ranks), True, starts, count, size, calls=calls)
    repaired = requests(ranks, [wide] * len(ranks), True, [rank * MIB for rank in ranks], count, size, step=MIB * len(ranks) + size)
    return Fault("server-imbalance", (flawed,), (repaired,), frozenset({"server-imbalance"}), frozenset({"shared-file"}))


def slow_target(program: Program, rng: np.random.Generator, scale: float) -> Fault:
    """A file per rank, and one target that is several times slower than the others."""
    ranks = range(min(program.processes, 8 * program.targets))
    files = _own_files(program, "fpp", ranks)
    program.slow[_pick(rng, range(program.targets))] = float(rng.uniform(5, 15))
    count = _count(rng, 10, 80, len(ranks), scale)
    phase = requests(ranks, files, True, [0] * len(ranks), count, 8 * MIB)
    brings = frozenset({"rank-imbalance"})
    return Fault("slow-target", (phase,), (phase,), frozenset({"server-imbalance"}), brings, heals=True)


def one_stripe(program: Program, rng: np.random.Generator, scale: float) -> Fault:
    """Collective writes of all ranks to a file on one target, so that one aggregator moves all of it."""
    size = _pick(rng, [1, 4]) * MIB
    count = _count(rng, 500, 4000, 1, scale)
    narrow = program.add("/scratch/run/checkpoint.h5", (_pick(rng, range(program.targets)),), size)
    wide = program.add("/scratch/run/checkpoint.h5.wide", range(program.targets), size)
    each = max(1, count * size // program.processes // 4)
    calls = (Calls(narrow, program.processes, True, 4, each, True),)
    flawed = requests([0], [narrow], True, [0], count, size, calls=calls)
    ranks = range(min(program.targets, program.processes))
    share = max(1, count // len(ranks))
    repaired = requests(ranks, [wide] * len(ranks), True, [rank * size for rank in ranks], share, size, step=size * len(ranks))
    opens = metadata(range(program.processes), [narrow] * program.processes, [OPEN])
    brings = frozenset({"rank-imbalance", "small-write"})
    return Fault("one-stripe", (opens, flawed), (opens, repaired), frozenset({"server-imbalance"}), brings)


def many_calls(program: Program, rng: np.random.Generator, scale: float) -> Fault:
    """Every rank opens and examines its files over and over."""
    ranks = range(min(program.processes, 64))
    files = _own_files(program, "lock", ranks)
    count = _count(rng, 50, 600, len(ranks), scale)
    flawed = metadata(ranks, files, [OPEN, STAT] * count)
    repaired = metadata(ranks, files, [OPEN, STAT])
    return Fault("high-metadata", (flawed,), (repaired,), frozenset({"high-metadata"}))


def many_files(program: Program, rng: np.random.Generator, scale: float) -> Fault:
    """Every rank writes many files of a few hundred KiB, and opens and examines each."""
    ranks = range(min(program.processes, 64))
    count = int(np.clip(_count(rng, 8, 60, len(ranks), scale), 4, max(4, 8000 // len(ranks))))
    size = _pick(rng, [64, 128, 256]) * KIB
    pairs = [(rank, i) for rank in ranks for i in range(count)]
    tiles = [program.add(f"/scratch/run/tile.{rank:04d}.{i:04d}", ((rank + i) % program.targets,), MIB) for rank, i in pairs]
    names = [(rank, tile) for (rank, _), tile in zip(pairs, tiles)]
    owner, files = [rank for rank, _ in names], [file for _, file in names]
    opens = metadata(owner, files, [OPEN, STAT, STAT, SYNC])
    writes = requests(owner, files, True, [0] * len(files), 1, size)
    one = _own_files(program, "joined", ranks)
    repaired = requests(ranks, one, True, [0] * len(ranks), max(1, count * size // (4 * MIB)), 4 * MIB)
    brings = frozenset({"small-write", "misaligned-write"})
    return Fault("many-files", (opens, writes), (repaired,), frozenset({"high-metadata"}), brings)


def no_chunking(program: Program, rng: np.random.Generator, scale: float) -> Fault:
    """Every rank reads small pieces of a file in random order, each several times."""
    ranks = range(min(program.processes, 8 * program.targets))
    files = _own_files(program, "grid", ranks)
    times, count = _pick(rng, [3, 4, 5]), _count(rng, 60, 300, len(ranks), scale)
    order = np.concatenate([rng.permutation(count) for _ in range(times)])
    flawed = requests(ranks, files, False, [0] * len(ranks), count, 128 * KIB, order=order)
    repaired = requests(ranks, files, False, [0] * len(ranks), max(1, count // 32), 4 * MIB)
    labels = frozenset({"random-read", "repeated-read", "small-read"})
    return Fault("no-chunking", (flawed,), (repaired,), labels, frozenset({"misaligned-read"}), frozenset({"random-read", "repeated-read"}))


def buffered(program: Program, rng: np.random.Generator, scale: float, wrote: bool) -> Fault:
    """The C library's buffered calls instead of large requests."""
    ranks = range(min(program.processes, 8 * program.targets))
    files = _own_files(program, "text", ranks)
    size, count = _pick(rng, [16, 32, 64, 128]) * KIB, _count(rng, 200, 3000, len(ranks), scale)
    starts = [0] * len(ranks)
    large = max(1, count * size // (4 * MIB))
    flawed = requests(ranks, files, wrote, starts, count, size, library="STDIO")
    repaired = requests(ranks, files, wrote, starts, large, max(1, count * size // large))
    label = f"low-level-{'write' if wrote else 'read'}"
    return Fault(label, (flawed,), (repaired,), frozenset({label}))


FAULTS: dict[str, Callable[[Program, np.random.Generator, float], Fault]] = {
    "small-read": lambda p, r, s: small(p, r, s, False),
    "small-write": lambda p, r, s: small(p, r, s, True),
    "misaligned-read": lambda p, r, s: misaligned(p, r, s, False),
    "misaligned-write": lambda p, r, s: misaligned(p, r, s, True),
    "random-read": lambda p, r, s: random_order(p, r, s, False),
    "random-write": lambda p, r, s: random_order(p, r, s, True),
    "repeated-read": repeated,
    "shared-file": lambda p, r, s: shared(p, r, s, True),
    "rank-imbalance": one_rank,
    "server-imbalance": hot_target,
    "high-metadata": many_calls,
    "no-collective-read": lambda p, r, s: shared(p, r, s, False, False),
    "no-collective-write": lambda p, r, s: shared(p, r, s, False),
    "low-level-read": lambda p, r, s: buffered(p, r, s, False),
    "low-level-write": lambda p, r, s: buffered(p, r, s, True),
    "slow-target": slow_target,
    "one-stripe": one_stripe,
    "many-files": many_files,
    "no-chunking": no_chunking,
}
