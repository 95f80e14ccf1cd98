"""Codes and decodes the chunks of one array on a device: the method of each, and its sections with their checksums.

A coder (`coder_of`) turns chunks into sections and sections into values; all chunks go through it together, so that the host waits a few
times per array and not a few times per chunk. No number from a file is used before it is compared with what it should be.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
import triton

from armillary.errors import InputError
from armillary.files.checksums import crc32c

from ..pipeline.container import Head, Section, chunk_head, damaged
from ..pipeline.pipeline import Pipeline
from ..stages.bitshuffle import TILE
from ..stages.bounds import absolute_bound, bound_port
from . import encode_kernels as encode
from .checksum import section_checksums
from .quantise_kernels import divisor

_SPAN = (1024, 16)
#: Sections start at multiples of these 32-bit words.
ALIGNED = 4
#: Arrays of more bytes have chunks of so many: few large chunks keep a device busy.
LARGE = (256 << 20, 1 << 30)


@dataclass(frozen=True)
class Grid:
    """A chunk as kernels see it: values, tiles, and what `residual` takes."""

    size: int
    shape: tuple[int, int, int, int]

    @property
    def tiles(self) -> int:
        """Tiles of 2048 values."""
        return -(-self.size // TILE)

    @property
    def dimensions(self) -> int:
        """1, 2 or 3, as `Context.dimensions`."""
        return 3 if self.shape[1] > 1 else 2 if self.shape[2] > 1 else 1

    @property
    def facts(self) -> tuple[int, ...]:
        """Extents and what divides by them."""
        _, z, y, x = self.shape
        return (x, y, z, *divisor(x), *divisor(y), *divisor(z))

    @property
    def whole(self) -> tuple[int, int, int, int]:
        """What `spot` takes where prediction goes on through the chunk."""
        return self.tiles, self.tiles, self.size, self.size


@dataclass(frozen=True)
class Job:
    """A chunk that goes through the pipeline."""

    number: int
    start: int
    grid: Grid
    bound: np.ndarray

    @property
    def wide(self) -> bool:
        """Whether quantised values take 64 bits."""
        return bool(self.bound[1])


@dataclass(frozen=True)
class Piece:
    """A section on its way into a file: bytes of the host, or the first `size` bytes of an int32 tensor whose last word ends in zeros."""

    name: str
    dtype: np.dtype
    data: bytes | Any
    size: int


@dataclass(frozen=True)
class Stored:
    """A chunk in a file on the device: its method, and each section with its first byte."""

    method: str
    sections: tuple[tuple[Section, int], ...]


@dataclass(frozen=True)
class Task:
    """A chunk on its way back: its sections by name, each with its words, and where the values go."""

    grid: Grid
    parts: dict[str, tuple[Section, Any]]
    out: Any

    def take(self, expected: Sequence[tuple[str, str]], where: str | None) -> list[tuple[Section, Any]]:
        """Returns the sections in the order of (name, dtypes separated by blanks); refuses others."""
        if set(self.parts) != {name for name, _ in expected}:
            names = ", ".join(sorted(name for name, _ in expected))
            raise InputError(f"found sections {', '.join(sorted(self.parts))}; expected {names}", where=where)
        for name, kinds in expected:
            dtype = self.parts[name][0].dtype
            if dtype.str[1:] not in kinds.split():
                raise InputError(f"section {name}: found {dtype}; expected {kinds}", where=where)
        return [self.parts[name] for name, _ in expected]


class Coder(Protocol):
    """Turns chunks into sections and back."""

    #: Bytes above which an array is large, and those of its chunks then.
    large: ClassVar[tuple[int, int]]

    def encode(self, flat: Any, head: Head, jobs: Sequence[Job]) -> dict[int, list[Piece]]:
        """Returns the sections of each chunk that gets smaller, by its number."""

    def decode(self, head: Head, tasks: Sequence[Task], where: str | None) -> None:
        """Fills every task's `out`."""


@functools.lru_cache(maxsize=64)
def coder_of(pipeline: Pipeline) -> Coder | None:
    """Returns the coder that has kernels for this pipeline, or None."""
    from .default import DefaultCoder
    from .fused import CuszpCoder, FzCoder
    from .quality import QualityCoder
    from .speed import SpeedCoder

    kinds = (SpeedCoder, DefaultCoder, QualityCoder, FzCoder, CuszpCoder)
    return next((found for kind in kinds if (found := kind.of(pipeline)) is not None), None)


def named(pipeline: Pipeline, ports: Sequence[tuple[int, str]]) -> list[str]:
    """Returns the section names of the ports of the stages at these places."""
    return [f"{pipeline.nodes[k].name}.{port}" for k, port in ports]


def fits(job: Job, head: Head, size: int) -> bool:
    """Says whether sections of `size` bytes in all are smaller than the values themselves."""
    return size < job.grid.size * head.dtype.itemsize


def on_host(tensors: Sequence[Any]) -> list[np.ndarray]:
    """Returns tensors of one dtype as flat arrays of the host, in one copy."""
    if not tensors:
        return []
    together = torch.cat([t.reshape(-1) for t in tensors]).cpu().numpy()
    return np.split(together, np.cumsum([t.numel() for t in tensors])[:-1])


def facts_of(jobs: Sequence[Job], device: Any) -> Any:
    """Returns ε, 1/(2ε) and 2ε of every job."""
    rows = [(eps := float(job.bound[0]), 0.5 / eps, 2.0 * eps) for job in jobs]
    return torch.from_numpy(np.array(rows, np.float64).reshape(-1, 3)).to(device)


