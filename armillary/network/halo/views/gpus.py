"""CloverLeaf on simulated GPUs: the ladder's time step as programs of the stream model, from the same table as the real runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from armillary.network.halo.clover.block import FIELDS, HALO, Block, block
from armillary.network.halo.clover.deck import Deck
from armillary.network.halo.clover.step import EXCHANGES, Exchange, Launch, Reduce, divided, extent, table

from .ladder import Access
from .model import Group, Host, Kernel, Meeting, Op, Order, Played, StreamModel, Sync
from .sides import neighbours, sent
from .streams import COMMUNICATION, COMPUTE

_ITEM = 8


def simulate(model: StreamModel, deck: Deck, dims: tuple[int, int], access: Access, *, pairs: int = 2, timeline: bool = False) -> Played:
    """Play `pairs` of steps of a deck on dims[0] × dims[1] GPUs; the seconds are those of a step, and a first pair is not counted."""
    first = model.play(_programs(model, deck, dims, access, 1))
    whole = model.play(_programs(model, deck, dims, access, 1 + pairs), timeline=timeline)
    steps = 2 * pairs
    return Played(
        (whole.seconds - first.seconds) / steps, whole.overlap, (whole.transfer_s - first.transfer_s) / steps,
        (whole.host_s - first.host_s) / steps, whole.timeline,
    )  # fmt: skip


def _programs(model: StreamModel, deck: Deck, dims: tuple[int, int], access: Access, pairs: int) -> list[list[Op]]:
    ranks = math.prod(dims)
    return [
        [op for step in range(2 * pairs) for op in _Step(model, block(deck, dims, divmod(rank, dims[1])), rank, dims, access, step).ops()]
        for rank in range(ranks)
    ]  # fmt: skip


class _Step:
    """The operations of one step of one rank."""

    def __init__(self, model: StreamModel, part: Block, rank: int, dims: Sequence[int], access: Access, number: int) -> None:
        self.model, self.block, self.access, self.number = model, part, access, number
        self.around = neighbours(rank, dims, part.deck.periodic)
        self.ranks = math.prod(dims)

    def ops(self) -> Iterator[Op]:
        """All operations, in the order of the program."""
        costs, access = self.model.costs, self.access
        if access.graph:
            yield Host(costs.graph_s)
        for number, stage in enumerate(table(self.number)):
            if isinstance(stage, Launch):
                yield from self._launch(stage, [self._rect(stage)])
            elif isinstance(stage, Reduce):
                yield from self._reduce(f"{self.number}.{number}")
            else:
                yield from self._exchange(stage)

    def _host(self, seconds: float) -> float:
        """What a call costs the host: nothing inside a captured graph."""
        return 0.0 if self.access.graph else seconds

    def _rect(self, launch: Launch) -> tuple[int, int, int, int]:
        return extent(self.block, launch.over, launch.along)

    def _launch(self, launch: Launch, rects: Sequence[tuple[int, int, int, int]]) -> Iterator[Op]:
        costs, access, arrays = self.model.costs, self.access, len(launch.arrays)
        extra = arrays * ((costs.convert_s if access.convert else 0.0) + (costs.argument_s if access.rebuild else 0.0))
        cells = sum((high - low) * (right - left) for low, high, left, right in rects)
        yield Kernel(launch.kernel, self._host(costs.launch_s + extra), self.model.kernel_s(cells * arrays * _ITEM))

    def _exchange(self, stage: Exchange) -> Iterator[Op]:
        inside: list[Op] = []
        for launch in stage.after:
            rect = self._rect(launch)
            frame, inner = divided(rect) if self.access.split and self.around else ([rect], [])
            yield from self._launch(launch, frame)
            if inner:
                inside += self._launch(launch, inner)
        if self.around:
            yield from self._moved(stage, inside)
        else:
            yield from inside
        if any(self.block.walls):
            nbytes = 2 * stage.depth * (self.block.rows + self.block.columns) * len(stage.fields) * _ITEM
            yield Kernel("reflect", self._host(self.model.costs.launch_s), self.model.kernel_s(nbytes))

    def _moved(self, stage: Exchange, inside: list[Op]) -> Iterator[Op]:
        costs, access = self.model.costs, self.access
        sends = tuple((other, self._bytes(stage, offset)) for offset, other in self.around.items())
        total = sum(nbytes for _, nbytes in sends)
        yield from self._packed("pack", stage, total)
        key = f"{self.number}:{stage.number}"
        if access.sync:
            yield Sync(costs.sync_s)
            # One call per message and one that waits; the library launches a copy for each message that it receives.
            calls = 2 * len(sends) + 1
            yield Group(key, sends, calls * costs.mpi_s + len(sends) * costs.copy_s, stream=None, staged=access.stage)
            yield Sync(costs.sync_s)
            yield from inside
        else:
            yield Order(COMPUTE, COMMUNICATION, self._host(costs.event_s))
            yield Group(key, sends, self._host(costs.group_s), costs.group_device_s)
            yield from inside
            yield Order(COMMUNICATION, COMPUTE, self._host(costs.event_s))
        yield from self._packed("unpack", stage, total)

    def _packed(self, name: str, stage: Exchange, nbytes: int) -> Iterator[Op]:
        """One launch for all sides, or one for each field and side."""
        costs, access = self.model.costs, self.access
        if not (access.loops or access.slices or access.convert):
            yield Kernel(name, self._host(costs.launch_s), self.model.kernel_s(2 * nbytes))
            return
        parts = len(self.around) * len(stage.fields)
        each = costs.launch_s + (costs.convert_s if access.convert else 0.0) + (costs.slice_s if access.slices else 0.0)
        for _ in range(parts):
            yield Kernel(name, self._host(each), self.model.kernel_s(2 * nbytes / parts))

    def _bytes(self, stage: Exchange, offset: tuple[int, ...]) -> int:
        cells = (self.block.rows, self.block.columns)
        total = 0
        for name in stage.fields:
            region = sent(cells, FIELDS[name].extra, HALO, EXCHANGES[stage.number][1], offset)
            total += _ITEM * math.prod(part.stop - part.start for part in region)
        return total

    def _reduce(self, key: str) -> Iterator[Op]:
        costs, access = self.model.costs, self.access
        if access.sync:
            # The limit is read by the host, reduced among hosts, and written back.
            yield Sync(costs.sync_s)
            levels = max(1, math.ceil(math.log2(self.ranks)))
            yield Meeting(key, (2 * levels + 2) * costs.mpi_s, 0.0, stream=None)
        else:
            ring = costs.group_device_s + 2 * (self.ranks - 1) * costs.ring_device_s
            yield Meeting(key, self._host(costs.group_s), ring)
        yield Kernel("advance", self._host(costs.launch_s), self.model.kernel_s(0.0))


def device_bound(model: StreamModel, deck: Deck, dims: tuple[int, int], access: Access) -> bool:
    """Return whether the kernels of a step take longer than the host needs to issue them, so that the host runs ahead of the GPU."""
    ops = list(_Step(model, block(deck, dims), 0, dims, access, 0).ops())
    device = sum(op.device_s for op in ops if isinstance(op, Kernel))
    host = sum(op.seconds if isinstance(op, Host) else op.host_s for op in ops)
    return device >= host
