"""Where the current content of each piece of data is in a simulated run: a state machine without clock or network, driven by `transfers`.

A place is a memory, of a node or of a device. Data is at its home; a read at another place makes a copy there, and a write at another place
makes a dirty copy, which must be written back to its home before it may be dropped. Copies are bounded by the bytes of the memory, and the
least recently used one is evicted first; data at home does not count.
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
    """The content of a box that one task wrote (or that existed at the start), and its copies, with that of
    the writer or the home first.
    """

    __slots__ = ("box", "copies", "data", "nbytes", "writer")

    def __init__(self, data: Data, box: Box, nbytes: int, writer: int) -> None:
        self.data, self.box, self.nbytes = data, box, nbytes
        #: The number of the task that wrote it, or -1 for initial data.
        self.writer = writer
        self.copies: list[Copy] = []


class Copy:
    """A layer, or a part of one, at a place. It arrives, is present, may be written back (if dirty), and is dropped."""

    __slots__ = ("box", "counted", "dirty", "layer", "leaving", "nbytes", "pins", "place", "waits")

    def __init__(self, layer: Layer, box: Box, place: int, nbytes: int, counted: bool) -> None:
        self.layer, self.box, self.place, self.nbytes = layer, box, place, nbytes
        #: Whether it counts against the size of the memory; false at home.
        self.counted = counted
        self.dirty = self.leaving = False
        #: The number of started tasks at this place that use it, while it must stay.
        self.pins = 0
        #: The tasks that wait for it while it arrives; None once it is present.
        self.waits: list[Started] | None = None

    def serves(self, box: Box) -> bool:
        """Whether it has everything that its layer has of `box`."""
        return covers(self.box, box) or covers(self.box, self.layer.box)


class Memories:
    """The layers of each handle, oldest first (a layer that a later write covers is dropped), and the copies at each place."""

    def __init__(self, capacities: list[float], home: Callable[[Data], int]) -> None:
        self.capacities = capacities
        self.used = [0.0] * len(capacities)
        #: The counted copies of each place, least recently used first.
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
        """The layers from which a read of this part takes its content."""
        found = []
        for layer in reversed(self.of(access.data)):
            if layer.nbytes and meet(layer.box, access.box):
                found.append(layer)
                if covers(layer.box, access.box):
                    break
        return found

    def find(self, layer: Layer, box: Box, place: int) -> Copy | None:
        """The copy at a place that serves a box, present or arriving; it counts as used now."""
        for copy in layer.copies:
            if copy.place == place and copy.serves(box):
                if copy.counted:
                    held = self.held[place]
                    del held[copy]
                    held[copy] = None
                return copy
        return None

    def sources(self, layer: Layer, box: Box) -> list[Copy]:
        """The copies from which a box can be fetched; empty if it is lost."""
        return [copy for copy in layer.copies if copy.waits is None and copy.place not in self._dead and copy.serves(box)]

    def add(self, layer: Layer, box: Box, place: int, nbytes: int) -> Copy:
        """Adds a copy."""
        copy = Copy(layer, box, place, nbytes, self.home(layer.data) != place)
        layer.copies.append(copy)
        if copy.counted:
            self.held[place][copy] = None
            self.used[place] += nbytes
        return copy

    def drop(self, copy: Copy) -> None:
        """Drops a copy; it has no effect if the copy is already gone."""
        if copy in copy.layer.copies:
            copy.layer.copies.remove(copy)
            if copy.counted:
                del self.held[copy.place][copy]
                self.used[copy.place] -= copy.nbytes

    def victims(self, place: int, nbytes: float) -> list[Copy] | None:
        """The copies to evict for `nbytes` more; None if those in use leave no room now.

        If nothing is in use, evicting everything is enough, so that a task that needs more than the memory holds can still start.
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
        """Records a write of the part at a place: the layers that it covers are dropped, and no other copy is current."""
        layers = self.of(access.data)
        for layer in [layer for layer in layers if covers(access.box, layer.box)]:
            for copy in list(layer.copies):
                # Initial data stays at home, so that lost data can be computed again from it.
                if layer.writer >= 0 or copy.counted:
                    self.drop(copy)
            layers.remove(layer)
        layer = Layer(access.data, access.box, access.piece.nbytes, writer)
        layers.append(layer)
        self.wrote(layer, place)
        return layer

    def wrote(self, layer: Layer, place: int) -> None:
        """Records that a layer was computed (again) at a place."""
        copy = self.add(layer, layer.box, place, layer.nbytes)
        copy.dirty = copy.counted

    def came_home(self, layer: Layer) -> None:
        """Records that the whole layer is at home, so its other copies may be dropped."""
        for copy in layer.copies:
            copy.dirty = False

    def lose(self, places: Collection[int]) -> None:
        """Removes places with all their content; if only clean copies of a layer are left, one of them takes over."""
        self._dead.update(places)
        for layers in self._layers.values():
            for layer in layers:
                for copy in [c for c in layer.copies if c.place in self._dead]:
                    self.drop(copy)
                left = [c for c in layer.copies if c.waits is None and covers(c.box, layer.box)]
                if left and not any(c.dirty or not c.counted for c in left):
                    left[0].dirty = True
