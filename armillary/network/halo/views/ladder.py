"""The ladder: CloverLeaf's time step run in four ways, which differ only in how Python reaches arrays and when it waits.

All follow the table of `clover.step` with the same kernels, so all give the same bits. A rung is a list of calls for even and one for odd
steps; the list is made once, except where a rung is there to show what it costs to make things anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.arrays import on_accelerator
from armillary.network.halo.clover.block import FIELDS, HALO, Block
from armillary.network.halo.clover.step import EXCHANGES, Exchange, Launch, Reduce, divided, extent, table
from armillary.network.halo.clover.walls import mirrors

from .kernels import Kernels
from .stream_halo import StreamHalo
from .streams import COMPUTE, Call, HostStreams, Streams
from .views import Views

Array = Any


@dataclass(frozen=True)
class Access:
    """How a rung reaches arrays. The first six are the sources of overhead, in the order of the paper's (a) to (f)."""

    #: Arrays are converted to the consumer's library at each access.
    convert: bool = False
    #: Halo regions are sliced anew in each exchange.
    slices: bool = False
    #: Fields are packed one by one in Python, instead of in one launch.
    loops: bool = False
    #: The host waits before and after each exchange, with messages posted anew.
    sync: bool = False
    #: Packed halos go through a further buffer, as they must where MPI cannot read GPUs.
    stage: bool = False
    #: Launch arguments are put together at each launch.
    rebuild: bool = False
    #: Launches before an exchange are split, and their inside runs while halos travel.
    split: bool = False
    #: All launches between two exchanges are one.
    graph: bool = False


@dataclass
class Clocked:
    """Seconds of a step that are not Python's: inside kernels of the host, waiting for messages or for a GPU; and conversions made."""

    away_s: float = 0.0
    conversions: int = 0