def ranges(flat: Any, head: Head) -> tuple[list[tuple[float, float]], list[bool]]:
    """Returns the least and largest finite value of each chunk, and whether all of its values are finite."""
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


def encode_chunks(flat: Any, head: Head, spans: Sequence[tuple[float, float]], finite: Sequence[bool]) -> list[list[bytes | Any]]:
    """Returns the bytes of every chunk, in pieces: bytes of the host and uint8 tensors of the device."""
    coder = coder_of(head.pipeline)
    assert coder is not None
    jobs, methods = [], []
    for number, ((start, cut), own, whole) in enumerate(zip(head.chunks, spans, finite, strict=True)):
        eps = absolute_bound(head.mode, head.bound, head.span or own)
        constant = own[0] == own[1] and whole
        methods.append("constant" if constant else "store" if not eps > 0 or own[0] > own[1] else "pipeline")
        if methods[-1] == "pipeline":
            jobs.append(Job(number, start, Grid(math.prod(cut), cut), bound_port(eps, max(abs(own[0]), abs(own[1])))))
    done = coder.encode(flat, head, jobs) if jobs else {}
    chunks = []
    for number, ((start, cut), method) in enumerate(zip(head.chunks, methods, strict=True)):
        if number in done:
            chunks.append(("pipeline", done[number]))
        elif method == "constant":
            value = flat[start : start + 1].cpu().numpy().tobytes()
            chunks.append((method, [Piece("value", head.dtype, value, len(value))]))
        else:
            raw = flat[start : start + math.prod(cut)].view(torch.int32)
            chunks.append(("store", [Piece("raw", head.dtype, raw, 4 * raw.numel())]))
    sums = _sums([piece for _, pieces in chunks for piece in pieces])
    out = []
    for method, pieces in chunks:
        listed = [Section(piece.name, piece.dtype, piece.size, next(sums)) for piece in pieces]
        data = [piece.data if isinstance(piece.data, bytes) else piece.data.view(torch.uint8)[: piece.size] for piece in pieces]
        out.append([chunk_head(method, listed), *data])
    return out


def _sums(pieces: Sequence[Piece]) -> Any:
    """Returns checksums of all pieces in their order; tensors of one memory are looked at together."""
    sums = [crc32c(piece.data) if isinstance(piece.data, bytes) else 0 for piece in pieces]
    memories: dict[int, list[tuple[int, Any]]] = {}
    for i, piece in enumerate(pieces):
        data: Any = piece.data
        if not isinstance(data, bytes) and piece.size:
            memories.setdefault(data.untyped_storage().data_ptr(), []).append((i, data))
    groups = []
    for members in memories.values():
        first = members[0][1]
        words = torch.empty(0, dtype=torch.int32, device=first.device).set_(first.untyped_storage())
        starts = np.array([data.storage_offset() for _, data in members], np.int64)
        groups.append((words, starts, np.array([pieces[i].size for i, _ in members], np.int64)))
    for members, found in zip(memories.values(), section_checksums(groups), strict=True):
        for (i, _), checksum in zip(members, found, strict=True):
            sums[i] = checksum
    return iter(sums)


def decode_chunks(data: Any, head: Head, chunks: Sequence[Stored], where: str | None = None) -> Any:
    """Returns the flat array from a file (uint8 tensor) and what its chunk heads say."""
    coder = coder_of(head.pipeline)
    assert coder is not None
    out = torch.empty(math.prod(head.shape), dtype=torch.float32 if head.dtype.itemsize == 4 else torch.float64, device=data.device)
    words, starts = _aligned(data, [part for chunk in chunks for part in chunk.sections], where)
    tasks, at = [], 0
    for (start, cut), chunk in zip(head.chunks, chunks, strict=True):
        parts = {s.name: (s, words[starts[at + i] : starts[at + i] + -(-s.size // 4)]) for i, (s, _) in enumerate(chunk.sections)}
        at += len(chunk.sections)
        target = out[start : start + math.prod(cut)]
        if chunk.method == "pipeline":
            tasks.append(Task(Grid(math.prod(cut), cut), parts, target))
            continue
        name, size = ("value", 1) if chunk.method == "constant" else ("raw", target.numel())
        if set(parts) != {name} or parts[name][0].dtype != head.dtype or parts[name][0].size != size * head.dtype.itemsize:
            raise InputError(f"{chunk.method} chunk: expected {size} values of {head.dtype}", where=where)
        target.copy_(parts[name][1].view(out.dtype))
    if tasks:
        coder.decode(head, tasks, where)
    return out


def _aligned(data: Any, parts: Sequence[tuple[Section, int]], where: str | None) -> tuple[Any, list[int]]:
    """Copies sections to where words can be read, compares their checksums, and returns their first words there."""
    starts, total = [], 0
    for section, _ in parts:
        starts.append(total)
        total += -(-section.size // (4 * ALIGNED)) * ALIGNED
    words = torch.empty(total, dtype=torch.int32, device=data.device)
    flat = words.view(torch.uint8)
    for (section, at), start in zip(parts, starts, strict=True):
        if section.size:
            flat[4 * start : 4 * start + section.size].copy_(data[at : at + section.size])
    (found,) = section_checksums([(words, np.array(starts, np.int64), np.array([section.size for section, _ in parts], np.int64))])
    for (section, _), checksum in zip(parts, found, strict=True):
        if checksum != section.checksum:
            raise damaged(section, where)
    return words, starts
