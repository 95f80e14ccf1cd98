"""`range -> lorenzo -> bitshuffle -> zero-blocks` on a device."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import triton

from armillary.errors import InputError

from ..pipeline.container import Head
from ..pipeline.pipeline import Pipeline
from ..stages.bitshuffle import TILE
from ..stages.stage import make
from . import decode_kernels as decode
from . import encode_kernels as encode
from .chunks import ALIGNED, LARGE, Job, Piece, Task, facts_of, fits, named, on_host
from .quantise_kernels import EXACT
from .sums import Cut, Residuals

#: How many tiles a program of `to_planes` and `to_residuals` takes, and its warps.
TILES, WARPS = 1, 4
_COMPACT_TILES = 8
#: The sections of a chunk in their order, and the place of the stage that each comes from.
_PORTS = ((0, "bound"), (1, "outliers"), (1, "raw_index"), (1, "raw"), (2, "count"), (3, "flags"), (3, "blocks"))


@dataclass(frozen=True)
class SpeedCoder:
    """Chunks to planes, flags and blocks, and back."""

    radius: int
    centre: int

    large: ClassVar[tuple[int, int]] = LARGE

    @classmethod
    def of(cls, pipeline: Pipeline) -> SpeedCoder | None:
        """Returns the coder of this pipeline, or None where it is another one."""
        stages = [node.stage for node in pipeline.nodes]
        if [stage.name for stage in stages] != ["range", "lorenzo", "bitshuffle", "zero-blocks"]:
            return None
        radius, centre = stages[1].config()["radius"], stages[2].config()["centre"]
        plain = Pipeline([make("range"), make("lorenzo", {"radius": radius}), make("bitshuffle", {"centre": centre}), make("zero-blocks")])
        return cls(radius, centre) if plain == pipeline else None

    def encode(self, flat: Any, head: Head, jobs: Sequence[Job]) -> dict[int, list[Piece]]:
        """Returns the sections of each chunk that gets smaller, by its number."""
        return _Encoded(flat, head, jobs, self.radius, self.centre).sections()

    def decode(self, head: Head, tasks: Sequence[Task], where: str | None) -> None:
        """Fills every task's `out`."""
        chunks = [_Decoding(head, task, self.radius, self.centre, where) for task in tasks]
        for chunk, facts in zip(chunks, on_host([chunk.facts() for chunk in chunks]), strict=True):
            chunk.prepare(facts)
        for chunk, found in zip(chunks, on_host([chunk.count_blocks() for chunk in chunks]), strict=True):
            chunk.check_blocks(int(found[0]))
        for chunk, found in zip(chunks, on_host([chunk.fill() for chunk in chunks]), strict=True):
            chunk.residuals.check(found)
        for chunk in chunks:
            chunk.residuals.values()