class Rung:
    """A CloverLeaf run of one rank. `step()` makes a time step; `fields` are the owner's arrays, `clock` is (time step, time, limit)."""

    def __init__(
        self, comm: Any, block: Block, fields: dict[str, Array], dims: Sequence[int], access: Access, kernels: Kernels,
        streams: Streams | None = None,
    ) -> None:  # fmt: skip
        self.block, self.fields, self.access, self.kernels = block, fields, access, kernels
        self.streams = streams or HostStreams()
        deck = block.deck
        self.clock = kernels.clock(deck.initial_timestep)
        self.spent = Clocked()
        self._comm, self._number = comm, 0
        #: Whether the fields lie on a GPU, where a kernel's call only queues it.
        self.on_device = on_accelerator(fields["density0"])
        #: Why a GPU could not capture a step, or "".
        self.fault = ""
        self._views: dict[int, Views] = {}
        self.halos: list[Any] = []
        for names, depth in EXCHANGES:
            views = self._views.get(depth)
            if views is None:
                extra = {name: field.extra for name, field in FIELDS.items()}
                owned = {name: fields[name] for name in FIELDS}
                views = Views(owned, HALO, depth=depth, extra=extra, cells=(block.rows, block.columns))
                self._views[depth] = views
            self.halos.append(self._halo(views, names, dims))
        self._mirrors = [mirrors(block, names, depth) for names, depth in EXCHANGES]
        self.whole = {name: kernels.array(fields[name]) for name in fields} | {"clock": self.clock}
        self._steps: list[Callable[[], None]] = [self._listed(parity) for parity in (0, 1)]

    def step(self) -> None:
        """Make one time step; on a GPU, inside `with rung.streams.on("compute")`."""
        self._steps[self._number % 2]()
        self._number += 1

    def free(self) -> None:
        """Give requests back."""
        for halo in self.halos:
            halo.free()

    def _halo(self, views: Views, names: Sequence[str], dims: Sequence[int]) -> Any:
        access = self.access
        given: dict[str, Any] = {"fields": names, "decomposition": dims, "periodic": self.block.deck.periodic}
        if access.convert or access.slices or access.loops or access.stage:
            from .naive_halo import NaiveHalo

            return NaiveHalo(self._comm, views, access, self.spent, persistent=not access.sync, **given)
        return StreamHalo(self._comm, views, persistent=not access.sync, streams=self.streams, **given)

    def _listed(self, parity: int) -> Callable[[], None]:
        """Return the step of a parity as one function over a list of calls."""
        if self.access.graph and not self.on_device:
            from .graphs import segments

            calls = segments(self, parity)
        else:
            calls = [call for stage in table(parity) for call in self._calls(stage)]
        if self.access.graph and self.on_device:
            from .on_gpu import captured

            return captured(self, [call for _, call in calls])
        clock, spent = time.perf_counter, self.spent

        def step() -> None:
            for away, (function, arguments) in calls:
                if away:
                    began = clock()
                    function(*arguments)
                    spent.away_s += clock() - began
                else:
                    function(*arguments)

        return step

    def _calls(self, stage: Launch | Exchange | Reduce) -> list[tuple[bool, Call]]:
        if isinstance(stage, Reduce):
            return self.reduce()
        if isinstance(stage, Launch):
            return [self._launch(stage, [self.extent(stage)])]
        halo = self.halos[stage.number]
        start, finish = ([(call[0] in halo.away, call) for call in calls] for calls in halo.calls)
        if self.access.sync:
            start = [(True, (self.streams.synchronise, ())), *start]
            finish = [*finish, (True, (self.streams.synchronise, ()))]
        before, inside = [], []
        for launch in stage.after:
            rect = self.extent(launch)
            frame, inner = divided(rect) if self.access.split and halo.around else ([rect], [])
            before.append(self._launch(launch, frame))
            if inner:
                inside.append(self._launch(launch, inner))
        return [*before, *start, *inside, *finish, *self.walls(stage.number)]

    def extent(self, launch: Launch) -> tuple[int, int, int, int]:
        """The rectangle of a launch."""
        return extent(self.block, launch.over, launch.along)

    def scalars(self, launch: Launch) -> list[Any]:
        """What a launch takes before its arrays."""
        deck = self.block.deck
        found: dict[str, list[Any]] = {
            "clock": [self.clock], "size": self.kernels.numbers(deck.dx, deck.dy), "along": [launch.along], "first": [launch.first]
        }  # fmt: skip
        return [value for name in launch.scalars for value in found[name]]

    def _launch(self, launch: Launch, rects: list[tuple[int, int, int, int]]) -> tuple[bool, Call]:
        kernel = self.kernels.find(launch.kernel)
        if not (self.access.rebuild or self.access.convert):
            arrays = [self.whole[name] for name in launch.arrays]
            return not self.on_device, self.streams.bound(COMPUTE, kernel, self.kernels.rects(rects), *self.scalars(launch), *arrays)
        prepared = None if self.access.rebuild else (self.kernels.rects(rects), *self.scalars(launch))
        clock, spent, convert, on_device = time.perf_counter, self.spent, self.access.convert, self.on_device
        converted = sum(name != "clock" for name in launch.arrays) if convert else 0

        def launched() -> None:
            arguments = list(prepared) if prepared is not None else [self.kernels.rects(rects), *self.scalars(launch)]
            for name in launch.arrays:
                arguments.append(self.kernels.array(self.fields[name]) if convert and name != "clock" else self.whole[name])
            spent.conversions += converted
            if on_device:
                kernel(*arguments)
                return
            began = clock()
            kernel(*arguments)
            spent.away_s += clock() - began

        return False, self.streams.bound(COMPUTE, launched)

    def walls(self, number: int) -> list[tuple[bool, Call]]:
        """The launch that mirrors the fields of an exchange at walls, if the block has any."""
        rows = self._mirrors[number]
        if not len(rows):
            return []
        names = EXCHANGES[number][0]
        calls = self.kernels.reflections(rows, [self.whole[name] for name in names])
        return [(not self.on_device, self.streams.bound(COMPUTE, function, *arguments)) for function, arguments in calls]

    def reduce(self) -> list[tuple[bool, Call]]:
        """The least time step of all ranks, which stays where it is, and the clock's advance."""
        deck = self.block.deck
        least = [self.streams.bound(COMPUTE, function, *arguments) for function, arguments in self.kernels.least(self._comm, self.clock)]
        limits = self.kernels.numbers(deck.timestep_rise, deck.max_timestep)
        advance = self.streams.bound(COMPUTE, self.kernels.find("advance"), self.clock, *limits)
        return [*((not self.on_device, call) for call in least), (not self.on_device, advance)]


def sums(block: Block, fields: dict[str, Any]) -> dict[str, float]:
    """Return volume, mass, internal and kinetic energy of a block, from arrays on the host; each sum is rounded once."""
    import math

    inside = (slice(HALO, HALO + block.rows), slice(HALO, HALO + block.columns))
    density, energy = fields["density0"][inside], fields["energy0"][inside]
    squares = np.zeros(density.shape)
    for k in (0, 1):
        for j in (0, 1):
            corner = (slice(HALO + k, HALO + k + block.rows), slice(HALO + j, HALO + j + block.columns))
            squares += 0.25 * (fields["xvel0"][corner] ** 2 + fields["yvel0"][corner] ** 2)
    volume = block.deck.dx * block.deck.dy
    mass = volume * density
    return {
        "volume": volume * density.size, "mass": math.fsum(mass.ravel()), "internal": math.fsum((mass * energy).ravel()),
        "kinetic": math.fsum((mass * 0.5 * squares).ravel()),
    }  # fmt: skip
