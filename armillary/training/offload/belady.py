"""The cache that knows the future: what is needed next comes as early as possible, in place of what is needed last.

It has all the GPU memory that activations leave, without classes of buffers, and drops cost nothing, as with `lru`, so no technique of
equal memory waits for fewer accesses. As many of Adam's states as fit stay in the host. It is an upper bound, not a technique.

Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 1966.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import NotForThisCase, Technique

from .planning.caches import cached
from .planning.states import kept_in_host
from .simulation.schedule import GPU, HOST, Schedule
from .workload import OffloadWork


@dataclass(frozen=True)
class Belady(Technique):
    """Evicts what is needed last and fetches as early as possible. Belady, IBM Systems Journal 1966."""

    oracle = True

    def schedule(self, work: OffloadWork) -> Schedule:
        """The moves of all iterations."""
        if work.capacity < work.widest:
            raise NotForThisCase("the GPU does not hold the parameters of one operation beside the activations")
        moves, resident, homes = cached(work, work.capacity, belady=True)
        streamed, host = kept_in_host(work)
        return Schedule(moves, resident, np.where(homes, GPU, HOST).astype(np.int8), streamed, host, host)
