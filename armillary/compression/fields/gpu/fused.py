"""The fused rivals on a device take one kernel each, and a second one where values are stored; the inverse goes through the shared sums."""

from __future__ import annotations

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
from ..stages.cuszp_fused import BLOCK
from ..stages.fz_fused import piece_size
from . import decode_kernels as decode
from . import encode_kernels as encode
from . import fused_kernels as fused
from .chunks import LARGE, Grid, Job, Piece, Task, facts_of, fits, named, on_host
from .quantise_kernels import EXACT
from .sums import Cut, Residuals

#: Blocks of 32 values that a program of `cuszp` takes; predecessors that one look back takes in.
BLOCKS, WINDOW = 64, 32
_FZ = ((0, "bound"), *((1, port) for port in ("flags", "blocks", "counts", "outliers", "raw_index", "raw")))
_CUSZP = ((0, "bound"), *((1, port) for port in ("widths", "words", "raw_index", "raw")))
_RADIUS = 32768


def _cut(grid: Grid) -> Cut:
    item = grid.size // grid.shape[0]
    return Cut(item, min(item, piece_size(grid.shape, grid.dimensions)))


def _pieces(head: Head, ports: Sequence[tuple[int, str]], dtypes: Sequence[str], data: Sequence[Any], sizes: Sequence[int]) -> list[Piece]:
    return [
        Piece(name, np.dtype(dtype), part, size)
        for name, dtype, part, size in zip(named(head.pipeline, ports), dtypes, data, sizes, strict=True)
    ]


