"""The work of this arena is a node, requests to it, and its faults."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError, unknown
from armillary.llm import Requests, chip, generate
from armillary.workloads import lognormal

from .planning.models import find_model
from .planning.node import Node
from .simulation.faults import FaultTrace

#: Mooncake's conversation trace has 12,035 prompt and 343 output tokens on average (FAST 2025, table 1); the spreads are ours.
LONG_PROMPT, LONG_OUTPUT, LONG_SIGMA, LONGEST = 12_035.0, 343.0, 1.0, 120_000
TRAFFIC = ("azure-conv", "azure-code", "sharegpt", "long-context")


@dataclass(frozen=True)
class ResilienceWork:
    """Requests to a node and the faults of its GPUs, over a window of seconds."""

    node: Node
    requests: Requests
    faults: FaultTrace
    window_s: float

    def __post_init__(self) -> None:
        if not 1.0 <= self.window_s <= 1e6:
            raise InputError(f"window: found {self.window_s} s; expected 1 to 1e6")
        if not len(self.requests):
            raise InputError("requests: found none in the window; expected at least one")


def make_node(model: str, gpus: int = 8, device: str = "h100-80") -> Node:
    """Returns a DGX H100 with this model, or `gpus` other devices with the same links."""
    node = Node(find_model(model), chip(device), gpus)
    node.check(node.layout(gpus))
    return node


def traffic(like: str, rate: float, window_s: float, seed: int) -> Requests:
    """Draws Poisson arrivals, `rate` per second, with lengths like those of a public trace."""
    if like not in TRAFFIC:
        raise unknown("traffic", like, TRAFFIC)
    if not 0 < rate <= 1e4:
        raise InputError(f"rate: found {rate}; expected more than 0 and at most 1e4 requests per second")
    n = max(1, round(rate * window_s))
    if like != "long-context":
        return generate(n, rate=rate, like=like, seed=seed)
    rng = np.random.default_rng(seed)
    prompt, output = (
        np.clip(lognormal(rng, n, mean=mean, sigma=LONG_SIGMA), 16, LONGEST).astype(np.int64) for mean in (LONG_PROMPT, LONG_OUTPUT)
    )
    return generate(n, rate=rate, prompt=prompt, output=np.minimum(output, 4096), seed=seed)
