"""`range -> interp -> histogram -> huffman -> zstd` on a device; the host makes code tables and Zstandard frames, and decides on plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from armillary.errors import InputError

from ..pipeline.container import Head, Section
from ..pipeline.pipeline import Pipeline
from ..stages.bitshuffle import TILE
from ..stages.interpolation import ROUNDS, STRIDES, Interp, Plan, checked_plan
from ..stages.lossless import Zstd
from ..stages.stage import Context, make
from . import decode_kernels as decode
from .chunks import ALIGNED, Grid, Job, Piece, Task, fits, named, on_host
from .frames import packed, to_device, to_host, unpacked
from .huffman import Stream, chunk_words, code_tables, pack
from .huffman import unpacked as unpacked_codes
from .interpolation import Batch, Run, Shape
from .sums import Cut, Residuals
from .tuning import Search, Subject

#: The sections of a chunk in their order, and the place of the stage that each comes from.
_PORTS = (
    (0, "bound"), (1, "raw"), (1, "anchor_outliers"), (1, "anchor_raw_index"), (1, "anchor_raw"), (1, "plan"), (3, "table"), (3, "sizes"),
    (3, "bits"),
)  # fmt: skip
#: Chunks that are coded together: bytes and number.
_GROUP_BYTES, _GROUP = 4 << 30, 256


@dataclass(frozen=True)
class QualityCoder:
    """Chunks to Huffman codes of interpolated residuals in Zstandard frames, and back."""

    stage: Interp
    level: int

    #: One thread of the host makes the frames of a chunk, so that chunks of a gibibyte would leave most threads idle.
    large: ClassVar[tuple[int, int]] = (512 << 20, 128 << 20)

    @classmethod
    def of(cls, pipeline: Pipeline) -> QualityCoder | None:
        """Returns the coder of this pipeline, or None where it is another one."""
        stages = [node.stage for node in pipeline.nodes]
        names = [stage.name for stage in stages]
        if names not in (["range", "interp", kind, "huffman", "zstd"] for kind in ("histogram", "topk-histogram")):
            return None
        interp, zstd = stages[1], stages[4]
        plain = Pipeline([make(stage.name, stage.config()) for stage in stages])
        return cls(interp, zstd.level) if plain == pipeline and isinstance(interp, Interp) and isinstance(zstd, Zstd) else None

    def encode(self, flat: Any, head: Head, jobs: Sequence[Job]) -> dict[int, list[Piece]]:
        """Returns the sections of each chunk that gets smaller, by its number."""
        made: dict[int, list[Piece]] = {}
        for group in _groups(jobs, head.dtype.itemsize):
            made |= _Encoded(self, flat, head, group).pieces()
        return made

    def decode(self, head: Head, tasks: Sequence[Task], where: str | None) -> None:
        """Fills every task's `out`."""
        _Decoding(self, head, tasks, where).values()


def _groups(jobs: Sequence[Job], itemsize: int) -> Iterator[list[Job]]:
    group: list[Job] = []
    room = _GROUP_BYTES
    for job in jobs:
        size = job.grid.size * itemsize
        if group and (size > room or len(group) == _GROUP):
            yield group
            group, room = [], _GROUP_BYTES
        group.append(job)
        room -= size
    yield group


