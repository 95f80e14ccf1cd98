"""L2L keeps one layer on the GPU: it is fetched when its turn comes, and leaves when it is done.

All else is in the host. With `ahead` layers fetched before their turn, transfers hide behind computation; the published execution has none.

Training Large Neural Networks with Constant Memory using a New Execution Algorithm, arXiv 2002.05645 (2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from armillary.arena import NotForThisCase, Technique
from armillary.parameters import parameter

from .planning.states import all_or_nothing
from .simulation.machine import MALLOC_S
from .simulation.schedule import DROP, HOST, IN, NOTHING, Moves, Schedule
from .workload import OffloadWork


@dataclass(frozen=True)
class LayerToLayer(Technique):
    """Keeps one layer on the GPU. L2L, arXiv 2002.05645 (2020)."""

    ahead: int = parameter(0, "layers that are fetched before their turn", range=(0, 64))
    pooled: bool = parameter(True, "whether the allocator reuses freed blocks; otherwise every fetch pays for cudaMalloc")

    def schedule(self, work: OffloadWork) -> Schedule:
        """The moves of all iterations."""
        streamed, host = all_or_nothing(work)
        rows: list[tuple[int, int, int]] = []
        most = 0
        for it in range(work.iterations):
            rows += self._iteration(work, it)
            most = max(most, self._most(work, it))
        if most > max(work.capacity, work.widest):
            raise NotForThisCase("the GPU does not hold one layer beside the activations")
        columns = np.array(rows, np.int64).reshape(-1, 3).T
        after = np.full(len(rows), NOTHING, np.int64)
        alloc = np.where(columns[1] == IN, 0.0 if self.pooled else MALLOC_S, 0.0)
        moves = Moves(columns[0], columns[1], columns[2], after, alloc)
        none = np.zeros(len(work.size), bool)
        home = np.full((work.iterations, len(work.size)), HOST, np.int8)
        return Schedule(moves, none, home, streamed, host, host)

    def _layers(self, work: OffloadWork, iteration: int) -> list[tuple[int, int, set[int]]]:
        """Runs of operations of one layer: (first, one past the last, tensors)."""
        order = work.order[iteration]
        layer = work.layer[order]
        cuts = [0, *(np.flatnonzero(np.diff(layer)) + 1).tolist(), len(order)]
        found = []
        for a, b in pairwise(cuts):
            found.append((a, b, {int(t) for k in order[a:b] for t in work.used[work.first[k] : work.first[k + 1]]}))
        return found

    def _most(self, work: OffloadWork, iteration: int) -> int:
        layers = self._layers(work, iteration)
        return max(int(work.size[list(set().union(*(s for _, _, s in layers[i : i + 1 + self.ahead])))].sum()) for i in range(len(layers)))

    def _iteration(self, work: OffloadWork, iteration: int) -> list[tuple[int, int, int]]:
        """(slot, kind, tensor) of one iteration."""
        layers, base = self._layers(work, iteration), iteration * work.order.shape[1]
        here: set[int] = set()
        rows = []
        for i, (a, b, _) in enumerate(layers):
            for _, _, wanted in layers[i : i + 1 + self.ahead]:
                rows += [(2 * (base + a), IN, t) for t in sorted(wanted - here)]
                here |= wanted
            kept = set().union(*(s for _, _, s in layers[i + 1 : i + 1 + self.ahead]))
            rows += [(2 * (base + b - 1) + 1, DROP, t) for t in sorted(here - kept)]
            here &= kept
        return rows
