"""A cache of all the GPU memory that activations leave, from which the least recently used tensor goes.

An operation's tensors are fetched on demand, and those of the next operation with them. Buffers are reused, and a tensor that leaves is
dropped because the host has a copy. The update refreshes the copies on the GPU. As many of Adam's states as fit stay in the host, the
largest first, and the others stream from the drive. It is ours, as a rival that every engineer would try first.

Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 1966, describes it among others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import NotForThisCase, Technique
from armillary.parameters import parameter

from .planning.caches import cached
from .planning.states import kept_in_host
from .simulation.schedule import GPU, HOST, Schedule
from .workload import OffloadWork


@dataclass(frozen=True)
class Lru(Technique):
    """Keeps the most recently used tensors on the GPU. LRU, as in IBM Systems Journal 1966."""

    ahead: int = parameter(1, "operations whose tensors are fetched before their turn", range=(0, 64))

    def schedule(self, work: OffloadWork) -> Schedule:
        """The moves of all iterations."""
        if work.capacity < work.widest:
            raise NotForThisCase("the GPU does not hold the parameters of one operation beside the activations")
        streamed, host = kept_in_host(work)
        moves, resident, homes = cached(work, work.capacity, belady=False, ahead=self.ahead)
        return Schedule(moves, resident, np.where(homes, GPU, HOST).astype(np.int8), streamed, host, host)
