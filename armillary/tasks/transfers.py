"""Data movement in a simulated run: the inputs of a task are fetched before it starts, and dirty copies are written back before they are
evicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError
from armillary.tasks.memories import Copy, Layer, Memories
from armillary.tasks.progress import DONE
from armillary.tasks.regions import Box, covers
from armillary.tasks.trace import LINK, Recorder

if TYPE_CHECKING:
    from armillary.engine import Simulation
    from armillary.tasks.data import Data
    from armillary.tasks.graph import Graph, Task
    from armillary.tasks.site import Site


class Started:
    """A task that has workers; it waits for its inputs and then runs."""

    __slots__ = (
        "again",
        "attempt",
        "before",
        "fetches",
        "handle",
        "missing",
        "pins",
        "place",
        "room",
        "started",
        "task",
        "until",
        "workers",
    )

    def __init__(self, task: Task, workers: list[int], attempt: int, again: bool) -> None:
        self.task, self.workers, self.attempt = task, workers, attempt
        #: Whether it succeeded before and only restores lost data.
        self.again = again
        #: The number of copies that it waits for, and of copies that must be evicted before its own can arrive.
        self.missing = self.before = 0
        self.fetches: list[Copy] = []
        self.pins: list[Copy] = []
        self.place = -1
        #: Bytes reserved for what it will write.
        self.room = 0
        self.handle: Any = None
        self.started = 0.0
        #: When it is expected to release its workers.
        self.until = math.inf


@dataclass(eq=False)
class _Move:
    copy: Copy
    source: Copy
    since: float
    task: Task
    cancel: Callable[[], None]
    #: The task that waits for the eviction of the source, if any.
    makes_room_for: Started | None = None


class Transfers:
    """The data of one simulated run. `ready(started)` is called when the inputs of a task have arrived, and `stranded` when they can no
    longer arrive.
    """

    def __init__(
        self, sim: Simulation, site: Site, graph: Graph, recorder: Recorder, lossy: bool,
        ready: Callable[[Started], None], stranded: Callable[[Started], None],
    ) -> None:  # fmt: skip
        self._sim, self._site, self._graph, self._recorder = sim, site, graph, recorder
        self._ready, self._stranded = ready, stranded
        self._network: Any = None
        if site.cluster is not None:
            from armillary.engine import Network

            self._network = Network(sim, site.cluster)
        self._home: dict[int, int] = {}
        self._dead: set[int] = set()
        self.memories = Memories(site.capacities, self._home_of)
        self._moving: dict[Copy, _Move] = {}
        #: If nodes die: what each ended task read and wrote, so that it can run again.
        self._lossy = lossy
        self._read: dict[int, list[tuple[Layer, Box, int]]] = {}
        self._wrote: dict[int, list[Layer]] = {}

    def _home_of(self, data: Data) -> int:
        place = self._home.get(data.id)
        if place is None:
            place = self._home[data.id] = self._alive(self._site.home(data))
        return place

    def _alive(self, place: int) -> int:
        """The place, or the first one that is still alive."""
        if place in self._dead:
            return next((other for other in range(len(self._site.place_node)) if other not in self._dead), place)
        return place

    # Queries

    def inputs(self, task: Task, again: bool = False) -> list[tuple[Layer, Box, int]]:
        """The (layer, box, bytes) that the task reads; if it runs again, they are the same as the first time."""
        if again:
            return self._read.get(task.id, [])
        return [*self._inputs(task)]

    def _inputs(self, task: Task) -> Iterator[tuple[Layer, Box, int]]:
        for access in task.accesses:
            if access.mode != "writes":
                nbytes = access.piece.nbytes
                for layer in self.memories.needed(access):
                    yield layer, access.box, min(nbytes, layer.nbytes)

    def lost(self, task: Task, again: bool) -> Layer | None:
        """A layer that the task needs but that no longer exists."""
        if self._dead:
            for layer, box, _ in self.inputs(task, again):
                if not self.memories.sources(layer, box):
                    return layer
        return None

    def fetch_s(self, task: Task, worker: int) -> float:
        """Seconds to fetch what the task reads to a worker, one transfer after another, if nothing else moves."""
        place, total = self._site.place_of[worker], 0.0
        for layer, box, nbytes in self._inputs(task):
            if self.memories.find(layer, box, place) is None:
                source = self._source(layer, box, place)
                # Lost data has to be computed again wherever the task runs.
                total += 0.0 if source is None else self._site.transfer_s(nbytes, source.place, place)
        return total

    def bytes_here(self, task: Task, worker: int) -> int:
        """The bytes of the task's inputs that are already at a worker."""
        place = self._site.place_of[worker]
        return sum(nbytes for layer, box, nbytes in self._inputs(task) if self.memories.find(layer, box, place) is not None)

    def _source(self, layer: Layer, box: Box, place: int) -> Copy | None:
        found = self.memories.sources(layer, box)
        node = self._site.place_node[place]
        return next((copy for copy in found if self._site.place_node[copy.place] == node), found[0] if found else None)

    # A task's life

    def claim(self, started: Started, place: int) -> bool:
        """Holds what the task needs at a place and fetches the rest; returns False, and holds nothing, if there is no room now."""
        memories, task = self.memories, started.task
        inputs = self.inputs(task, started.again)
        found: dict[Copy, None] = {}
        absent: dict[tuple[int, Box], tuple[Layer, Box, int]] = {}
        for layer, box, nbytes in inputs:
            copy = memories.find(layer, box, place)
            if copy is None:
                absent[id(layer), box] = (layer, box, nbytes)
            elif copy.leaving:
                return False
            else:
                found[copy] = None
        room = self._room(task, place, inputs, started.again)
        for copy in found:
            copy.pins += 1
        victims = memories.victims(place, room + sum(nbytes for _, _, nbytes in absent.values()))
        if victims is None:
            for copy in found:
                copy.pins -= 1
            return False
        if self._lossy and not started.again:
            self._read[task.id] = inputs
        started.place, started.room, started.pins = place, room, [*found]
        memories.used[place] += room
        for copy in found:
            if copy.waits is not None:
                copy.waits.append(started)
                started.missing += 1
        for layer, box, nbytes in absent.values():
            copy = memories.add(layer, box, place, nbytes)
            copy.waits, copy.pins = [started], 1
            started.missing += 1
            started.fetches.append(copy)
            started.pins.append(copy)
        for victim in victims:
            self._evict(victim, started)
        if not started.before:
            self._launch(started)
        return True

    def _room(self, task: Task, place: int, inputs: list[tuple[Layer, Box, int]], again: bool) -> int:
        """The bytes that the task will add at a place by writing; data that it overwrites completely makes room itself."""
        room = 0
        for access in task.accesses:
            if access.mode != "reads" and self._home_of(access.data) != place:
                replaced = access.mode != "writes" and not again
                freed = sum(n for layer, _, n in inputs if layer.data is access.data and covers(access.box, layer.box)) if replaced else 0
                room += max(0, access.piece.nbytes - freed)
        return room

    def _evict(self, victim: Copy, started: Started) -> None:
        if not victim.dirty:
            self.memories.drop(victim)
            return
        started.before += 1
        victim.leaving = True
        home = self.memories.add(victim.layer, victim.box, self._home_of(victim.layer.data), victim.nbytes)
        home.waits = []
        self._move(home, victim, started.task, started)

    def _launch(self, started: Started) -> None:
        for copy in started.fetches:
            source = self._source(copy.layer, copy.box, copy.place)
            if source is None:
                self._stranded(started)
                return
            self._move(copy, source, started.task)
        started.fetches = []

    def release(self, started: Started) -> None:
        """Releases what the task held at its place."""
        for copy in started.pins:
            copy.pins -= 1
        for copy in started.fetches:
            # It was never requested, so every other task that waits for it has to start again too.
            self.memories.drop(copy)
            for other in copy.waits or ():
                if other is not started:
                    self._stranded(other)
        self.memories.used[started.place] -= started.room if started.place >= 0 else 0
        started.pins, started.fetches, started.room = [], [], 0

    def ended(self, started: Started) -> None:
        """Records that the task succeeded: what it wrote is at its place, and only there."""
        task, place = started.task, started.place
        if started.again:
            for layer in self._wrote.get(task.id, ()):
                if not self.memories.sources(layer, layer.box):
                    self.memories.wrote(layer, place)
            # What it read may have been overwritten since; then it need not be written back.
            for layer, _, _ in self._read[task.id]:
                if layer not in self.memories.of(layer.data):
                    self.memories.came_home(layer)
            return
        written = [self.memories.write(access, place, task.id) for access in task.accesses if access.mode != "reads"]
        if self._lossy:
            self._wrote[task.id] = written

    def send_ahead(self, task: Task, worker: int) -> None:
        """Fetches what a task will read to the worker that is known to run it, as far as there is room."""
        place, memories = self._site.place_of[worker], self.memories
        if place in self._dead:
            return
        for layer, box, nbytes in self._inputs(task):
            if memories.find(layer, box, place) is None and memories.used[place] + nbytes <= memories.capacities[place]:
                source = self._source(layer, box, place)
                if source is not None:
                    copy = memories.add(layer, box, place, nbytes)
                    copy.waits = []
                    self._move(copy, source, task)

    # Moving

    def _move(self, copy: Copy, source: Copy, task: Task, makes_room_for: Started | None = None) -> None:
        move = _Move(copy, source, self._sim.now, task, lambda: None, makes_room_for)
        self._moving[copy] = move
        if self._network is not None:
            flow = self._network.flow(*self._site.ends(source.place, copy.place), copy.nbytes)
            flow.callbacks.append(lambda _: self._arrived(move))
            move.cancel = flow.cancel
        else:
            seconds = self._site.transfer_s(copy.nbytes, source.place, copy.place)
            move.cancel = self._sim.after(seconds, self._arrived, move).cancel

    def _arrived(self, move: _Move) -> None:
        copy, source, site = move.copy, move.source, self._site
        del self._moving[copy]
        begun, ended = round(move.since * 1e9), round(self._sim.now * 1e9)
        times = (begun, begun, begun, ended, ended)
        nodes = site.place_node[copy.place], site.place_node[source.place]
        self._recorder.row(move.task, nodes[0], DONE, 1, *times, nodes[1], LINK, copy.nbytes, copy.nbytes)
        waits, copy.waits = copy.waits or [], None
        if not copy.counted and copy.serves(copy.layer.box):
            self.memories.came_home(copy.layer)
        if move.makes_room_for is not None:
            self.memories.drop(source)
            move.makes_room_for.before -= 1
            if not move.makes_room_for.before:
                self._launch(move.makes_room_for)
        for started in waits:
            started.missing -= 1
            if not started.missing:
                self._ready(started)

    def die(self, node: int) -> None:
        """Removes a node with all its data; transfers from it or to it do not arrive."""
        for data in self._graph.handles:
            self.memories.of(data)
        gone = [place for place, at in enumerate(self._site.place_node) if at == node]
        self._dead.update(gone)
        stranded: dict[Started, None] = {}
        for move in list(self._moving.values()):
            if move.copy.place in self._dead or move.source.place in self._dead:
                move.cancel()
                del self._moving[move.copy]
                self.memories.drop(move.copy)
                stranded.update(dict.fromkeys(move.copy.waits or ()))
                if move.makes_room_for is not None:
                    move.source.leaving = False
                    stranded[move.makes_room_for] = None
        self.memories.lose(gone)
        self._home = {number: self._alive(place) for number, place in self._home.items()}
        for started in stranded:
            self._stranded(started)


def check_room(graph: Graph, site: Site) -> None:
    """Raises an `InputError` for the first task whose data exceed the memory of a worker that may run it."""
    least: dict[str, float] = {}
    for worker, kind in enumerate(site.kinds):
        least[kind] = min(least.get(kind, math.inf), site.capacities[site.place_of[worker]])
    if all(capacity == math.inf for capacity in least.values()):
        return
    for task in graph.tasks:
        if task.accesses:
            touched = sum(access.piece.nbytes for access in task.accesses)
            for kind in task.on:
                if touched > least.get(kind, math.inf):
                    what = f"task {task.key} accesses {touched} bytes; the memory of a {kind} worker holds {least[kind]:.0f}"
                    raise InputError(what, where="Virtual")