class _Encoded:
    """Planes, flags and counts of every job, and from them the sections."""

    def __init__(self, flat: Any, head: Head, jobs: Sequence[Job], radius: int, centre: int) -> None:
        self.flat, self.head, self.jobs, self.radius = flat, head, jobs, radius
        device = flat.device
        edges = np.concatenate([[0], np.cumsum([job.grid.tiles for job in jobs])])
        tiles = int(edges[-1])
        self.tiles = [slice(int(a), int(b)) for a, b in itertools.pairwise(edges)]
        self.facts = facts_of(jobs, device)
        self.planes = torch.empty(tiles * TILE // 2, dtype=torch.int32, device=device)
        self.flags = torch.empty(tiles * 8, dtype=torch.int32, device=device)
        self.counts = torch.empty((3, tiles), dtype=torch.int32, device=device)
        for k, (job, here) in enumerate(zip(jobs, self.tiles, strict=True)):
            encode.to_planes[(triton.cdiv(job.grid.tiles, TILES),)](
                flat[job.start :], self.facts[k], self.planes[here.start * TILE // 2 :].view(torch.int16),
                self.flags[here.start * 8 :].view(torch.int16), self.counts[0, here], self.counts[1, here], self.counts[2, here],
                job.grid.tiles, *job.grid.whole, *job.grid.facts, radius, centre, DIMENSIONS=job.grid.dimensions, WIDE=job.wide,
                TILES=TILES, num_warps=WARPS, **EXACT,
            )  # fmt: skip
        self.ends = self.counts.cumsum(1)

    def sections(self) -> dict[int, list[Piece]]:
        """Returns the pieces of every job that the pipeline makes smaller, by chunk."""
        last = torch.tensor([here.stop - 1 for here in self.tiles])
        ends = self.ends[:, last.to(self.flat.device)].cpu().numpy()
        firsts = np.concatenate([np.zeros((3, 1), np.int64), ends[:, :-1]], axis=1)
        amounts = ends - firsts
        itemsize = self.head.dtype.itemsize
        layout: dict[int, list[tuple[int, int]]] = {}
        words = 0
        for k, job in enumerate(self.jobs):
            blocks, outliers, violators = (int(n) for n in amounts[:, k])
            sizes = [outliers * (2 if job.wide else 1), violators, violators * itemsize // 4, blocks * 4, 8 * job.grid.tiles]
            if not fits(job, self.head, 4 * sum(sizes) + 24):
                continue
            layout[k] = []
            for size in sizes:
                layout[k].append((words, size))
                words += -(-size // ALIGNED) * ALIGNED
        scratch = torch.empty(words, dtype=torch.int32, device=self.flat.device)
        made = {}
        for k, places in layout.items():
            parts = [scratch[start : start + size] for start, size in places]
            self._fill(k, firsts[:, k], amounts[:, k], parts)
            made[self.jobs[k].number] = self._pieces(k, *parts)
        return made

    def _fill(self, k: int, firsts: np.ndarray, amounts: np.ndarray, out: Sequence[Any]) -> None:
        job, here = self.jobs[k], self.tiles[k]
        counts, ends = [row[here] for row in self.counts], [row[here] for row in self.ends]
        encode.compact[(triton.cdiv(job.grid.tiles, _COMPACT_TILES),)](
            self.planes[here.start * TILE // 2 :], self.flags[here.start * 8 :].view(torch.int16), ends[0], counts[0], int(firsts[0]),
            out[3], job.grid.tiles, TILES=_COMPACT_TILES,
        )  # fmt: skip
        # In one memory with the rest, their checksums come from the same launch.
        out[4].copy_(self.flags[8 * here.start : 8 * here.stop])
        if amounts[1] or amounts[2]:
            encode.collect[(job.grid.tiles,)](
                self.flat[job.start :], self.facts[k], ends[1], counts[1], ends[2], counts[2], int(firsts[1]), int(firsts[2]),
                out[0].view(torch.int64 if job.wide else torch.int32), out[1], out[2].view(self.flat.dtype), *job.grid.whole,
                *job.grid.facts, self.radius, DIMENSIONS=job.grid.dimensions, WIDE=job.wide, num_warps=8, **EXACT,
            )  # fmt: skip

    def _pieces(self, k: int, outliers: Any, places: Any, raw: Any, blocks: Any, flags: Any) -> list[Piece]:
        job = self.jobs[k]
        integer = np.dtype("<i8" if job.wide else "<i4")
        dtypes = [np.dtype("<f8"), integer, np.dtype("<u4"), self.head.dtype, np.dtype("<i8"), np.dtype("u1"), np.dtype("<u2")]
        data = [job.bound.tobytes(), outliers, places, raw, np.array([job.grid.size], np.int64).tobytes(), flags, blocks]
        return [
            Piece(name, dtype, part, len(part) if isinstance(part, bytes) else 4 * part.numel())
            for name, dtype, part in zip(named(self.head.pipeline, _PORTS), dtypes, data, strict=True)
        ]


class _Decoding:
    """One chunk on its way back; each step queues work, and gives what the host has to look at before the next."""

    def __init__(self, head: Head, task: Task, radius: int, centre: int, where: str | None) -> None:
        self.grid, self.radius, self.centre, self.where = task.grid, radius, centre, where
        kinds = ("f8", "i4 i8", "u4", head.dtype.str[1:], "i8", "u1", "u2")
        found = task.take(list(zip(named(head.pipeline, _PORTS), kinds, strict=True)), where)
        self.bound, self.outliers, self.places, self.raw, self.count, flags, blocks = found
        if (self.bound[0].size, self.count[0].size) != (16, 8):
            raise InputError("chunk: found no bound of two numbers with one count", where=where)
        if flags[0].size != 32 * self.grid.tiles or blocks[0].size % 16:
            raise InputError(f"zero blocks: found {flags[0].size} bytes of flags for {self.grid.size} values", where=where)
        self.flags, self.blocks = flags[1].view(torch.int16), blocks[1].view(torch.int16)
        self.residuals = Residuals(self.grid, Cut(self.grid.size, self.grid.size), task.out, radius, where)

    def facts(self) -> Any:
        """Returns the bound and how many codes there are, as six words."""
        return torch.cat([self.bound[1], self.count[1]])

    def prepare(self, words: np.ndarray) -> None:
        """Takes note of them, and gets memory."""
        (eps, wide), codes = words[:4].view(np.float64), int(words[4:].view(np.int64)[0])
        if codes != self.grid.size:
            raise InputError(f"bit planes: found {codes} codes; expected {self.grid.size}", where=self.where)
        self.residuals.take(self.outliers, self.places, self.raw, float(eps), wide != 0.0)

    def count_blocks(self) -> Any:
        """Counts the blocks that the flags ask for."""
        self.counts = torch.empty(self.grid.tiles, dtype=torch.int32, device=self.flags.device)
        decode.count_blocks[(triton.cdiv(self.grid.tiles, 64),)](self.flags, self.counts, self.grid.tiles, TILES=64)
        self.ends = self.counts.cumsum(0)
        return self.ends[-1:]

    def check_blocks(self, found: int) -> None:
        """Refuses flags that ask for other blocks than there are."""
        if found * 8 != self.blocks.numel():
            raise InputError(f"zero blocks: found {self.blocks.numel()} words; the flags ask for {found * 8}", where=self.where)

    def fill(self) -> Any:
        """Fills in the residuals, and those that have no code."""
        decode.to_residuals[(triton.cdiv(self.grid.tiles, TILES),)](
            self.flags, self.ends, self.counts, self.blocks, self.residuals.sums, self.residuals.zeros, self.grid.tiles, *self.grid.whole,
            self.radius, self.centre, TILES=TILES, num_warps=WARPS,
        )  # fmt: skip
        return self.residuals.gaps()
