"""Which channel waited for which: if the graph has no cycle, no packets can wait for each other in a circle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError

from ..simulation.play import Played
from ..simulation.state import CHANNELS

if TYPE_CHECKING:
    import networkx


def dependencies(played: Played) -> networkx.DiGraph:
    """Edges from each (port, virtual channel) that a packet held to the one that it asked for next; needs `record=True`."""
    import networkx

    if not len(played.state.depend):
        raise InputError("the run recorded no dependencies; expected one with record=True")
    graph = networkx.DiGraph()
    for held, wanted in np.argwhere(played.state.depend).tolist():
        graph.add_edge(divmod(held, CHANNELS), divmod(wanted, CHANNELS))
    return graph
