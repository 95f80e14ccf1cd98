"""Operators as kernels and transfers on streams, whole or in pieces: what sequential, stream-overlap and copy-engine launch.

Tiles cost what they cost in the fused programs. Pieces are cut so that each keeps whole tiles and every device's link is used evenly:
products by the rows of the owners, attention by heads, mixtures of experts by experts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.training.overlap.machine.mechanisms import Gpu
from armillary.training.overlap.programs.gemm_rs import GemmRs, product
from armillary.training.overlap.programs.moe_dispatch_gemm import MoeDispatchGemm
from armillary.training.overlap.programs.ring_attention import RingAttention
from armillary.training.overlap.programs.template import Grid, Tile, TileProgram
from armillary.training.overlap.programs.ulysses_attention import UlyssesAttention
from armillary.training.overlap.simulation.schedule import Schedule
from armillary.training.overlap.simulation.tracing import compute_seconds, tile_seconds
from armillary.training.overlap.workload import ATTENTIONS, GEMMS, PLAIN, Operator

from .streams import Event, Streams

Seconds = npt.NDArray[np.float64]


def pieces_of(op: Operator, tile: Tile, *, by_owner: bool = False) -> int:
    """The most pieces that leave whole tiles; `by_owner` cuts an all-reduced product into the rows of owners first."""
    n = op.devices
    if op.op == "gemm_ar" and not by_owner:
        return max(1, op.m // tile.m)
    if op.op in GEMMS:
        return max(1, op.m // n // tile.m)
    if op.op in ATTENTIONS:
        return op.batch * op.heads // (n if op.op == "ulysses_attention" else 1)
    return op.experts // n if op.op == "moe_dispatch_gemm" else 1


def with_library(op: Operator, gpu: Gpu, tile: Tile, pieces: int, overlap: bool) -> Schedule:
    """Kernels and library calls; without `overlap` everything is on one stream, and in one piece."""
    tile.check(gpu, op.bytes_per_element)
    made = _Library(op, gpu, tile, pieces if overlap else 1, overlap)
    made.launch()
    return made.streams.schedule()


def with_copies(op: Operator, gpu: Gpu, tile: Tile, pieces: int) -> Schedule:
    """Kernels and copy engines; reductions are kernels of the owner, because a copy engine cannot add."""
    tile.check(gpu, op.bytes_per_element)
    made = _Copies(op, gpu, tile, pieces, True)
    made.launch()
    return made.streams.schedule()


def _parts(total: int, pieces: int) -> list[int]:
    """`total` in so many parts that differ by one at most."""
    return [total * (i + 1) // pieces - total * i // pieces for i in range(pieces)]


class _Decomposed:
    """What both kinds of transfer share: the kernels."""

    def __init__(self, op: Operator, gpu: Gpu, tile: Tile, pieces: int, overlap: bool) -> None:
        self.op, self.gpu, self.tile, self.pieces, self.overlap = op, gpu, tile, pieces, overlap
        self.n = op.devices
        self.streams = Streams(gpu, op.devices)
        self._known: dict[tuple[str, int], tuple[Any, Seconds]] = {}
        #: By device, the last thing on its stream of kernels.
        self.last: list[Event | None] = [None] * self.n

    def launch(self) -> None:
        """Launches the whole operator."""
        name = "plain" if self.op.op in PLAIN else self.op.op
        getattr(self, f"_{name}")()

    def kernel(self, dev: int, seconds: Seconds, after: Sequence[Event] = ()) -> Event:
        """The next kernel on the stream of a device."""
        before = self.last[dev]
        found = self.streams.kernel(dev, seconds, [*after, *([before] if before else [])], self.op.op)
        self.last[dev] = found
        return found

    def rows(self, count: int) -> Seconds:
        """Tiles of a product with this many rows."""
        grid = Grid(count, self.op.n, self.tile.m, self.tile.n)
        action = product(GemmRs(self.op, self.tile), "a", "b", ((0, self.tile.m), (0, self.tile.n)))
        return np.full(grid.count, compute_seconds(self.gpu, action, self.op.dtype))

    def stage(self, dev: int, stage: int) -> Seconds:
        """Blocks of queries of one stage of a ring."""
        program, seconds = self._tasks(RingAttention, dev)
        return seconds[stage * program.blocks : (stage + 1) * program.blocks]

    def heads(self, first: int, last: int) -> Seconds:
        """Blocks of queries of some heads of Ulysses."""
        program, seconds = self._tasks(UlyssesAttention, 0)
        each = program.devices * program.blocks
        return seconds[first * each : last * each]

    def experts(self, dev: int, first: int, last: int) -> Seconds:
        """Tiles of some local experts."""
        program, seconds = self._tasks(MoeDispatchGemm, dev)
        each = self.op.experts // self.n
        local = np.array([b.expert for b in program.routes[1][dev]], np.int64) - dev * each
        return seconds[np.repeat((first <= local) & (local < last), program.columns)]

    def _tasks(self, kind: type[TileProgram], dev: int) -> tuple[Any, Seconds]:
        """The fused program, and the seconds of all its tiles on a device."""
        key = (kind.op, dev)
        if key not in self._known:
            program = self._known[kind.op, 0][0] if (kind.op, 0) in self._known else kind(self.op, self.tile)
            self._known[key] = program, np.array([tile_seconds(program, self.gpu, dev, t) for t in range(program.tasks(dev))], np.float64)
        return self._known[key]

    def expert_bytes(self, first: int, last: int) -> Seconds:
        """Bytes from each device to each, for some local experts of every owner."""
        counts = np.asarray(self.op.counts, np.float64).reshape(self.n, self.n, -1)
        return counts[:, :, first:last].sum(2) * self.op.hidden * self.op.bytes_per_element

    def spans(self, total: int) -> list[tuple[int, int]]:
        """`total` items in pieces, as ranges."""
        ends = np.concatenate([[0], np.cumsum(_parts(total, self.pieces))])
        return [(int(a), int(b)) for a, b in itertools.pairwise(ends)]

    @property
    def every(self) -> range:
        """All devices."""
        return range(self.n)


class _Library(_Decomposed):
    """Library calls; with overlap they are on a stream of their own, one after another."""

    def __init__(self, op: Operator, gpu: Gpu, tile: Tile, pieces: int, overlap: bool) -> None:
        super().__init__(op, gpu, tile, pieces, overlap)
        self.calls: list[Event | None] = [None] * self.n

    def call(self, kind: str, payload: float, after: Sequence[Sequence[Event]], sends: Any = None) -> list[Event]:
        """The next library call; on one stream, kernels wait for it and it waits for them."""
        needed = []
        for dev in self.every:
            before = self.calls[dev] if self.overlap else self.last[dev]
            needed.append([*after[dev], *([before] if before else [])])
        found = self.streams.library(kind, payload, needed, sends)
        for dev in self.every:
            self.calls[dev] = found[dev]
            if not self.overlap:
                self.last[dev] = found[dev]
        return found

    def _gemm_rs(self) -> None:
        self._reduced("reduce-scatter", self.op.m // self.n, self.n)

    def _gemm_ar(self) -> None:
        self._reduced("all-reduce", self.op.m, 1)

    def _reduced(self, kind: str, rows: int, owners: int) -> None:
        for part in _parts(rows, self.pieces):
            seconds = np.tile(self.rows(part), owners)
            done = [[self.kernel(dev, seconds)] for dev in self.every]
            self.call(kind, self.op.payload * part / rows, done)

    def _ag_gemm(self) -> None:
        rows = self.op.m // self.n
        if not self.overlap:
            self.call("all-gather", self.op.payload, [[] for _ in self.every])
            for dev in self.every:
                self.kernel(dev, np.tile(self.rows(rows), self.n))
            return
        for dev in self.every:
            self.kernel(dev, self.rows(rows))
        for part in _parts(rows, self.pieces):
            here = self.call("all-gather", self.op.payload * part / rows, [[] for _ in self.every])
            for dev in self.every:
                if self.n > 1:
                    self.kernel(dev, np.tile(self.rows(part), self.n - 1), [here[dev]])

    def _ring_attention(self) -> None:
        arrived: list[list[Event]] = [[] for _ in self.every]
        before: list[Event | None] = [None] * self.n
        for stage in self.every:
            done = [self.kernel(dev, self.stage(dev, stage), arrived[dev]) for dev in self.every] if not self.overlap else []
            if stage < self.n - 1:
                # The other buffer of the next device is free when that has finished the stage before.
                free = [before[(dev + 1) % self.n] for dev in self.every]
                sent = self.call("send", self.op.payload, [[*arrived[dev], *([f] if (f := free[dev]) else [])] for dev in self.every])
            if self.overlap:
                done = [self.kernel(dev, self.stage(dev, stage), arrived[dev]) for dev in self.every]
            before = list(done)
            if stage < self.n - 1:
                arrived = [[e] for e in sent]

    def _ulysses_attention(self) -> None:
        pairs = self.op.batch * self.op.heads // self.n
        spans = [(first, last, (last - first) / pairs * self.op.payload) for first, last in self.spans(pairs)]
        # All pieces are packed and sent before the first results come back, so that no piece waits for another's attention.
        ready = [[[self.kernel(dev, self._packed(1.5 * share))] for dev in self.every] for *_, share in spans]
        here = [self.call("all-to-all", 0.75 * share, packed) for packed, (*_, share) in zip(ready, spans, strict=True)]
        for arrived, (first, last, share) in zip(here, spans, strict=True):
            done = [[self.kernel(dev, self.heads(first, last), [arrived[dev]])] for dev in self.every]
            back = self.call("all-to-all", 0.25 * share, done)
            for dev in self.every:
                if self.overlap:
                    self.streams.passes(dev, 0.5 * share, [back[dev]], "unpack")
                else:
                    self.kernel(dev, self._packed(0.5 * share))

    def _packed(self, moved: float) -> Seconds:
        return np.full(self.gpu.sms, self.gpu.tile_seconds(0.0, moved / self.gpu.sms, self.op.dtype))

    def _moe_dispatch_gemm(self) -> None:
        spans = self.spans(self.op.experts // self.n)
        sends = [self.expert_bytes(first, last) for first, last in spans]
        ready = [[[self.kernel(dev, self._packed(2 * float(each[dev].sum())))] for dev in self.every] for each in sends]
        here = [self.call("all-to-all", float(each.sum(1).max()), packed, each) for packed, each in zip(ready, sends, strict=True)]
        for arrived, (first, last) in zip(here, spans, strict=True):
            for dev in self.every:
                self.kernel(dev, self.experts(dev, first, last), [arrived[dev]])

    def _plain(self) -> None:
        kind = self.op.op.replace("_", "-")
        self.call(kind, self.op.payload, [[] for _ in self.every])


class _Copies(_Decomposed):
    """Copy engines, which need no SM, and kernels that add where the operator reduces."""

    def _gemm_rs(self) -> None:
        self._owned(self.op.m // self.n, False)

    def _gemm_ar(self) -> None:
        # Owners have equal rows where they can.
        self._owned(-(-self.op.m // self.n), True)

    def _owned(self, rows: int, gather: bool) -> None:
        """Products for each owner in turn, each copied while the next one is computed, then added up by the owner."""
        bytes_per_row = self.op.n * self.op.bytes_per_element
        for part in _parts(rows, self.pieces):
            arrived: list[list[Event]] = [[] for _ in self.every]
            for turn in range(1, self.n + 1):
                for dev in self.every:
                    owner = (dev + turn) % self.n
                    done = self.kernel(dev, self.rows(part))
                    arrived[owner].append(done if owner == dev else self.streams.copy(dev, owner, float(part * bytes_per_row), [done]))
            for dev in self.every:
                if self.n > 1:
                    added = self.streams.passes(dev, float((self.n + 1) * part * bytes_per_row), arrived[dev], "add")
                    if gather:
                        self.streams.copy(dev, None, float(part * bytes_per_row), [added])

    def _ag_gemm(self) -> None:
        rows = self.op.m // self.n
        row = self.op.k * self.op.bytes_per_element
        for dev in self.every:
            self.kernel(dev, self.rows(rows))
        if self.n == 1:
            return
        for part in _parts(rows, self.pieces):
            here = [self.streams.copy(dev, None, float(part * row), []) for dev in self.every]
            for dev in self.every:
                self.kernel(dev, np.tile(self.rows(part), self.n - 1), [e for d, e in enumerate(here) if d != dev])

    def _ring_attention(self) -> None:
        arrived: list[list[Event]] = [[] for _ in self.every]
        before: list[Event | None] = [None] * self.n
        passed: list[list[Event]] = [[] for _ in self.every]
        for stage in self.every:
            sent: list[list[Event]] = [[] for _ in self.every]
            if stage < self.n - 1:
                for dev in self.every:
                    after = (dev + 1) % self.n
                    free = before[after]
                    needed = [*arrived[dev], *passed[after], *([free] if free else [])]
                    sent[after] = [self.streams.copy(dev, after, share, needed) for share in self._shares(self.op.payload)]
            before = [self.kernel(dev, self.stage(dev, stage), arrived[dev]) for dev in self.every]
            # What a device passes on must have left before its buffer is written again.
            passed = [sent[(dev + 1) % self.n] for dev in self.every]
            arrived = sent

    def _shares(self, size: float) -> list[float]:
        return [size / self.pieces] * self.pieces

    def _ulysses_attention(self) -> None:
        pairs = self.op.batch * self.op.heads // self.n
        for first, last in self.spans(pairs):
            share = (last - first) / pairs * self.op.payload / self.n
            here: list[list[Event]] = [[] for _ in self.every]
            for turn in range(1, self.n):
                for dev in self.every:
                    here[(dev + turn) % self.n].append(self.streams.copy(dev, (dev + turn) % self.n, 0.75 * share, []))
            for dev in self.every:
                done = self.kernel(dev, self.heads(first, last), here[dev])
                for turn in range(1, self.n):
                    self.streams.copy(dev, (dev + turn) % self.n, 0.25 * share, [done])

    def _moe_dispatch_gemm(self) -> None:
        for first, last in self.spans(self.op.experts // self.n):
            sends = self.expert_bytes(first, last)
            here: list[list[Event]] = [[] for _ in self.every]
            for dev in self.every:
                ready = self.streams.passes(dev, 2 * float(sends[dev].sum()), [], "pack")
                here[dev].append(ready)
                for turn in range(1, self.n):
                    target = (dev + turn) % self.n
                    if sends[dev, target] > 0:
                        here[target].append(self.streams.copy(dev, target, float(sends[dev, target]), [ready]))
            for dev in self.every:
                self.kernel(dev, self.experts(dev, first, last), here[dev])

    def _plain(self) -> None:
        share = self.op.payload / self.n
        if self.n == 1:
            return
        if self.op.op == "all_gather":
            for dev in self.every:
                self.streams.copy(dev, None, share, [])
            return
        arrived: list[list[Event]] = [[] for _ in self.every]
        for turn in range(1, self.n):
            for dev in self.every:
                arrived[(dev + turn) % self.n].append(self.streams.copy(dev, (dev + turn) % self.n, share, []))
        if self.op.op == "all_to_all":
            return
        for dev in self.every:
            added = self.streams.passes(dev, (self.n + 1) * share, arrived[dev], "add")
            if self.op.op == "all_reduce":
                self.streams.copy(dev, None, share, [added])
