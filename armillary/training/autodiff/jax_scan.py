"""JAX on the best functional rewrite that we found: `lax.scan`, vectorised bodies, and calls of LAPACK or XLA where they do the same.

The stronger rival: it shows how much of a speed-up over `jax` comes from how the port is written. Within a limit of memory, time loops have
checkpoints (`jax.checkpoint` over segments of √T steps) if XLA would reserve more than the limit without them. It is not declined if it
reserves more even so, because XLA counts arrays that our limit does not (JAX, 2018).
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .running.jax_ports import measure
from .running.measured import Measured
from .workload import Problem


@dataclass(frozen=True)
class JaxScan(Technique):
    """The best rewrite, with checkpoints where memory is limited. JAX, 2018."""

    def measure(self, problem: Problem) -> Measured:
        """Lets JAX differentiate the rewrite."""
        return measure(problem, "scans")
