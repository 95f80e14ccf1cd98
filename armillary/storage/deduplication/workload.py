"""Files as lists of chunks, the order in which they were written, and the overwrites that followed.

The generator makes a file as a concatenation of runs with a geometric number of chunks. Each run is fresh or copied from a random place
of an earlier file, where recent files are likelier (Beta(2,1)). `writers` files are open at once, and their writes interleave in units of
`io` bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from armillary.errors import InputError, unknown
from armillary.kernels import kernel, part

from .relocation.similarity import Rows

FLAVOURS = ("vm", "home", "registry", "checkpoints")
CONTAINER_BYTES = 4 << 20


@dataclass(frozen=True)
class Updates:
    """One round of overwrites in the order of their arrival: reference `refs[k]` becomes chunk `chunks[k]`."""

    refs: np.ndarray
    chunks: np.ndarray


@dataclass(frozen=True)
class Devices:
    """The devices of a store: `nodes` with one disk and one NIC each, in seconds and bytes per second."""

    nodes: int = 8
    rtt_s: float = 0.2e-3
    seek_s: float = 0.08e-3
    disk_bytes_per_s: float = 2e9
    nic_bytes_per_s: float = 1.25e9
    depth: int = 16
    readers: int = 8


NVME, HDD = Devices(), Devices(seek_s=6e-3, disk_bytes_per_s=180e6)


@dataclass(frozen=True)
class Workload:
    """A deduplicated store's content before anyone decides where it lies.

    `files` are rows of chunk numbers; reference r is entry r of `files.values`. `sizes` int64[U] are bytes of each chunk (those that
    updates bring included). `stream` int64[R] are references in the order of writing. `previous[f]` is the file of which f is a later
    version, or -1. `names` may be empty.
    """

    files: Rows
    sizes: np.ndarray
    stream: np.ndarray
    chunk: int = 16384
    previous: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    updates: tuple[Updates, ...] = ()
    devices: Devices = NVME
    names: tuple[str, ...] = ()

    @property
    def slots(self) -> int:
        """The number of chunks in a container of 4 MiB."""
        return max(1, CONTAINER_BYTES // self.chunk)

    @property
    def references(self) -> int:
        """Chunk references in all files."""
        return len(self.files.values)

    def file_of(self) -> np.ndarray:
        """The file of each reference."""
        return np.repeat(np.arange(len(self.files)), np.diff(self.files.starts))

    def final(self) -> np.ndarray:
        """The chunk of each reference after all updates."""
        now = self.files.values.astype(np.int64)
        for update in self.updates:
            now[update.refs] = update.chunks
        return now

    def dedup_ratio(self) -> float:
        """Logical over physical bytes after all updates when nothing is stored twice."""
        now = self.final()
        return float(self.sizes[now].sum() / max(1, self.sizes[np.unique(now)].sum()))


def generate(
    flavour: str, rng: np.random.Generator, *, references: int = 200_000, copy: float = 0.6, writers: int = 16, io: int = 65536,
    chunk: int = 16384, rounds: int = 0, share: float = 0.05, devices: Devices = NVME,
) -> Workload:  # fmt: skip
    """Work of about `references` chunk references.

    `vm` has images of 64 to 256 MiB (smaller where fewer than 100 would fit) and runs of 96 chunks on average. `home` has log-normal sizes
    with a median of 64 KiB, and `registry` has log-normal layers with a median of 2 MiB. `checkpoints` has eight models, of which each
    version keeps runs of the one before in place and changes 70 % of the chunks. `rounds` of overwrites follow, each of `share` of all
    references, in ranges with a geometric number of chunks (mean io/chunk) at random places of Zipf-chosen files, all with new content.
    """
    if flavour not in FLAVOURS:
        raise unknown("workload", str(flavour), FLAVOURS)
    for name, value, low, high in (("references", references, 1, 2**30), ("writers", writers, 1, 10**6), ("io", io, 1, 2**40),
                                   ("chunk", chunk, 256, 2**26), ("rounds", rounds, 0, 1000),
                                   ("copy", copy, 0, 1), ("share", share, 0, 1)):  # fmt: skip
        if not low <= value <= high:
            raise InputError(f"{name}: found {value!r}; expected a value from {low} to {high}")
    lengths = _lengths(flavour, references, chunk, rng)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    values = np.empty(starts[-1], np.int32)
    previous = np.full(len(lengths), -1, np.int64)
    if flavour == "checkpoints":
        previous[8:] = np.arange(len(lengths) - 8) if len(lengths) > 8 else []
    mean, kept = (24.0, 0.3) if flavour == "checkpoints" else (96.0 if flavour == "vm" else 24.0, copy)
    state = rng.integers(1, 2**63, 1, dtype=np.uint64)
    tally = np.zeros(len(lengths), np.int64)
    fresh = int(_fill(starts, values, previous, state, mean, kept, flavour == "checkpoints", tally))
    stream = interleave(starts, writers, max(1, io // chunk), rng)
    work = Workload(Rows(starts, values), np.full(fresh, chunk, np.int64), stream, chunk, previous, devices=devices)
    return with_updates(work, rng, rounds, share, max(1, io // chunk), writers) if rounds else work


def with_updates(work: Workload, rng: np.random.Generator, rounds: int, share: float, mean: int, writers: int) -> Workload:
    """The same work with rounds of overwrites of Zipf-chosen files, in ranges of Geometric(`mean`) chunks, `writers` ranges at once."""
    filled = np.flatnonzero(np.diff(work.files.starts))
    if not len(filled):
        return work
    ranked = rng.permutation(filled)
    weights = 1 / np.arange(1, len(ranked) + 1)
    updates, fresh = [], len(work.sizes)
    for _ in range(rounds):
        wanted = max(1, int(share * work.references))
        count = wanted + 1
        chosen = ranked[rng.choice(len(ranked), count, p=weights / weights.sum())]
        size = np.diff(work.files.starts)[chosen]
        first = (rng.random(count) * size).astype(np.int64)
        length = np.minimum(rng.geometric(1 / mean, count), size - first)
        length = length[: int(np.searchsorted(np.cumsum(length), wanted)) + 1]
        begin = (work.files.starts[chosen] + first)[: len(length)]
        ends = np.concatenate(([0], np.cumsum(length)))
        at = np.arange(ends[-1]) - np.repeat(ends[:-1], length) + np.repeat(begin, length)
        refs = at[interleave(ends, writers, mean, rng)]
        updates.append(Updates(refs, np.arange(fresh, fresh + len(refs))))
        fresh += len(refs)
    sizes = np.concatenate((work.sizes, np.full(fresh - len(work.sizes), work.chunk, np.int64)))
    for update in updates:
        sizes[update.chunks] = work.sizes[work.files.values[update.refs]]
    return replace(work, sizes=sizes, updates=tuple(updates))


def interleave(starts: np.ndarray, writers: int, unit: int, rng: np.random.Generator) -> np.ndarray:
    """References in the order of writing, when `writers` files are open at once and a random one of them writes `unit` chunks at a time."""
    out = np.empty(starts[-1], np.int64)
    state = rng.integers(1, 2**63, 1, dtype=np.uint64)
    _interleave(np.asarray(starts, np.int64), writers, unit, state, out, np.empty(writers, np.int64), np.empty(writers, np.int64))
    return out


def _lengths(flavour: str, references: int, chunk: int, rng: np.random.Generator) -> np.ndarray:
    """The number of chunks of each file, until there are enough."""
    if flavour == "vm":
        scale = min(1.0, references * chunk / (100 * 160 * 2**20))
        count = max(4, math.ceil(references * chunk / (scale * 160 * 2**20)))
        sizes = scale * rng.uniform(64, 256, count) * 2**20
    elif flavour == "checkpoints":
        # Eight models in versions of up to 64 MiB; each model's versions have one size.
        each = min(4096, max(1, references // 64))
        models = np.maximum(1, (each * rng.uniform(0.5, 1.5, 8)).astype(np.int64))
        versions = max(2, round(references / models.sum()))
        return np.tile(models, versions)
    else:
        median, sigma = (65536, 1.5) if flavour == "home" else (2 * 2**20, 1.2)
        mean = median * math.exp(sigma**2 / 2)
        count = max(4, math.ceil(references * chunk / max(mean, chunk)))
        sizes = np.minimum(median * rng.lognormal(0, sigma, count), references * chunk / 4)
    return np.maximum(1, np.ceil(sizes / chunk)).astype(np.int64)


@part
def _uniform(state):
    """A number in (0, 1] from a splitmix64 stream."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (np.float64(z >> np.uint64(11)) + 1.0) / 9007199254740992.0