@dataclass(frozen=True)
class FzCoder:
    """`range -> fz-fused`."""

    large: ClassVar[tuple[int, int]] = LARGE

    @classmethod
    def of(cls, pipeline: Pipeline) -> FzCoder | None:
        """Returns the coder of this pipeline, or None where it is another one."""
        return cls() if pipeline == Pipeline.named("fz-fused") else None

    def encode(self, flat: Any, head: Head, jobs: Sequence[Job]) -> dict[int, list[Piece]]:
        """Returns the sections of each chunk that gets smaller, by its number."""
        device, facts = flat.device, facts_of(jobs, flat.device)
        cuts = [_cut(job.grid) for job in jobs]
        tiles = [job.grid.size // cut.item * cut.item_tiles for job, cut in zip(jobs, cuts, strict=True)]
        first = np.concatenate([[0], np.cumsum(tiles)])
        flags = torch.empty(int(first[-1]) * 8, dtype=torch.int32, device=device)
        blocks = torch.empty(int(first[-1]) * TILE // 2, dtype=torch.int32, device=device)
        counts = torch.empty((3, int(first[-1])), dtype=torch.int32, device=device)
        state = torch.zeros(int(first[-1]), dtype=torch.int64, device=device)
        drawn = torch.zeros(len(jobs), dtype=torch.int32, device=device)
        for k, (job, cut) in enumerate(zip(jobs, cuts, strict=True)):
            here = slice(int(first[k]), int(first[k + 1]))
            fused.fz[(tiles[k],)](
                flat[job.start :], facts[k], drawn[k:], state[here], flags[8 * here.start :].view(torch.int64),
                blocks[here.start * TILE // 2 :].view(torch.int16), counts[0, here], counts[1, here], counts[2, here], tiles[k],
                *cut.facts, *job.grid.facts, DIMENSIONS=job.grid.dimensions, WINDOW=WINDOW, num_warps=4, **EXACT,
            )  # fmt: skip
        ends = torch.cat([torch.zeros((3, 1), dtype=torch.int64, device=device), counts.cumsum(1)], 1)
        edges = [int(first[k]) + _edges(cut, job.grid.size // cut.item) for k, (job, cut) in enumerate(zip(jobs, cuts, strict=True))]
        found = np.split(
            ends[:, torch.from_numpy(np.concatenate(edges)).to(device)].cpu().numpy(), np.cumsum([e.size for e in edges])[:-1], axis=1
        )
        made, itemsize = {}, head.dtype.itemsize
        for k, (job, cut, at) in enumerate(zip(jobs, cuts, found, strict=True)):
            here = slice(int(first[k]), int(first[k + 1]))
            own, outliers, violators = (int(n) for n in at[:, -1] - at[:, 0])
            per_piece = np.diff(at[:2], axis=1).T.astype(np.uint32)
            sizes = [16, 32 * tiles[k], 16 * own, per_piece.nbytes, 4 * outliers, 4 * violators, itemsize * violators]
            if not fits(job, head, sum(sizes)):
                continue
            far = torch.empty(outliers, dtype=torch.int32, device=device)
            places = torch.empty(violators, dtype=torch.int32, device=device)
            raw = torch.empty(violators, dtype=flat.dtype, device=device)
            if outliers or violators:
                encode.collect[(tiles[k],)](
                    flat[job.start :], facts[k], ends[1, 1:][here], counts[1, here], ends[2, 1:][here], counts[2, here], int(at[1, 0]),
                    int(at[2, 0]), far, places, raw, *cut.facts, *job.grid.facts, _RADIUS - 1, DIMENSIONS=job.grid.dimensions, WIDE=False,
                    num_warps=8, **EXACT,
                )  # fmt: skip
            start = here.start * TILE // 2
            data = [
                job.bound.tobytes(), flags[8 * here.start : 8 * here.stop], blocks[start : start + 4 * own], per_piece.tobytes(), far,
                places, raw.view(torch.int32),
            ]  # fmt: skip
            made[job.number] = _pieces(head, _FZ, ("<f8", "u1", "<u2", "<u4", "<i4", "<u4", head.dtype.str), data, sizes)
        return made

    def decode(self, head: Head, tasks: Sequence[Task], where: str | None) -> None:
        """Fills every task's `out`."""
        kinds = list(zip(named(head.pipeline, _FZ), ("f8", "u1", "u2", "u4", "i4", "u4", head.dtype.str[1:]), strict=True))
        found = [task.take(kinds, where) for task in tasks]
        chunks = [Residuals(task.grid, _cut(task.grid), task.out, _RADIUS, where) for task in tasks]
        asked = []
        for chunk, (bound, flags, blocks, counts, *_) in zip(chunks, found, strict=True):
            pieces = chunk.grid.size // chunk.cut.item * chunk.cut.pieces
            if bound[0].size != 16 or flags[0].size != 32 * chunk.tiles or counts[0].size != 8 * pieces or blocks[0].size % 16:
                raise InputError(
                    f"fused pieces: found {counts[0].size // 8} with {flags[0].size} bytes of flags; expected {pieces}, {32 * chunk.tiles}",
                    where=where,
                )
            own = torch.empty(chunk.tiles, dtype=torch.int32, device=chunk.out.device)
            decode.count_blocks[(triton.cdiv(chunk.tiles, 64),)](flags[1].view(torch.int16), own, chunk.tiles, TILES=64)
            asked.append((own, own.cumsum(0)))
        bounds = on_host([part[0][1] for part in found])
        _check_counts(chunks, [f[3][1] for f in found], 0, [ends for _, ends in asked], [f[2][0].size // 16 for f in found], where)
        for chunk, words, parts, (own, ends) in zip(chunks, bounds, found, asked, strict=True):
            # Values are within 32 bits whatever the second number of the bound says.
            chunk.take(parts[4], parts[5], parts[6], float(words.view(np.float64)[0]), False)
            decode.to_residuals[(chunk.tiles,)](
                parts[1][1].view(torch.int16), ends, own, parts[2][1].view(torch.int16), chunk.sums, chunk.zeros, chunk.tiles,
                *chunk.cut.facts, _RADIUS, _RADIUS, TILES=1, num_warps=4,
            )  # fmt: skip
        for chunk, gaps in zip(chunks, on_host([chunk.gaps() for chunk in chunks]), strict=True):
            chunk.check(gaps)
        _check_counts(chunks, [f[3][1] for f in found], 1, [chunk.ends for chunk in chunks], [f[4][0].size // 4 for f in found], where)
        for chunk in chunks:
            chunk.values()


def _check_counts(
    chunks: Sequence[Residuals], counts: Sequence[Any], column: int, sums: Sequence[Any], there: Sequence[int], where: str | None
) -> None:
    """Refuses counts of pieces (blocks and outliers) that are not those of the flags or codes, `sums` over tiles, or not what is there."""
    tensors = []
    for chunk, listed, ends in zip(chunks, counts, sums, strict=True):
        last = torch.from_numpy(_edges(chunk.cut, chunk.grid.size // chunk.cut.item)[1:] - 1).to(ends.device)
        tensors.append(torch.cat([ends[last], (listed.view(-1, 2)[:, column].to(torch.int64) & 0xFFFFFFFF).cumsum(0)]))
    for both, amount in zip(on_host(tensors), there, strict=True):
        ends, listed = both.reshape(2, -1)
        if int(ends[-1]) != amount or (ends != listed).any():
            raise InputError("fused pieces: flags and codes ask for other blocks and outliers than there are", where=where)


def _edges(cut: Cut, items: int) -> np.ndarray:
    """Returns first tiles of all pieces of a chunk, and the end."""
    starts = np.arange(items)[:, None] * cut.item_tiles + np.arange(cut.pieces)[None, :] * cut.piece_tiles
    return np.append(starts.reshape(-1), items * cut.item_tiles)


@dataclass(frozen=True)
class CuszpCoder:
    """`range -> cuszp-fused`."""

    large: ClassVar[tuple[int, int]] = LARGE

    @classmethod
    def of(cls, pipeline: Pipeline) -> CuszpCoder | None:
        """Returns the coder of this pipeline, or None where it is another one."""
        return cls() if pipeline == Pipeline.named("cuszp-fused") else None

    def encode(self, flat: Any, head: Head, jobs: Sequence[Job]) -> dict[int, list[Piece]]:
        """Returns the sections of each chunk that gets smaller, by its number."""
        device, facts = flat.device, facts_of(jobs, flat.device)
        blocks = [-(-job.grid.size // BLOCK) for job in jobs]
        programs = [triton.cdiv(n, BLOCKS) for n in blocks]
        first = np.concatenate([[0], np.cumsum(programs)])
        counts = torch.empty((2, int(first[-1])), dtype=torch.int32, device=device)
        state = torch.zeros(int(first[-1]), dtype=torch.int64, device=device)
        drawn = torch.zeros(len(jobs), dtype=torch.int32, device=device)
        widths = torch.zeros(int(first[-1]) * BLOCKS // 4, dtype=torch.int32, device=device)
        words = torch.empty(int(first[-1]) * BLOCKS * 33, dtype=torch.int32, device=device)
        for k, job in enumerate(jobs):
            here = slice(int(first[k]), int(first[k + 1]))
            fused.cuszp[(programs[k],)](
                flat[job.start :], facts[k], drawn[k:], state[here], widths[here.start * BLOCKS // 4 :].view(torch.int8),
                words[here.start * BLOCKS * 33 :], counts[0, here], counts[1, here], job.grid.size, blocks[k], BLOCKS=BLOCKS,
                WINDOW=WINDOW, num_warps=4, **EXACT,
            )  # fmt: skip
        ends = counts.cumsum(1)
        last = ends[:, torch.from_numpy(first[1:] - 1).to(device)].cpu().numpy()
        before = np.concatenate([np.zeros((2, 1), np.int64), last[:, :-1]], axis=1)
        made = {}
        for k, job in enumerate(jobs):
            own, violators = (int(n) for n in last[:, k] - before[:, k])
            sizes = [16, blocks[k], 4 * own, 4 * violators, head.dtype.itemsize * violators]
            if not fits(job, head, sum(sizes)):
                continue
            places = torch.empty(violators, dtype=torch.int32, device=device)
            raw = torch.empty(violators, dtype=flat.dtype, device=device)
            here = slice(int(first[k]), int(first[k + 1]))
            if violators:
                fused.cuszp_violators[(programs[k],)](
                    flat[job.start :], facts[k], ends[1, here] - int(before[1, k]), counts[1, here], places, raw, job.grid.size,
                    BLOCK=BLOCKS * BLOCK, num_warps=8, **EXACT,
                )  # fmt: skip
            start = here.start * BLOCKS
            data = [
                job.bound.tobytes(), widths[start // 4 : start // 4 + -(-blocks[k] // 4)], words[start * 33 : start * 33 + own], places,
                raw.view(torch.int32),
            ]  # fmt: skip
            made[job.number] = _pieces(head, _CUSZP, ("<f8", "u1", "<u4", "<u4", head.dtype.str), data, sizes)
        return made

    def decode(self, head: Head, tasks: Sequence[Task], where: str | None) -> None:
        """Fills every task's `out`."""
        kinds = list(zip(named(head.pipeline, _CUSZP), ("f8", "u1", "u4", "u4", head.dtype.str[1:]), strict=True))
        found, facts = [task.take(kinds, where) for task in tasks], []
        ends, indices = [], []
        for task, (bound, widths, _, places, raw) in zip(tasks, found, strict=True):
            blocks = -(-task.grid.size // BLOCK)
            if bound[0].size != 16 or widths[0].size != blocks:
                raise InputError(f"fixed-width blocks: found {widths[0].size}; expected {blocks} of at most 32 bits", where=where)
            if places[0].size // 4 * head.dtype.itemsize != raw[0].size:
                raise InputError(f"raw values: found {places[0].size // 4} places for {raw[0].size} bytes", where=where)
            own = widths[1].view(torch.uint8)[:blocks].to(torch.int64)
            ends.append((own + (own > 0)).cumsum(0))
            index = places[1].to(torch.int64) & 0xFFFFFFFF
            indices.append(index)
            last = index.max() if index.numel() else torch.zeros_like(own[0])
            facts.append(torch.cat([torch.stack([own.max(), ends[-1][-1], last]), bound[1].view(torch.int64)]))
        rows = on_host(facts)
        for task, (_, _, words, _, _), row in zip(tasks, found, rows, strict=True):
            if row[0] > 32:
                raise InputError(f"fixed-width blocks: found {row[0]} bits; expected at most 32", where=where)
            if int(row[1]) * 4 != words[0].size:
                raise InputError(f"fixed-width blocks: found {words[0].size // 4} words; the widths ask for {row[1]}", where=where)
            if row[2] >= task.grid.size:
                raise InputError(f"raw values: found a place {row[2]}; expected places below {task.grid.size}", where=where)
        for task, (_, widths, words, _, raw), end, index, row in zip(tasks, found, ends, indices, rows, strict=True):
            step = torch.full((1,), 2.0 * float(row[3:4].view(np.float64)[0]), dtype=torch.float64, device=task.out.device)
            blocks = -(-task.grid.size // BLOCK)
            fused.cuszp_values[(triton.cdiv(blocks, BLOCKS),)](
                widths[1].view(torch.uint8), end, words[1], task.out, step, task.grid.size, blocks, BLOCKS=BLOCKS, num_warps=4, **EXACT
            )
            if index.numel():
                task.out[index] = raw[1].view(task.out.dtype)
