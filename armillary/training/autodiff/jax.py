"""JAX on a port of the kernel, statement by statement: loops as `fori_loop`, assignments as `.at[].set`.

It is what someone gets who moves a NumPy kernel with loops to JAX without rethinking it. Every pass of a loop makes new arrays in
principle, and the reverse pass saves what each needs. `jax.jit(jax.grad(…))` in double precision on the host, in a process of its own
(JAX, 2018).
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .running.jax_ports import measure
from .running.measured import Measured
from .workload import Problem


@dataclass(frozen=True)
class Jax(Technique):
    """A port statement by statement; declines where its saved values would pass 4 GiB. JAX, 2018."""

    def measure(self, problem: Problem) -> Measured:
        """Lets JAX differentiate the port."""
        return measure(problem, "statements")
