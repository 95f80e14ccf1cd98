"""Placing VMs one after the other: best fit, first fit and the room that is left."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.kernels import loop
from armillary.scheduling.vm.problem.fleet import Floats, Ints

Array = npt.NDArray[Any]


def best_fit(vcpu: Array, memory_gb: Array, free_vcpus: Floats, free_gb: Floats) -> Ints:
    """The host of each VM in the order given, the one with the least room that suffices; −1 where none does. Room is used up in place."""
    return np.asarray(_best_fit(np.asarray(vcpu, np.float64), np.asarray(memory_gb, np.float64), free_vcpus, free_gb), np.int64)


@loop
def _best_fit(vcpu: Array, memory: Array, free_vcpus: Array, free_gb: Array) -> Array:
    out = np.full(vcpu.shape[0], -1, np.int64)
    for i in range(vcpu.shape[0]):
        best, least = -1, np.inf
        for m in range(free_vcpus.shape[0]):
            if free_vcpus[m] >= vcpu[i] and free_gb[m] >= memory[i] and free_vcpus[m] < least:
                best, least = m, free_vcpus[m]
        if best >= 0:
            free_vcpus[best] -= vcpu[i]
            free_gb[best] -= memory[i]
        out[i] = best
    return out
