"""The same node without a fault: what the others are measured against.

It is told to ignore the faults, so it sees what no service can: an upper bound, and no technique. Plain tensor parallelism (Shoeybi et al.,
Megatron-LM, 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

from .faults import Fault
from .restarting import Restarting
from .service import Resilient, Service
from .workload import ResilienceWork


@dataclass(frozen=True)
class NoFault(Resilient):
    """Tensor parallelism on GPUs that never fail. Upper bound; tensor parallelism as in Megatron-LM, 2019."""

    oracle = True

    def service(self, work: ResilienceWork) -> Service:
        """One group that nothing happens to."""
        return Untouched(work)


class Untouched(Restarting):
    """Faults do not happen here."""

    def take(self, fault: Fault) -> None:
        """Nothing."""
