"""The same node without a fault, against which the others are measured.

It ignores the faults, which no real service can, so it is an upper bound and not a technique. It uses plain tensor parallelism (Shoeybi
et al., Megatron-LM, 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

from .simulation.faults import Fault
from .simulation.restarting import Restarting
from .simulation.service import Resilient, Service
from .workload import ResilienceWork


@dataclass(frozen=True)
class NoFault(Resilient):
    """Tensor parallelism on GPUs that never fail. Upper bound; tensor parallelism as in Megatron-LM, 2019."""

    oracle = True

    def service(self, work: ResilienceWork) -> Service:
        """Returns one group to which nothing happens."""
        return Untouched(work)


class Untouched(Restarting):
    """A service to which faults do not happen."""

    def take(self, fault: Fault) -> None:
        """Ignores the fault."""
