"""From memory to memory on other nodes (in transit): the network carries what the cores are spared.

One simulated layer of transactions stands under all transports here, with publishers, subscribers, variables in blocks, and engines for
files and for staging, so that a workflow written once can be played under each.

A versatile simulated data transport layer for in situ workflows performance evaluation, IEEE CLUSTER 2025. The layer follows the
semantics of its public library; aggregation of equal transfers, arrays instead of requests and the calibration are our design."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .simulation.technique import FAST, SimulatedTransport


@dataclass(frozen=True)
class StagingRemote(SimulatedTransport):
    """Memory to memory on nodes of their own."""

    transport: ClassVar[str] = "staging-remote"
    claims = (FAST,)
