"""ExFlow puts experts of neighbouring layers that serve the same tokens on one device.

Exploiting Inter-Layer Expert Affinity for Accelerating Mixture-of-Experts Model Inference, IPDPS 2024 (arXiv 2401.08383).

It maximises Σ_layers Σ_{i,j} tokens(i in a layer, j in the next)·[device of i = device of j] with equally many experts per device. The
paper solves an integer programme; here each layer in turn is placed exactly given its neighbours (an assignment problem), up and down
until nothing improves. Only the placement is included: that every device keeps every request's context is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from armillary.parameters import parameter

from .planning.placement import ExpertPlacement
from .planning.technique import ExpertTechnique, check_devices
from .routing.coactivation import coactivation
from .routing.trace import RoutingTrace


def kept(together: npt.NDArray[np.float64], device: npt.NDArray[np.int64]) -> float:
    """Returns the co-activations whose two experts are on one device."""
    return float(sum(flow[device[i][:, None] == device[i + 1][None, :]].sum() for i, flow in enumerate(together)))


@dataclass(frozen=True)
class ExFlow(ExpertTechnique):
    """Places experts by inter-layer affinity alone."""

    sweeps: int = parameter(20, "the most sweeps in which all layers are placed again", range=(1, 1000))

    def place(self, trace: RoutingTrace, devices: int) -> ExpertPlacement:
        """Places layer by layer, forwards and backwards."""
        check_devices(trace.experts, devices)
        together = coactivation(trace)
        slots = np.repeat(np.arange(devices), trace.experts // devices)
        device = np.tile(slots, (trace.layers, 1))
        value = kept(together, device)
        for sweep in range(self.sweeps):
            for layer in range(trace.layers) if sweep % 2 else range(trace.layers - 1, -1, -1):
                near = np.zeros((trace.experts, devices))
                if layer > 0:
                    near += together[layer - 1].T @ np.eye(devices)[device[layer - 1]]
                if layer < trace.layers - 1:
                    near += together[layer] @ np.eye(devices)[device[layer + 1]]
                rows, columns = linear_sum_assignment(-near[:, slots])
                device[layer][rows] = slots[columns]
            found = kept(together, device)
            if found <= value:
                break
            value = found
        return ExpertPlacement.of_devices(device, devices)