@kernel
def _fill(starts, values, previous, state, mean, copy, in_place, tally):
    """Writes the chunk numbers of all files; returns the number of distinct ones.

    `previous` gets the file that gave most chunks, unless copies are made in place from the one it names.
    """
    fresh = 0
    log_stay = np.log(1.0 - 1.0 / mean)
    for f in range(len(starts) - 1):
        r, end = starts[f], starts[f + 1]
        best = -1
        low = f
        while r < end:
            length = min(1 + int(np.log(_uniform(state)) / log_stay), end - r)
            source, at = -1, np.int64(0)
            if _uniform(state) <= copy:
                if in_place:
                    source = previous[f]
                    at = r - starts[f]
                elif f > 0:
                    source = min(int(np.sqrt(_uniform(state)) * f), f - 1)
                    at = min(int(_uniform(state) * (starts[source + 1] - starts[source])), starts[source + 1] - starts[source] - 1)
            if source >= 0:
                length = min(length, starts[source + 1] - starts[source] - at)
                for k in range(length):
                    values[r + k] = values[starts[source] + at + k]
                if not in_place:
                    tally[source] += length
                    low = min(low, source)
                    if best < 0 or tally[source] > tally[best]:
                        best = source
            else:
                for k in range(length):
                    values[r + k] = fresh + k
                fresh += length
            r += length
        if not in_place:
            previous[f] = best
            for s in range(low, f):
                tally[s] = 0
    return fresh


@kernel
def _interleave(starts, writers, unit, state, out, at, end):
    files = len(starts) - 1
    opened, upcoming, n = 0, 0, 0
    while True:
        while opened < writers and upcoming < files:
            if starts[upcoming + 1] > starts[upcoming]:
                at[opened], end[opened] = starts[upcoming], starts[upcoming + 1]
                opened += 1
            upcoming += 1
        if opened == 0:
            return
        w = min(int(_uniform(state) * opened), opened - 1)
        for _ in range(unit):
            if at[w] < end[w]:
                out[n] = at[w]
                at[w] += 1
                n += 1
        if at[w] == end[w]:
            opened -= 1
            at[w], end[w] = at[opened], end[opened]
