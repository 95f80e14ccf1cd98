"""Where the current content of each piece of data lies in a simulated run. A machine without clock or network; `transfers` drives it.

A place is a memory: a node's own, or a device's. Data lies at its home; what a task reads elsewhere becomes a copy there, what it
writes elsewhere becomes a dirty one, which must go home before it may be forgotten. Copies are bounded by the memory's bytes, the one
used longest ago leaves first; what lies at home does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from armillary.tasks.regions import Box, covers, meet

if TYPE_CHECKING:
    from armillary.tasks.data import Data
    from armillary.tasks.graph import Access
    from armillary.tasks.transfers import Started


class Layer:
    """Content of a box that one task wrote (or that was there at the start), and its copies, the writer's or the home's first."""

    __slots__ = ("box", "copies", "data", "nbytes", "writer")

    def __init__(self, data: Data, box: Box, nbytes: int, writer: int) -> None:
        self.data, self.box, self.nbytes = data, box, nbytes
        #: Number of the task that wrote it; -1 for what was there at the start.
        self.writer = writer
        self.copies: list[Copy] = []


class Copy:
    """A layer, or a part of one, at a place. Life: coming, here, perhaps leaving (dirty, on its way home), gone."""

    __slots__ = ("box", "counted", "dirty", "layer", "leaving", "nbytes", "pins", "place", "waits")

    def __init__(self, layer: Layer, box: Box, place: int, nbytes: int, counted: bool) -> None:
        self.layer, self.box, self.place, self.nbytes = layer, box, place, nbytes
        #: False at home, where nothing is bounded.
        self.counted = counted
        self.dirty = self.leaving = False
        #: Tasks that were given workers here and use it: it must stay.
        self.pins = 0
        #: Who waits for it while it is coming; None once it is here.
        self.waits: list[Started] | None = None

    def serves(self, box: Box) -> bool:
        """True when it has all that its layer has of `box`."""
        return covers(self.box, box) or covers(self.box, self.layer.box)


class Memories:
    """Layers of each handle, oldest first (what a later write covers is forgotten), and what each place holds."""

    def __init__(self, capacities: list[float], home: Callable[[Data], int]) -> None:
        self.capacities = capacities
        self.used = [0.0] * len(capacities)
        #: Counted copies of each place, the one used longest ago first.
        self.held: list[dict[Copy, None]] = [{} for _ in capacities]
        self.home = home
        self._layers: dict[int, list[Layer]] = {}
        self._dead: set[int] = set()

    def of(self, data: Data) -> list[Layer]:
        """The layers of a handle."""
        layers = self._layers.get(data.id)
        if layers is None:
            first = Layer(data, (), data.nbytes, -1)
            layers = self._layers[data.id] = [first]
            if self.home(data) not in self._dead:
                self.add(first, (), self.home(data), data.nbytes)
        return layers

    def needed(self, access: Access) -> list[Layer]:
        """The layers that a read of this part takes its content from."""
        found = []
        for layer in reversed(self.of(access.data)):
            if layer.nbytes and meet(layer.box, access.box):
                found.append(layer)
                if covers(layer.box, access.box):
                    break
        return found

    def find(self, layer: Layer, box: Box, place: int) -> Copy | None:
        """The copy at a place that serves a box, here or coming; it counts as used now."""
        for copy in layer.copies:
            if copy.place == place and copy.serves(box):
                if copy.counted:
                    held = self.held[place]
                    del held[copy]
                    held[copy] = None
                return copy
        return None

    def sources(self, layer: Layer, box: Box) -> list[Copy]:
        """The copies from which a box can be had; none when it is lost."""
        return [copy for copy in layer.copies if copy.waits is None and copy.place not in self._dead and copy.serves(box)]

    def add(self, layer: Layer, box: Box, place: int, nbytes: int) -> Copy:
        """A copy more."""
        copy = Copy(layer, box, place, nbytes, self.home(layer.data) != place)
        layer.copies.append(copy)
        if copy.counted:
            self.held[place][copy] = None
            self.used[place] += nbytes
        return copy

    def drop(self, copy: Copy) -> None:
        """A copy less; no effect when it is gone already."""
        if copy in copy.layer.copies:
            copy.layer.copies.remove(copy)
            if copy.counted:
                del self.held[copy.place][copy]
                self.used[copy.place] -= copy.nbytes

    def victims(self, place: int, nbytes: float) -> list[Copy] | None:
        """Copies that have to go for `nbytes` more; None when those in use leave no room now.

        Where nothing is in use everything that can go is enough, so that what needs more than there is can still start.
        """
        over = self.used[place] + nbytes - self.capacities[place]
        chosen: list[Copy] = []
        in_use = False
        for copy in self.held[place]:
            if over <= 0:
                break
            if copy.pins or copy.waits is not None or copy.leaving:
                in_use = True
            else:
                chosen.append(copy)
                over -= copy.nbytes
        return None if over > 0 and in_use else chosen

    def write(self, access: Access, place: int, writer: int) -> Layer:
        """The part was written at a place: what it covers is forgotten, and no other copy is current."""
        layers = self.of(access.data)
        for layer in [layer for layer in layers if covers(access.box, layer.box)]:
            for copy in list(layer.copies):
                # What was there at the start stays at home, so that lost data can be made again from it.
                if layer.writer >= 0 or copy.counted:
                    self.drop(copy)
            layers.remove(layer)
        layer = Layer(access.data, access.box, access.piece.nbytes, writer)
        layers.append(layer)
        self.wrote(layer, place)
        return layer

    def wrote(self, layer: Layer, place: int) -> None:
        """A layer was made (again) at a place."""
        copy = self.add(layer, layer.box, place, layer.nbytes)
        copy.dirty = copy.counted

    def came_home(self, layer: Layer) -> None:
        """The whole layer is at home: its other copies may be forgotten."""
        for copy in layer.copies:
            copy.dirty = False

    def lose(self, places: Collection[int]) -> None:
        """Places are gone, with all that they hold; where only clean copies are left, one of them takes over."""
        self._dead.update(places)
        for layers in self._layers.values():
            for layer in layers:
                for copy in [c for c in layer.copies if c.place in self._dead]:
                    self.drop(copy)
                left = [c for c in layer.copies if c.waits is None and covers(c.box, layer.box)]
                if left and not any(c.dirty or not c.counted for c in left):
                    left[0].dirty = True
