"""Dot product: the host whose free resources are most like what the VM asks for.

The score is the inner product of demand and free room, both as shares of the host: vCPUs, memory, busy threads and memory bandwidth.
Validating Heuristics for Virtual Machines Consolidation, Microsoft Research technical report MSR-TR-2011-9.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import Technique

from .problem.fleet import Floats, Ints
from .problem.metrics import VM
from .problem.ranker import Ranker
from .problem.state import State
from .workload import VmWork


class _Ranker(Ranker):
    def scores(self, state: State, vms: Ints) -> Floats:
        h, x = state.hosts, state.x[vms]
        whole = np.stack([h.threads, h.memory_gb, h.threads, h.bandwidth_gbps], axis=1).astype(np.float64)
        used = state.sums[:, [3, 10]]
        free = np.stack([state.free_vcpus, state.free_gb, h.threads - used[:, 0], h.bandwidth_gbps - used[:, 1]], axis=1) / whole
        busy = x[:, VM["vcpu"]] * x[:, VM["cpu"]]
        asked = np.stack([x[:, VM["vcpu"]], x[:, VM["memory_gb"]], busy, x[:, VM["mem_gbps"]]], axis=1)
        return np.einsum("vk,hk->vh", asked, free / whole)


@dataclass(frozen=True)
class DotProduct(Technique):
    """Hosts by the alignment of demand and room."""

    def ranker(self, work: VmWork) -> Ranker:
        """Scores of four resources."""
        return _Ranker()
