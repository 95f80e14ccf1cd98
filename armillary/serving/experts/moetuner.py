"""MoETuner places each layer's experts with an integer programme, for even load and few tokens that change device between layers.

MoETuner: Optimized Mixture of Expert Serving with Balanced Expert Placement and Token Routing, arXiv 2502.06643, 2025.

Given the previous layer, x[e, d] ∈ {0, 1} minimises Σ tokens that come to e from other devices / all + 10·(largest load over the mean − 1),
with every expert on one device and equally many on each. HiGHS solves it layer by layer (the weight and the order are our design).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.parameters import parameter

from .eplb import pack
from .planning.placement import ExpertPlacement
from .planning.technique import ExpertTechnique, check_devices
from .routing.coactivation import coactivation
from .routing.trace import RoutingTrace

#: The worth of 1 % of uneven load, in per cent of all tokens that stay.
EVEN = 10.0


def place_layer(
    load: npt.NDArray[np.float64], near: npt.NDArray[np.float64], devices: int, *, nodes: int, seconds: float
) -> npt.NDArray[np.int64]:
    """Returns the device of each expert, given load [experts] and near [experts, devices], the tokens that come from each device."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import block_array, csr_array, eye_array, kron

    experts = len(load)
    mean = max(load.sum() / devices, 1e-30)
    # The variables are x[e, d] in rows of devices, followed by the largest load over the mean.
    cost = np.concatenate([-(near / max(near.sum(), 1e-30)).ravel(), [EVEN]])
    one = kron(eye_array(experts), np.ones((1, devices)))
    many = kron(np.ones((1, experts)), eye_array(devices))
    loads = kron(csr_array(load[None, :] / mean), eye_array(devices))
    nothing = csr_array((experts, 1)), csr_array((devices, 1))
    rows: Any = block_array([[one, nothing[0]], [many, nothing[1]], [loads, csr_array(-np.ones((devices, 1)))]], format="csr")
    low = np.concatenate([np.ones(experts), np.full(devices, experts // devices), np.full(devices, -np.inf)])
    high = np.concatenate([np.ones(experts), np.full(devices, experts // devices), np.zeros(devices)])
    found = milp(
        cost, constraints=LinearConstraint(rows, low, high), integrality=np.concatenate([np.ones(experts * devices), [0]]),
        bounds=Bounds(0, np.concatenate([np.ones(experts * devices), [np.inf]])),
        options={"node_limit": nodes, "time_limit": seconds, "mip_rel_gap": 0.01},
    )  # fmt: skip
    if found.x is None:
        return pack(load, devices)
    return np.argmax(found.x[:-1].reshape(experts, devices), axis=1)


@dataclass(frozen=True)
class MoeTuner(ExpertTechnique):
    """One integer programme per layer, by HiGHS."""

    nodes: int = parameter(50, "the most branch-and-bound nodes per layer", range=(1, 100_000))
    seconds: float = parameter(20.0, "the most seconds that are spent per layer", range=(0.1, 3600.0))

    def place(self, trace: RoutingTrace, devices: int) -> ExpertPlacement:
        """Places experts by load and co-activation."""
        check_devices(trace.experts, devices)
        together, load = coactivation(trace), trace.expert_load().astype(float)
        device = np.empty((trace.layers, trace.experts), np.int64)
        for layer in range(trace.layers):
            near = np.zeros((trace.experts, devices))
            if layer:
                near = together[layer - 1].T @ np.eye(devices)[device[layer - 1]]
            device[layer] = place_layer(load[layer], near, devices, nodes=self.nodes, seconds=self.seconds)
        return ExpertPlacement.of_devices(device, devices)
