"""`range -> lorenzo -> bitshuffle -> zero-blocks` over the chunks of one array on a device.

Work is queued for all chunks before the host waits: three times to encode (ranges; sizes; checksums), three times to decode (checksums
and sizes; outliers; nothing is written by a number from a file before it is held against what it should be).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton

from armillary.crc32c import crc32c
from armillary.errors import InputError

from ..bitshuffle import TILE
from ..bounds import absolute_bound, bound_port
from ..container import Head, Section, chunk_head, damaged
from ..pipeline import Pipeline
from ..stage import make
from . import decode_kernels as decode
from . import encode_kernels as encode
from .checksum import checksums
from .quantise_kernels import EXACT, divisor

#: How many tiles a program of `to_planes` and `to_residuals` takes, and its warps.
TILES, WARPS = 2, 4
_SPAN = (1024, 16)
_COMPACT_TILES = 8
_ROW, _DEPTH, _WIDTH = 4096, 32, 64
_INTEGER = {4: torch.int32, 8: torch.int64}
#: Sections start at multiples of these 32-bit words in the scratch memory.
_ALIGNED = 4


def settings(pipeline: Pipeline) -> tuple[int, int] | None:
    """Radius and centre where this is the pipeline of this file; None where it is another one."""
    stages = [node.stage for node in pipeline.nodes]
    if [stage.name for stage in stages] != ["range", "lorenzo", "bitshuffle", "zero-blocks"]:
        return None
    radius, centre = stages[1].config()["radius"], stages[2].config()["centre"]
    plain = Pipeline([make("range"), make("lorenzo", {"radius": radius}), make("bitshuffle", {"centre": centre}), make("zero-blocks")])
    return (radius, centre) if plain == pipeline else None


def ranges(flat: Any, head: Head) -> tuple[list[tuple[float, float]], list[bool]]:
    """The least and largest finite value of each chunk, and whether all of its values are finite."""
    programs = max((triton.cdiv(math.prod(cut), math.prod(_SPAN)) for _, cut in head.chunks), default=0)
    found = torch.empty((2, len(head.chunks), programs), dtype=flat.dtype, device=flat.device)
    found[0], found[1] = math.inf, -math.inf
    odd = torch.zeros((len(head.chunks), programs), dtype=torch.int32, device=flat.device)
    for k, (start, cut) in enumerate(head.chunks):
        size = math.prod(cut)
        grid = (triton.cdiv(size, math.prod(_SPAN)),)
        encode.extremes[grid](flat[start:], found[0, k], found[1, k], odd[k], size, BLOCK=_SPAN[0], ROUNDS=_SPAN[1])
    together = torch.stack([found[0].amin(1).double(), found[1].amax(1).double(), odd.sum(1).double()]).tolist()
    # Zeros of either sign count as one value, as on the host.
    return [(low + 0.0, high + 0.0) for low, high in zip(*together[:2], strict=True)], [count == 0 for count in together[2]]


@dataclass(frozen=True)
class _Grid:
    """A chunk as kernels see it: values, tiles, and what `residual` takes."""

    size: int
    shape: tuple[int, int, int, int]

    @property
    def tiles(self) -> int:
        return -(-self.size // TILE)

    @property
    def dimensions(self) -> int:
        return 3 if self.shape[1] > 1 else 2 if self.shape[2] > 1 else 1

    @property
    def facts(self) -> tuple[int, ...]:
        _, z, y, x = self.shape
        return (x, y, z, *divisor(x), *divisor(y), *divisor(z))


@dataclass(frozen=True)
class _Job:
    """A chunk that goes through the pipeline."""

    number: int
    start: int
    grid: _Grid
    bound: np.ndarray
    first_tile: int

    @property
    def wide(self) -> bool:
        return bool(self.bound[1])


def encode_chunks(flat: Any, head: Head, spans: Sequence[tuple[float, float]], finite: Sequence[bool]) -> list[list[bytes | Any]]:
    """The bytes of every chunk, in pieces: bytes of the host and uint8 tensors of the device."""
    found = settings(head.pipeline)
    assert found is not None
    radius, centre = found
    jobs, methods, tiles = [], [], 0
    for number, ((start, cut), own, whole) in enumerate(zip(head.chunks, spans, finite, strict=True)):
        eps = absolute_bound(head.mode, head.bound, head.span or own)
        constant = own[0] == own[1] and whole
        methods.append("constant" if constant else "store" if not eps > 0 or own[0] > own[1] else "pipeline")
        if methods[-1] == "pipeline":
            grid = _Grid(math.prod(cut), cut)
            jobs.append(_Job(number, start, grid, bound_port(eps, max(abs(own[0]), abs(own[1]))), tiles))
            tiles += grid.tiles
    made = _Encoded(flat, head, jobs, tiles, radius, centre)
    done = made.sections() if jobs else {}
    pieces = []
    for number, ((start, cut), method) in enumerate(zip(head.chunks, methods, strict=True)):
        if number in done:
            pieces.append(done[number])
        elif method == "constant":
            value = flat[start : start + 1].cpu().numpy().tobytes()
            pieces.append([chunk_head(method, [Section("value", head.dtype, len(value), crc32c(value))]), value])
        else:
            raw = flat[start : start + math.prod(cut)].view(torch.int32)
            checksum = int(checksums(raw, np.array([0]), np.array([raw.numel()]))[0]) & 0xFFFFFFFF
            pieces.append([chunk_head("store", [Section("raw", head.dtype, 4 * raw.numel(), checksum)]), raw.view(torch.uint8)])
    return pieces


class _Encoded:
    """Planes, flags and counts of every job, and from them the sections."""

    def __init__(self, flat: Any, head: Head, jobs: Sequence[_Job], tiles: int, radius: int, centre: int) -> None:
        self.flat, self.head, self.jobs, self.radius = flat, head, jobs, radius
        device = flat.device
        rows = [[eps, 0.5 / eps, 2.0 * eps] for eps in (float(job.bound[0]) for job in jobs)]
        self.facts = torch.from_numpy(np.array(rows, np.float64).reshape(-1, 3)).to(device)
        self.planes = torch.empty(tiles * TILE // 2, dtype=torch.int32, device=device)
        self.flags = torch.empty(tiles * 16, dtype=torch.int16, device=device)
        self.counts = torch.empty((3, tiles), dtype=torch.int32, device=device)
        for k, job in enumerate(jobs):
            here = slice(job.first_tile, job.first_tile + job.grid.tiles)
            encode.to_planes[(triton.cdiv(job.grid.tiles, TILES),)](
                flat[job.start :], self.facts[k], self.planes[here.start * TILE // 2 :].view(torch.int16), self.flags[here.start * 16 :],
                self.counts[0, here], self.counts[1, here], self.counts[2, here], job.grid.size, job.grid.tiles, *job.grid.facts, radius,
                centre, DIMENSIONS=job.grid.dimensions, WIDE=job.wide, TILES=TILES, num_warps=WARPS, **EXACT,
            )  # fmt: skip
        self.ends = self.counts.cumsum(1)

    def sections(self) -> dict[int, list[bytes | Any]]:
        """Pieces of every job that the pipeline makes smaller, by chunk."""
        last = torch.tensor([job.first_tile + job.grid.tiles - 1 for job in self.jobs])
        ends = self.ends[:, last.to(self.flat.device)].cpu().numpy()
        firsts = np.concatenate([np.zeros((3, 1), np.int64), ends[:, :-1]], axis=1)
        amounts = ends - firsts
        itemsize = self.head.dtype.itemsize
        layout: dict[int, list[tuple[int, int]]] = {}
        words = 0
        for k, job in enumerate(self.jobs):
            blocks, outliers, violators = (int(n) for n in amounts[:, k])
            sizes = [outliers * (2 if job.wide else 1), violators, violators * itemsize // 4, blocks * 4]
            if 4 * sum(sizes) + 32 * job.grid.tiles + 24 >= job.grid.size * itemsize:
                continue
            layout[k] = []
            for size in sizes:
                layout[k].append((words, size))
                words += -(-size // _ALIGNED) * _ALIGNED
        scratch = torch.empty(words, dtype=torch.int32, device=self.flat.device)
        for k in layout:
            self._fill(self.jobs[k], self.facts[k], firsts[:, k], amounts[:, k], [scratch[a : a + n] for a, n in layout[k]])
        places = np.array([place for k in layout for place in layout[k]], np.int64).reshape(-1, 2)
        kept = [self.jobs[k] for k in layout]
        rows = np.array([(8 * job.first_tile, 8 * job.grid.tiles) for job in kept], np.int64).reshape(-1, 2)
        sums = torch.cat([
            checksums(scratch, places[:, 0], places[:, 1]), checksums(self.flags.view(torch.int32), rows[:, 0], rows[:, 1])
        ]).cpu().numpy().view(np.uint32)  # fmt: skip
        return {
            job.number: self._pieces(job, scratch, layout[k], sums[4 * i : 4 * i + 4], int(sums[4 * len(kept) + i]))
            for i, (k, job) in enumerate(zip(layout, kept, strict=True))
        }

    def _fill(self, job: _Job, facts: Any, firsts: np.ndarray, amounts: np.ndarray, out: Sequence[Any]) -> None:
        here = slice(job.first_tile, job.first_tile + job.grid.tiles)
        counts, ends = [row[here] for row in self.counts], [row[here] for row in self.ends]
        encode.compact[(triton.cdiv(job.grid.tiles, _COMPACT_TILES),)](
            self.planes[here.start * TILE // 2 :], self.flags[here.start * 16 :], ends[0], counts[0], int(firsts[0]), out[3],
            job.grid.tiles, TILES=_COMPACT_TILES,
        )  # fmt: skip
        if amounts[1] or amounts[2]:
            encode.collect[(job.grid.tiles,)](
                self.flat[job.start :], facts, ends[1], counts[1], ends[2], counts[2], int(firsts[1]), int(firsts[2]),
                out[0].view(torch.int64 if job.wide else torch.int32), out[1], out[2].view(self.flat.dtype), job.grid.size,
                *job.grid.facts, self.radius, DIMENSIONS=job.grid.dimensions, WIDE=job.wide, num_warps=8, **EXACT,
            )  # fmt: skip

    def _pieces(self, job: _Job, scratch: Any, layout: list[tuple[int, int]], sums: np.ndarray, flag_sum: int) -> list[bytes | Any]:
        outliers, places, raw, blocks = (scratch[start : start + size].view(torch.uint8) for start, size in layout)
        flags = self.flags[16 * job.first_tile : 16 * (job.first_tile + job.grid.tiles)].view(torch.uint8)
        bound, count = job.bound.tobytes(), np.array([job.grid.size], np.int64).tobytes()
        integer = np.dtype("<i8" if job.wide else "<i4")
        names = [f"{node.name}.{port}" for node, port in zip(_nodes(self.head.pipeline), PORTS, strict=True)]
        dtypes = [np.dtype("<f8"), integer, np.dtype("<u4"), self.head.dtype, np.dtype("<i8"), np.dtype("u1"), np.dtype("<u2")]
        parts = [bound, outliers, places, raw, count, flags, blocks]
        checks = [crc32c(bound), sums[0], sums[1], sums[2], crc32c(count), flag_sum, sums[3]]
        listed = [
            Section(name, dtype, len(part), int(check)) for name, dtype, part, check in zip(names, dtypes, parts, checks, strict=True)
        ]
        return [chunk_head("pipeline", listed), *parts]


#: The sections of a chunk in their order, and which stage each comes from.
PORTS = ("bound", "outliers", "raw_index", "raw", "count", "flags", "blocks")
_OF_STAGE = (0, 1, 1, 1, 2, 3, 3)


def _nodes(pipeline: Pipeline) -> list[Any]:
    return [pipeline.nodes[k] for k in _OF_STAGE]


@dataclass(frozen=True)
class Stored:
    """A chunk in a file on the device: its method, and each section with its first byte."""

    method: str
    sections: tuple[tuple[Section, int], ...]


def decode_chunks(data: Any, head: Head, chunks: Sequence[Stored], where: str | None = None) -> Any:
    """The flat array from a file (uint8 tensor) and what its chunk heads say."""
    found = settings(head.pipeline)
    assert found is not None
    out = torch.empty(math.prod(head.shape), dtype=torch.float32 if head.dtype.itemsize == 4 else torch.float64, device=data.device)
    words, starts = _aligned(data, [part for chunk in chunks for part in chunk.sections], where)
    jobs, at = [], 0
    for (start, cut), chunk in zip(head.chunks, chunks, strict=True):
        parts = {s.name: (s, words[starts[at + i] : starts[at + i] + s.size // 4]) for i, (s, _) in enumerate(chunk.sections)}
        at += len(chunk.sections)
        target = out[start : start + math.prod(cut)]
        if chunk.method == "pipeline":
            jobs.append(_Decoding(head, _Grid(math.prod(cut), cut), parts, target, *found, where))
            continue
        name, size = ("value", 1) if chunk.method == "constant" else ("raw", target.numel())
        if set(parts) != {name} or parts[name][0].dtype != head.dtype or parts[name][0].size != size * head.dtype.itemsize:
            raise InputError(f"{chunk.method} chunk: expected {size} values of {head.dtype}", where=where)
        target.copy_(parts[name][1].view(out.dtype))
    if jobs:
        for job, facts in zip(jobs, torch.stack([job.facts() for job in jobs]).cpu().numpy(), strict=True):
            job.prepare(facts)
        for job, blocks in zip(jobs, torch.stack([job.count_blocks() for job in jobs]).tolist(), strict=True):
            job.check_blocks(blocks)
        for job, found_codes in zip(jobs, torch.stack([job.residuals() for job in jobs]).tolist(), strict=True):
            job.check_codes(*found_codes)
        for job in jobs:
            job.values()
    return out


def _aligned(data: Any, parts: Sequence[tuple[Section, int]], where: str | None) -> tuple[Any, list[int]]:
    """Sections copied to where words can be read, checksums held, and their first words there."""
    starts, total = [], 0
    for section, _ in parts:
        if section.size % 4:
            raise InputError(f"section {section.name}: found {section.size} bytes; expected a multiple of 4", where=where)
        starts.append(total)
        total += -(-section.size // (4 * _ALIGNED)) * _ALIGNED
    words = torch.empty(total, dtype=torch.int32, device=data.device)
    for (section, at), start in zip(parts, starts, strict=True):
        if section.size:
            words[start : start + section.size // 4].view(torch.uint8).copy_(data[at : at + section.size])
    counts = np.array([section.size // 4 for section, _ in parts], np.int64)
    found = checksums(words, np.array(starts, np.int64), counts).cpu().numpy().view(np.uint32)
    for (section, _), checksum in zip(parts, found, strict=True):
        if int(checksum) != section.checksum:
            raise damaged(section, where)
    return words, starts


class _Decoding:
    """One chunk on its way back; each step queues work, and gives what the host has to look at before the next."""

    def __init__(
        self, head: Head, grid: _Grid, parts: dict[str, tuple[Section, Any]], out: Any, radius: int, centre: int, where: str | None
    ) -> None:
        self.grid, self.out, self.radius, self.centre, self.where = grid, out, radius, centre, where
        names = [f"{node.name}.{port}" for node, port in zip(_nodes(head.pipeline), PORTS, strict=True)]
        if set(parts) != set(names):
            raise InputError(f"found sections {', '.join(sorted(parts))}; expected {', '.join(sorted(names))}", where=where)
        self.sections = [parts[name][0] for name in names]
        self.bound, self.outliers, self.places, raw, self.count, flags, blocks = (parts[name][1] for name in names)
        kinds = ("f8", "i4 i8", "u4", head.dtype.str[1:], "i8", "u1", "u2")
        for section, kind in zip(self.sections, kinds, strict=True):
            if section.dtype.str[1:] not in kind.split():
                raise InputError(f"section {section.name}: found {section.dtype}; expected {kind}", where=where)
        if (self.sections[0].size, self.sections[4].size) != (16, 8):
            raise InputError("chunk: found no bound of two numbers with one count", where=where)
        if self.sections[5].size != 32 * grid.tiles or self.sections[6].size % 16:
            raise InputError(f"zero blocks: found {self.sections[5].size} bytes of flags for {grid.size} values", where=where)
        if self.places.numel() * head.dtype.itemsize != self.sections[3].size:
            raise InputError(f"raw values: found {self.places.numel()} places for {self.sections[3].size} bytes", where=where)
        self.raw, self.flags, self.blocks = raw.view(out.dtype), flags.view(torch.int16), blocks.view(torch.int16)

    def facts(self) -> Any:
        """The bound and how many codes there are, as six words."""
        return torch.cat([self.bound, self.count])

    def prepare(self, words: np.ndarray) -> None:
        """Takes note of them, and gets memory."""
        (eps, wide), codes = words[:4].view(np.float64), int(words[4:].view(np.int64)[0])
        if codes != self.grid.size:
            raise InputError(f"bit planes: found {codes} codes; expected {self.grid.size}", where=self.where)
        size = 8 if wide != 0.0 else 4
        if self.sections[1].dtype.itemsize != size:
            raise InputError(f"outliers: found {self.sections[1].dtype}; expected {8 * size} bits", where=self.where)
        self.outliers = self.outliers.view(_INTEGER[size])
        self.width = torch.full((1,), 2.0 * float(eps), dtype=torch.float64, device=self.out.device)
        # Sums may lie where the values will: each is read before it is written.
        same = self.out.element_size() == size
        self.sums = self.out.view(_INTEGER[size]) if same else torch.empty(self.grid.size, dtype=_INTEGER[size], device=self.out.device)
        self.counts = torch.empty(self.grid.tiles, dtype=torch.int32, device=self.out.device)

    def count_blocks(self) -> Any:
        """How many blocks the flags ask for."""
        decode.count_blocks[(triton.cdiv(self.grid.tiles, 64),)](self.flags, self.counts, self.grid.tiles, TILES=64)
        self.ends = self.counts.cumsum(0)
        return self.ends[-1]

    def check_blocks(self, found: int) -> None:
        """Refuses flags that ask for other blocks than there are."""
        if found * 8 != self.blocks.numel():
            raise InputError(f"zero blocks: found {self.blocks.numel()} words; the flags ask for {found * 8}", where=self.where)

    def residuals(self) -> Any:
        """How many codes are zero, and the last place of a violator."""
        zeros = torch.empty_like(self.counts)
        decode.to_residuals[(triton.cdiv(self.grid.tiles, TILES),)](
            self.flags, self.ends, self.counts, self.blocks, self.sums, zeros, self.grid.size, self.grid.tiles, self.radius,
            self.centre, TILES=TILES, num_warps=WARPS,
        )  # fmt: skip
        self.counts, self.ends = zeros, zeros.cumsum(0)
        self.places = self.places.to(torch.int64) & 0xFFFFFFFF
        last = self.places.max() if self.places.numel() else torch.zeros_like(self.ends[-1])
        return torch.stack([self.ends[-1], last])

    def check_codes(self, zeros: int, last: int) -> None:
        """Refuses outliers and violators that have no place."""
        if zeros != self.outliers.numel():
            raise InputError(f"outliers: found {self.outliers.numel()}; expected {zeros}, one for each zero code", where=self.where)
        if last >= self.grid.size:
            raise InputError(f"raw values: found a place {last}; expected places below {self.grid.size}", where=self.where)

    def values(self) -> None:
        """Outliers, prefix sums along each axis, and the violators' own bits."""
        grid, sums = self.grid, self.sums
        if self.outliers.numel():
            decode.insert[(grid.tiles,)](sums, self.ends, self.counts, self.outliers, grid.size, self.radius, num_warps=8)
        batch, z, y, x = grid.shape
        rows, segment = batch * z * y, min(_ROW, triton.next_power_of_2(x))
        segments, side = triton.cdiv(x, segment), _ROW // segment
        totals = torch.empty((rows, segments), dtype=sums.dtype, device=sums.device)
        decode.sum_rows[(triton.cdiv(rows, side), segments)](sums, totals, rows, x, segments, ROWS=side, SEGMENT=segment)
        if segments > 1 or grid.dimensions == 1:
            # Summed as int64 and cut: sums of int32 wrap around as they do on the host.
            before = (totals.cumsum(1, dtype=torch.int64) - totals).to(sums.dtype)
            last = grid.dimensions == 1
            decode.finish_rows[(triton.cdiv(grid.size, 1024),)](
                sums, before, self.out if last else sums, self.width, grid.size, x, segments, SEGMENT=segment, LAST=last, BLOCK=1024,
                **EXACT,
            )  # fmt: skip
        if grid.dimensions > 1:
            self._down(batch * z, y, x, grid.dimensions == 2)
        if grid.dimensions > 2:
            self._down(batch, z, y * x, True)
        if self.places.numel():
            self.out[self.places] = self.raw

    def _down(self, outer: int, n: int, inner: int, last: bool) -> None:
        decode.sum_down[(outer, triton.cdiv(inner, _WIDTH))](
            self.sums, self.out if last else self.sums, self.width, n, inner, LAST=last, DEPTH=_DEPTH, WIDTH=_WIDTH, **EXACT
        )
