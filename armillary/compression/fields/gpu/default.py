"""`range -> lorenzo -> histogram -> huffman` on a device; code lengths and tables come from the host."""

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
from . import huffman_kernels as kernels
from .chunks import ALIGNED, LARGE, Job, Piece, Task, facts_of, fits, named, on_host
from .huffman import Stream, chunk_words, code_tables, pack, unpacked
from .quantise_kernels import EXACT
from .sums import Cut, Residuals

#: Codes that a program of `histogram` takes, in rounds.
_COUNTED = (4096, 8)
#: A program's histogram lies in registers.
_MOST_RADIUS = 2048
_PORTS = ((0, "bound"), (1, "outliers"), (1, "raw_index"), (1, "raw"), (3, "table"), (3, "sizes"), (3, "bits"))


@dataclass(frozen=True)
class DefaultCoder:
    """Chunks to Huffman codes of Lorenzo residuals, and back."""

    radius: int

    large: ClassVar[tuple[int, int]] = LARGE

    @classmethod
    def of(cls, pipeline: Pipeline) -> DefaultCoder | None:
        """Returns the coder of this pipeline, or None where it is another one."""
        stages = [node.stage for node in pipeline.nodes]
        if [stage.name for stage in stages] != ["range", "lorenzo", "histogram", "huffman"]:
            return None
        radius = stages[1].config()["radius"]
        plain = Pipeline([make("range"), make("lorenzo", {"radius": radius}), make("histogram"), make("huffman")])
        return cls(radius) if plain == pipeline and radius <= _MOST_RADIUS else None

    def encode(self, flat: Any, head: Head, jobs: Sequence[Job]) -> dict[int, list[Piece]]:
        """Returns the sections of each chunk that gets smaller, by its number."""
        device, facts = flat.device, facts_of(jobs, flat.device)
        first = np.concatenate([[0], np.cumsum([job.grid.tiles for job in jobs])])
        tiles = [slice(int(a), int(b)) for a, b in itertools.pairwise(first)]
        codes = torch.empty(int(first[-1]) * TILE, dtype=torch.int16, device=device)
        counts = torch.empty((2, int(first[-1])), dtype=torch.int32, device=device)
        bins = max(2, triton.next_power_of_2(2 * self.radius))
        seen = torch.zeros((len(jobs), bins), dtype=torch.int32, device=device)
        for k, (job, here) in enumerate(zip(jobs, tiles, strict=True)):
            own = codes[here.start * TILE : here.stop * TILE]
            kernels.to_codes[(job.grid.tiles,)](
                flat[job.start :], facts[k], own, counts[0, here], counts[1, here], job.grid.size, *job.grid.facts, self.radius,
                DIMENSIONS=job.grid.dimensions, WIDE=job.wide, num_warps=8, **EXACT,
            )  # fmt: skip
            grid = (triton.cdiv(job.grid.size, _COUNTED[0] * _COUNTED[1]),)
            kernels.histogram[grid](own, seen[k], job.grid.size, BINS=bins, BLOCK=_COUNTED[0], ROUNDS=_COUNTED[1], num_warps=8)
        ends = counts.cumsum(1)
        last = ends[:, torch.from_numpy(first[1:] - 1).to(device)]
        *rows, amounts = on_host([*seen.to(torch.int64), last])
        for job, row in zip(jobs, rows, strict=True):
            row[0] -= -job.grid.size % (_COUNTED[0] * _COUNTED[1])
        tables, entries = code_tables(rows, device)
        sizes = chunk_words([codes[here.start * TILE :] for here in tiles], [job.grid.size for job in jobs], entries)
        stops = amounts.reshape(2, -1)
        begins = np.concatenate([np.zeros((2, 1), np.int64), stops[:, :-1]], axis=1)
        layout: dict[int, list[tuple[int, int]]] = {}
        words = 0
        for k, job in enumerate(jobs):
            far, bad = (int(n) for n in stops[:, k] - begins[:, k])
            own_sizes = [far * (2 if job.wide else 1), bad, bad * head.dtype.itemsize // 4, int(sizes[k].sum())]
            if fits(job, head, 4 * sum(own_sizes) + 16 + len(tables[k]) + 2 * sizes[k].size):
                layout[k] = []
                for size in own_sizes:
                    layout[k].append((words, size))
                    words += -(-size // ALIGNED) * ALIGNED
        scratch = torch.zeros(words, dtype=torch.int32, device=device)
        made = {}
        for k, places in layout.items():
            job, here = jobs[k], tiles[k]
            outliers, index, raw, bits = (scratch[start : start + size] for start, size in places)
            if outliers.numel() or index.numel():
                encode.collect[(job.grid.tiles,)](
                    flat[job.start :], facts[k], ends[0, here], counts[0, here], ends[1, here], counts[1, here], int(begins[0, k]),
                    int(begins[1, k]), outliers.view(torch.int64 if job.wide else torch.int32), index, raw.view(flat.dtype),
                    *job.grid.whole, *job.grid.facts, self.radius, DIMENSIONS=job.grid.dimensions, WIDE=job.wide, num_warps=8, **EXACT,
                )  # fmt: skip
            if bits.numel():
                pack(codes[here.start * TILE :], job.grid.size, entries[k], sizes[k], bits)
            data: list[bytes | Any] = [job.bound.tobytes(), outliers, index, raw, tables[k], sizes[k].astype("<u2").tobytes(), bits]
            dtypes = ("<f8", "<i8" if job.wide else "<i4", "<u4", head.dtype.str, "u1", "<u2", "<u4")
            made[job.number] = [
                Piece(name, np.dtype(dtype), part, len(part) if isinstance(part, bytes) else 4 * part.numel())
                for name, dtype, part in zip(named(head.pipeline, _PORTS), dtypes, data, strict=True)
            ]
        return made

    def decode(self, head: Head, tasks: Sequence[Task], where: str | None) -> None:
        """Fills every task's `out`."""
        kinds = list(zip(named(head.pipeline, _PORTS), ("f8", "i4 i8", "u4", head.dtype.str[1:], "u1", "u2", "u4"), strict=True))
        found = [task.take(kinds, where) for task in tasks]
        chunks = [Residuals(task.grid, Cut(task.grid.size, task.grid.size), task.out, self.radius, where) for task in tasks]
        small = iter(on_host([words.view(torch.uint8)[: s.size] for parts in found for s, words in (parts[0], parts[4], parts[5])]))
        starts = np.concatenate([[0], np.cumsum([task.grid.tiles for task in tasks])]) * TILE
        streams = []
        for task, parts, chunk, start in zip(tasks, found, chunks, starts[:-1], strict=True):
            bound, table, sizes = next(small), next(small), next(small)
            if bound.size != 16:
                raise InputError("chunk: found no bound of two numbers", where=where)
            eps, wide = bound.view(np.float64)
            chunk.take(parts[1], parts[2], parts[3], float(eps), wide != 0.0)
            streams.append(Stream(table, sizes.view(np.uint16), parts[6][1], task.grid.size, int(start)))
        codes = unpacked(streams, int(starts[-1]), tasks[0].out.device, where)
        for k, chunk in enumerate(chunks):
            decode.from_codes[(chunk.tiles,)](
                codes[int(starts[k]) :], chunk.sums, chunk.zeros, chunk.grid.size, self.radius, BLOCK=TILE, num_warps=4
            )
        for chunk, gaps in zip(chunks, on_host([chunk.gaps() for chunk in chunks]), strict=True):
            chunk.check(gaps)
        for chunk in chunks:
            chunk.values()
