"""ATP aggregates at best effort: a job takes the slots that are free, and packets that find none go to a parameter server.

Nothing is partitioned, so a job alone has the whole switch. Under contention the rest of its bytes goes unreduced to a server of the
group and back, which puts s−1 streams through one NIC. Here NVLink reduces first inside each server, which the paper leaves to the host.

Lao et al., ATP: in-network aggregation for multi-tenant learning, NSDI 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

from .collectives.path import Path
from .collectives.technique import Collective


@dataclass(frozen=True)
class Atp(Collective):
    """Takes the slots that are free and sends the rest to a parameter server (ATP, NSDI 2021)."""

    @property
    def path(self) -> Path:
        return Path(choice="slots", server=True)
