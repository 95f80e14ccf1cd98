"""`range -> lorenzo -> histogram -> huffman` on a device; code lengths and tables come from the host."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton

from armillary.errors import InputError

from ..pipeline.container import Head
from ..pipeline.pipeline import Pipeline
from ..stages.bitshuffle import TILE
from ..stages.huffman import AHEAD, CHUNK, LONGEST, coding_tables, lookup_tables, read_table
from ..stages.stage import make
from . import decode_kernels as decode
from . import encode_kernels as encode
from . import huffman_kernels as kernels
from .chunks import ALIGNED, Job, Piece, Task, facts_of, fits, named, on_host
from .quantise_kernels import EXACT
from .sums import Cut, Residuals

#: Codes that a program of `histogram` takes, in rounds; lanes of `pack` and `unpack`.
_COUNTED = (4096, 8)
LANES, DECODED = 1024, 32
#: A program's histogram lies in registers.
_MOST_RADIUS = 2048
_PORTS = ((0, "bound"), (1, "outliers"), (1, "raw_index"), (1, "raw"), (3, "table"), (3, "sizes"), (3, "bits"))


@dataclass(frozen=True)
class DefaultCoder:
    """Chunks to Huffman codes of Lorenzo residuals, and back."""

    radius: int

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
        tables, entries = self._tables(jobs, rows, device)
        sizes = self._sizes(jobs, codes, tiles, entries)
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
                starts = torch.from_numpy(np.cumsum(sizes[k]) - sizes[k]).to(device)
                kernels.pack[(sizes[k].size,)](
                    codes[here.start * TILE :], entries[k], starts, bits, job.grid.size, LANES=LANES, EACH=CHUNK // LANES, num_warps=8
                )
            data: list[bytes | Any] = [job.bound.tobytes(), outliers, index, raw, tables[k], sizes[k].astype("<u2").tobytes(), bits]
            dtypes = ("<f8", "<i8" if job.wide else "<i4", "<u4", head.dtype.str, "u1", "<u2", "<u4")
            made[job.number] = [
                Piece(name, np.dtype(dtype), part, len(part) if isinstance(part, bytes) else 4 * part.numel())
                for name, dtype, part in zip(named(head.pipeline, _PORTS), dtypes, data, strict=True)
            ]
        return made

    def _tables(self, jobs: Sequence[Job], rows: Sequence[np.ndarray], device: Any) -> tuple[list[bytes], Any]:
        """Returns the section `table` of each job, and its entries on the device, which are zero where one symbol alone occurs."""
        tables, entries = [], np.zeros((len(jobs), rows[0].size), np.uint32)
        for k, (job, counts) in enumerate(zip(jobs, rows, strict=True)):
            counts[0] -= -job.grid.size % (_COUNTED[0] * _COUNTED[1])
            table, found = coding_tables(counts[: int(np.flatnonzero(counts)[-1]) + 1], job.grid.size)
            tables.append(table.tobytes())
            if found is not None:
                entries[k] = found[: rows[0].size]
        return tables, torch.from_numpy(entries.view(np.int32)).to(device)

    def _sizes(self, jobs: Sequence[Job], codes: Any, tiles: Sequence[slice], entries: Any) -> list[np.ndarray]:
        """Returns the words of each Huffman chunk; there are none where one symbol alone occurs."""
        found = []
        for k, (job, here) in enumerate(zip(jobs, tiles, strict=True)):
            own = torch.empty(triton.cdiv(job.grid.size, CHUNK), dtype=torch.int32, device=codes.device)
            kernels.count_words[(own.numel(),)](codes[here.start * TILE :], entries[k], own, job.grid.size, CHUNK=CHUNK, num_warps=8)
            found.append(own)
        return [sizes.astype(np.int64) if sizes.any() else np.zeros(0, np.int64) for sizes in on_host(found)]

    def decode(self, head: Head, tasks: Sequence[Task], where: str | None) -> None:
        """Fills every task's `out`."""
        kinds = list(zip(named(head.pipeline, _PORTS), ("f8", "i4 i8", "u4", head.dtype.str[1:], "u1", "u2", "u4"), strict=True))
        found = [task.take(kinds, where) for task in tasks]
        chunks = [Residuals(task.grid, Cut(task.grid.size, task.grid.size), task.out, self.radius, where) for task in tasks]
        small = iter(on_host([words.view(torch.uint8)[: s.size] for parts in found for s, words in (parts[0], parts[4], parts[5])]))
        lanes: list[np.ndarray] = []
        looks: list[np.ndarray] = []
        longers: list[np.ndarray] = []
        starts = np.concatenate([[0], np.cumsum([task.grid.tiles for task in tasks])]) * TILE
        codes = torch.empty(int(starts[-1]), dtype=torch.int16, device=tasks[0].out.device)
        memory = found[0][6][1].untyped_storage()
        for k, (task, parts, chunk) in enumerate(zip(tasks, found, chunks, strict=True)):
            bound, table, sizes = next(small), next(small), next(small)
            if bound.size != 16:
                raise InputError("chunk: found no bound of two numbers", where=where)
            (eps, wide), sizes = bound.view(np.float64), sizes.view(np.uint16)
            chunk.take(parts[1], parts[2], parts[3], float(eps), wide != 0.0)
            count, first, lengths = read_table(table, sizes, parts[6][0].size // 4, task.grid.size)
            if count != task.grid.size:
                raise InputError(f"codes: found {count} of uint16; expected {task.grid.size} of uint16", where=where)
            if lengths.size <= 1:
                codes[int(starts[k]) : int(starts[k + 1])] = np.array(first, np.uint16).view(np.int16).item()
                continue
            look, longer = lookup_tables(first, lengths)
            assert parts[6][1].untyped_storage().data_ptr() == memory.data_ptr()
            ends = parts[6][1].storage_offset() + np.cumsum(sizes, dtype=np.int64)
            firsts = np.arange(sizes.size) * CHUNK
            lanes.append(np.stack([
                ends - sizes, ends, starts[k] + firsts, np.minimum(CHUNK, count - firsts), np.full(sizes.size, len(looks))
            ]))  # fmt: skip
            looks.append(look)
            longers.append(longer)
        if lanes:
            self._unpack(memory, np.concatenate(lanes, axis=1), np.stack(looks), np.stack(longers), codes, where)
        for k, chunk in enumerate(chunks):
            decode.from_codes[(chunk.tiles,)](
                codes[int(starts[k]) :], chunk.sums, chunk.zeros, chunk.grid.size, self.radius, BLOCK=TILE, num_warps=4
            )
        for chunk, gaps in zip(chunks, on_host([chunk.gaps() for chunk in chunks]), strict=True):
            chunk.check(gaps)
        for chunk in chunks:
            chunk.values()

    def _unpack(self, memory: Any, lanes: np.ndarray, looks: np.ndarray, longers: np.ndarray, codes: Any, where: str | None) -> None:
        """Decodes all Huffman chunks of all chunks at once, because a lane takes thousands of steps and one chunk has few of them."""
        assert (looks.shape[1], longers.shape[1]) == (1 << AHEAD, 1 << LONGEST)
        device, chunks = codes.device, lanes.shape[1]
        words = torch.empty(0, dtype=torch.int32, device=device).set_(memory)
        begins, ends, firsts = torch.from_numpy(lanes[:3]).to(device)
        counts, tables = torch.from_numpy(lanes[3:].astype(np.int32)).to(device)
        look, longer = (torch.from_numpy(t.view(np.int32)).to(device) for t in (looks, longers))
        wrong = torch.empty(chunks, dtype=torch.int32, device=device)
        kernels.unpack[(triton.cdiv(chunks, DECODED),)](
            words, begins, ends, firsts, counts, tables, look, longer, codes, wrong, chunks, LANES=DECODED, num_warps=1
        )
        if int(wrong.max()):
            raise InputError("Huffman bits: found a code that is none, or a chunk of another size than its codes", where=where)
