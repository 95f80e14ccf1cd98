"""Advice for a pattern on a cluster: what limits each node's exchange, which protocols fit, and what MPI libraries call them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from armillary.network.halo.patterns.pattern import Pattern

from .adaptive import Adaptive, Thresholds
from .machine import CLUSTER, EAGER_FAR, EAGER_NEAR, machine_of
from .plans import Fixed
from .play import play


@dataclass(frozen=True)
class Advice:
    """What to do: copies over NIC on the median node, protocols by class of message, the gain expected, and settings of libraries."""

    rho: float
    between_nodes: str
    inside_node: str
    #: The share of the bytes inside a node that should go through the NIC.
    loopback: float
    #: By how many per cent a simulated exchange gets shorter than with the static protocol of libraries.
    gain: float
    settings: dict[str, dict[str, str]]

    def __str__(self) -> str:
        limit = "the NIC" if self.rho < 0.8 else "copies inside the node" if self.rho > 1.25 else "neither copies nor the NIC alone"
        said = f"What limits the exchange is {limit} (copies over NIC {self.rho:.2f})."
        return f"{said} Use {self.between_nodes} between nodes and {self.inside_node} inside; that is {self.gain:.1f} % shorter."


def advise(pattern: Pattern, cluster: Any = CLUSTER) -> Advice:
    """Return advice for a pattern of messages on a cluster, or on a preset by name. The exchange is simulated twice."""
    machine = machine_of(cluster)
    planner = Adaptive(pattern, machine, Thresholds())
    static = Fixed(pattern, machine, "rget", "read")
    before, after = (play(pattern, one, cluster=cluster, nic=machine.nic).seconds for one in (static, planner))
    found = sorted(planner._estimated(0), key=lambda load: load.rho)
    middle = planner.plan(planner._estimated(0).index(found[len(found) // 2]), 0)
    inside = "read in pieces of 64 KiB" if middle.kind == "inter" else "shared copies"
    return Advice(found[len(found) // 2].rho, "rput to remembered buffers", inside, middle.psi, 100 * (1 - after / before), _settings())


def _settings() -> dict[str, dict[str, str]]:
    """The variables by which UCX (below Open MPI or MPICH, where they are built with it) and MVAPICH2 2.3 set limits and protocols."""
    return {
        "ucx": {"UCX_RNDV_SCHEME": "put_zcopy", "UCX_RNDV_THRESH": str(EAGER_FAR)},
        "mvapich2": {
            "MV2_RNDV_PROTOCOL": "RPUT", "MV2_IBA_EAGER_THRESHOLD": str(EAGER_FAR), "MV2_VBUF_TOTAL_SIZE": str(EAGER_FAR),
            "MV2_SMP_EAGERSIZE": str(EAGER_NEAR), "MV2_SMP_USE_CMA": "1",
        },
    }  # fmt: skip
