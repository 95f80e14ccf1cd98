"""Where the current content of each piece of data lies in a simulated run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.tasks.regions import Box, covers, meet

if TYPE_CHECKING:
    from armillary.tasks.data import Data
    from armillary.tasks.graph import Access


class Layer:
    """Content of a box that one task wrote (or that was there at the start), and the nodes that hold it."""

    __slots__ = ("box", "coming", "nbytes", "nodes")

    def __init__(self, box: Box, nbytes: int, node: int) -> None:
        self.box = box
        self.nbytes = nbytes
        #: Nodes with a copy, the first writer first; and nodes to which one is on its way, with the tasks that wait for it.
        self.nodes: dict[int, None] = {node: None}
        self.coming: dict[int, list[int]] = {}


class Copies:
    """Layers of each handle, oldest first; what a later write covers is forgotten."""

    def __init__(self, homes: dict[str, int]) -> None:
        self._homes = homes
        self._layers: dict[int, list[Layer]] = {}

    def of(self, data: Data) -> list[Layer]:
        """The layers of a handle."""
        layers = self._layers.get(data.id)
        if layers is None:
            home = self._homes.get(data.home, 0) if data.home is not None else 0
            layers = self._layers[data.id] = [Layer((), data.nbytes, home)]
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

    def write(self, access: Access, node: int) -> None:
        """The part was written on a node: no other copy is current."""
        layers = self.of(access.data)
        layers[:] = [layer for layer in layers if not covers(access.box, layer.box)]
        layers.append(Layer(access.box, access.piece.nbytes, node))
