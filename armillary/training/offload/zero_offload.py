"""ZeRO-Offload keeps all parameters on the GPU, and gradients and Adam's states in the host.

Nothing moves during forward and backward but gradients; the host updates the parameters and sends them back. It needs a GPU that holds all
16-bit parameters beside the activations and a bucket of gradients, and a host that holds all states.

ZeRO-Offload: Democratizing Billion-Scale Model Training, USENIX ATC 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import NotForThisCase, Technique
from armillary.parameters import parameter

from .simulation.schedule import GPU, Moves, Schedule
from .workload import OffloadWork


@dataclass(frozen=True)
class ZeroOffload(Technique):
    """Keeps parameters on the GPU and the optimizer in the host. ZeRO-Offload, USENIX ATC 2021."""

    gradient_bucket: float = parameter(5e8, "elements of the bucket in which gradients leave the GPU", range=(0, 1e12))

    def schedule(self, work: OffloadWork) -> Schedule:
        """No moves at all."""
        bucket = 2 * min(self.gradient_bucket, work.parameters)
        if work.total_bytes + bucket > work.capacity:
            need, have = (work.total_bytes + bucket) / 1e9, work.capacity / 1e9
            raise NotForThisCase(f"needs {need:.3g} GB of the GPU for parameters and gradients; activations leave {have:.3g} GB")
        host = work.state_bytes + work.total_bytes
        if host > work.machine.host_bytes:
            raise NotForThisCase(f"needs {host / 1e9:.3g} GB of host memory; there are {work.machine.host_bytes / 1e9:.3g} GB")
        every = np.ones(len(work.size), bool)
        home = np.full((work.iterations, len(work.size)), GPU, np.int8)
        return Schedule(Moves.none(), every, home, ~every, host, host)