class _Encoded:
    """Codes of some chunks, and from them their sections."""

    def __init__(self, coder: QualityCoder, flat: Any, head: Head, jobs: Sequence[Job]) -> None:
        self.coder, self.head, self.jobs, self.device = coder, head, jobs, flat.device
        self.first = jobs[0].start
        self.x = flat[self.first : jobs[-1].start + jobs[-1].grid.size]
        self.recon = torch.empty_like(self.x)
        self.starts = np.concatenate([[0], np.cumsum([job.grid.tiles for job in jobs])]) * TILE
        self.codes = torch.empty(int(self.starts[-1]), dtype=torch.int16, device=self.device)
        self.searches: dict[Shape, Search] = {}
        self.plans = dict.fromkeys(range(len(jobs)), coder.stage.plan)
        if coder.stage.tune:
            self._tune()
        else:
            self._code(self.plans)

    def _tune(self) -> None:
        """Codes each chunk until what comes back would be coded in the same way, or else by the first plan; as `Interp.forward`."""
        first: dict[int, Plan] = {}
        left = self._found(self.x, list(self.plans))
        for _ in range(ROUNDS):
            self._code(left)
            self.plans |= left
            again = self._found(self.recon, list(left))
            first = left | first
            left = {k: plan for k, plan in again.items() if plan != left[k]}
            if not left:
                return
        left = {k: first[k] for k in left}
        self._code(left)
        self.plans |= left

    def _found(self, values: Any, which: Sequence[int]) -> dict[int, Plan]:
        """Returns the plan that suits the values of each of these chunks."""
        found: dict[int, Plan] = {}
        shapes: dict[Shape, list[int]] = {}
        for k in which:
            shapes.setdefault(self.jobs[k].grid.shape, []).append(k)
        for shape, own in shapes.items():
            if shape not in self.searches:
                self.searches[shape] = Search(self.coder.stage, shape, self.head.dtype, self.head.mode, self.device)
            subjects = [Subject(self.jobs[k].start - self.first, float(self.jobs[k].bound[0]), self.jobs[k].wide) for k in own]
            found |= dict(zip(own, self.searches[shape].plans(values, subjects), strict=True))
        return found

    def _batch(self, plans: dict[int, Plan]) -> Batch:
        runs = []
        for k, plan in plans.items():
            job, eps = self.jobs[k], float(self.jobs[k].bound[0])
            runs.append(Run(job.grid.shape, plan, job.start - self.first, eps, eps, narrow=not job.wide, whole=True))
        return Batch(runs, self.device, self.coder.stage.radius, in_place=True, codes=[int(self.starts[k]) for k in plans])

    def _code(self, plans: dict[int, Plan]) -> None:
        batch = self._batch(plans)
        batch.put_anchors(self.x, self.recon, self.codes)
        batch.predict(self.x, self.recon, self.codes)

    def pieces(self) -> dict[int, list[Piece]]:
        """Returns the sections of every chunk that the pipeline makes smaller, by chunk."""
        sections = self._sections()
        names = named(self.head.pipeline, _PORTS)
        frames = packed([array for chunk in sections for array in chunk], self.coder.level)
        kept, numbers = [], []
        for k, job in enumerate(self.jobs):
            own = frames[len(names) * k : len(names) * (k + 1)]
            if fits(job, self.head, sum(part.size for parts in own for part in parts)):
                kept += own
                numbers.append(job.number)
        words = iter(zip(kept, to_device(kept, self.device), strict=True))
        made: dict[int, list[Piece]] = {}
        for number in numbers:
            made[number] = []
            for name in names:
                parts, data = next(words)
                made[number].append(Piece(name, np.dtype("u1"), data, sum(part.size for part in parts)))
        return made

    def _sections(self) -> list[list[np.ndarray]]:
        """Returns the sections of every chunk before their frames are made, on the host."""
        batch = self._batch(self.plans)
        outside = batch.put_anchors(self.x, self.recon, self.codes)
        seen = batch.tally(self.codes)
        *rows, amounts = on_host([*seen.to(torch.int64), outside.sum(2)])
        far, bad = amounts.reshape(2, -1)
        stored = np.array([row[0] for row in rows]) - far
        own = [self.codes[int(start) :] for start in self.starts[:-1]]
        tables, entries = code_tables(rows, self.device)
        sizes = chunk_words(own, [job.grid.size for job in self.jobs], entries)
        words = np.array([-(-int(each.sum()) // ALIGNED) * ALIGNED for each in sizes])
        places = np.cumsum(words) - words
        bits = torch.zeros(int(words.sum()), dtype=torch.int32, device=self.device)
        for k, (job, each) in enumerate(zip(self.jobs, sizes, strict=True)):
            if each.size:
                pack(own[k], job.grid.size, entries[k], each, bits[int(places[k]) :])
        raw = torch.empty(int(stored.sum()), dtype=self.x.dtype, device=self.device)
        if raw.numel():
            counts, ends, _ = batch.stored(self.codes)
            batch.take_stored(self.x, self.codes, raw, counts, ends)
        found = to_host([bits, raw, *batch.collect_anchors(self.x, outside, amounts.reshape(2, -1).sum(1))])
        cut = [np.split(found[1], np.cumsum(stored)[:-1]), np.split(found[2], np.cumsum(far)[:-1])]
        cut += [np.split(found[3], np.cumsum(bad)[:-1]), np.split(found[4], np.cumsum(bad)[:-1])]
        sections = []
        for k, job in enumerate(self.jobs):
            outliers = cut[1][k].astype(np.int64 if job.wide else np.int32)
            coded = found[0][int(places[k]) : int(places[k]) + int(sizes[k].sum())].view(np.uint32)
            sections.append([
                job.bound, cut[0][k], outliers, cut[2][k].view(np.uint32), cut[3][k], self.plans[k].knobs(),
                np.frombuffer(tables[k], np.uint8), sizes[k].astype(np.uint16), coded,
            ])  # fmt: skip
        return sections


class _Decoding:
    """Chunks on their way back: frames on the host, then codes, anchors and passes on the device."""

    def __init__(self, coder: QualityCoder, head: Head, tasks: Sequence[Task], where: str | None) -> None:
        self.coder, self.head, self.where, self.device = coder, head, where, tasks[0].out.device
        sections = unpacked(list(zip([Context(t.grid.shape, head.dtype) for t in tasks], _frames(tasks), strict=True)))
        names, value = named(head.pipeline, _PORTS), head.dtype.str[1:]
        kinds = list(zip(names, ("f8", value, "i4 i8", "u4", value, "f8", "u1", "u2", "u4"), strict=True))
        moved = [name for name, port in zip(names, _PORTS, strict=True) if port[1] not in ("bound", "plan", "table", "sizes")]
        words = iter(to_device([[found[name].view(np.uint8)] for found in sections for name in moved if name in found], self.device))
        self.tasks = tasks
        self.parts: list[list[tuple[Section, Any]]] = []
        for task, found in zip(tasks, sections, strict=True):
            parts = {
                name: (Section(name, array.dtype, array.nbytes, 0), next(words) if name in moved else array)
                for name, array in sorted(found.items(), key=lambda item: names.index(item[0]) if item[0] in names else -1)
            }
            self.parts.append(Task(task.grid, parts, task.out).take(kinds, where))

    def values(self) -> None:
        """Fills every task's `out`."""
        runs, anchors, streams, raws = [], [], [], []
        starts = np.concatenate([[0], np.cumsum([task.grid.tiles for task in self.tasks])]) * TILE
        memory = torch.empty(0, dtype=self.tasks[0].out.dtype, device=self.device).set_(self.tasks[0].out.untyped_storage())
        for k, (task, parts) in enumerate(zip(self.tasks, self.parts, strict=True)):
            bound, plan = parts[0][1], checked_plan(parts[5][1])
            if bound.size != 2:
                raise InputError("chunk: found no bound of two numbers", where=self.where)
            eps = float(bound[0])
            known = _lattice(task, plan)
            grid = Grid(known.numel(), (known.shape[0], known.shape[1], known.shape[2], known.shape[3]))
            small = torch.empty(grid.size, dtype=task.out.dtype, device=self.device)
            anchors.append(Residuals(grid, Cut(grid.size, grid.size), small, self.coder.stage.radius, self.where))
            anchors[-1].take(parts[2], parts[3], parts[4], eps, bool(bound[1] != 0.0))
            runs.append(Run(task.grid.shape, plan, task.out.storage_offset(), eps, eps, narrow=not bound[1]))
            streams.append(Stream(parts[6][1], parts[7][1], parts[8][1], task.grid.size, int(starts[k])))
            raws.append(parts[1][1].view(task.out.dtype))
        codes = unpacked_codes(streams, int(starts[-1]), self.device, self.where)
        batch = Batch(runs, self.device, self.coder.stage.radius, in_place=True, codes=starts[:-1].tolist())
        counts, ends, totals = batch.stored(codes)
        for chunk, start in zip(anchors, starts[:-1], strict=True):
            decode.from_codes[(chunk.tiles,)](
                codes[int(start) :], chunk.sums, chunk.zeros, chunk.grid.size, self.coder.stage.radius, BLOCK=TILE, num_warps=4
            )
        *gaps, last = on_host([*(chunk.gaps() for chunk in anchors), totals])
        for chunk, found, expected, raw in zip(anchors, gaps, np.diff(last, prepend=0), raws, strict=True):
            chunk.check(found)
            if int(expected) != raw.numel():
                raise InputError(f"raw values: found {raw.numel()}; expected {expected}, one for each zero code", where=self.where)
        some = any(part.numel() for part in raws)
        raw = torch.cat(raws) if some else memory[:1]
        odd = some and not bool(torch.isfinite(raw).all())
        for chunk, task, run in zip(anchors, self.tasks, runs, strict=True):
            chunk.values()
            _lattice(task, run.plan).copy_(torch.nan_to_num(chunk.out, nan=0.0, posinf=0.0, neginf=0.0).view(chunk.grid.shape))
        batch.restore(memory, codes, raw, counts, ends)
        if odd:
            batch.put_stored(memory, codes, raw, counts, ends)
        for chunk, task, run in zip(anchors, self.tasks, runs, strict=True):
            _lattice(task, run.plan).copy_(chunk.out.view(chunk.grid.shape))


def _lattice(task: Task, plan: Plan) -> Any:
    """Returns the anchors of a chunk, as a view."""
    apart = plan.stride or STRIDES[task.grid.dimensions]
    return task.out.view(task.grid.shape)[:, ::apart, ::apart, ::apart]


def _frames(tasks: Sequence[Task]) -> list[dict[str, np.ndarray]]:
    """Returns the sections of every chunk as they are in the file, on the host; they lie in one memory and are copied at once."""
    parts = [part for task in tasks for part in task.parts.values() if part[1].numel()]
    if not parts:
        return [{name: np.zeros(0, section.dtype) for name, (section, _) in task.parts.items()} for task in tasks]
    begin = min(words.storage_offset() for _, words in parts)
    end = max(words.storage_offset() + words.numel() for _, words in parts)
    memory = torch.empty(0, dtype=torch.int32, device=parts[0][1].device).set_(parts[0][1].untyped_storage())
    (host,) = to_host([memory[begin:end]])
    flat = host.view(np.uint8)
    found = []
    for task in tasks:
        own = {}
        for name, (section, words) in task.parts.items():
            at = 4 * (words.storage_offset() - begin) if section.size else 0
            own[name] = flat[at : at + section.size].view(section.dtype)
        found.append(own)
    return found
