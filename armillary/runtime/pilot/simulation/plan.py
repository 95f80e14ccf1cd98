"""A pilot as stations in series: the agent's scheduler, the feed of a runtime, its launchers, and the cores.

Every station serves one task at a time, in the order in which tasks come. A runtime has one or more instances, each with a launcher and a
contiguous part of the nodes. A ceiling bounds the launches of a runtime that exist at once: an `srun` lives as long as its task.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

#: The agent's scheduler in RADICAL-Pilot (published), tasks per second.
AGENT_PER_S = 1600.0
#: Service times vary by this coefficient where `lognormal` is asked for.
CV = 0.2
NEVER = math.inf


@dataclass(frozen=True)
class Runtime:
    """One kind of runtime inside a pilot: seconds per launch of an executable and of a function, on each of its instances."""

    name: str
    executable_s: float = NEVER
    function_s: float = NEVER
    #: Seconds per task of what all instances share.
    feed_s: float = 0.0
    instances: int = 1
    #: Seconds until an instance is up.
    start_s: float = 0.0
    #: Launches that may exist at once; 0 for no bound.
    ceiling: int = 0
    #: One instance on each node, and tasks placed by first fit over all nodes, whatever `instances` says.
    per_node: bool = False

    def parts(self, nodes: int) -> int:
        """How many instances there are on so many nodes."""
        return nodes if self.per_node else min(self.instances, nodes)

    def service_s(self, function: bool) -> float:
        """Seconds that a launcher takes for one task."""
        return self.function_s if function else self.executable_s


@dataclass(frozen=True)
class Plan:
    """A pilot: its agent, its runtimes, and which of them starts executables and which functions."""

    runtimes: tuple[Runtime, ...]
    #: The runtime of executables and of functions, by number.
    route: tuple[int, int] = (0, 0)
    agent_s: float = 1 / AGENT_PER_S
    backfill: bool = True
    #: Coefficient of variation of every launcher's service time.
    cv: float = 0.0
    #: Seconds per launch as measured here; drawn from, instead of a lognormal.
    measured: tuple[float, ...] = ()

    def without_overheads(self) -> Plan:
        """The same pilot with launches that cost nothing; ceilings and partitions stay."""
        free = tuple(
            replace(
                r, executable_s=0.0 if r.executable_s < NEVER else NEVER, function_s=0.0 if r.function_s < NEVER else NEVER,
                feed_s=0.0, start_s=0.0,
            )
            for r in self.runtimes
        )  # fmt: skip
        return replace(self, runtimes=free, agent_s=0.0)

    def with_(self, cv: float) -> Plan:
        """The same pilot with another variation of its services."""
        return replace(self, cv=cv)


def partitions(nodes: int) -> int:
    """How many partitions there are unless something else is asked for: one per 64 nodes, at least 1 and at most 16."""
    return min(16, max(1, nodes // 64))


def bounds(nodes: int, instances: int) -> np.ndarray:
    """The first node of each of the contiguous parts, and the number of nodes at the end; sizes differ by at most one."""
    return np.array([nodes * i // instances for i in range(instances + 1)], np.int64)


#: What a site's controller lets exist at once: the published utilization below one half on 4 nodes follows from it (112 of 224 cores).
CEILING = 112
#: Seconds until an instance of Flux and of Dragon is up, and what each further instance adds.
FLUX_START_S, FLUX_EACH_S, DRAGON_START_S = 20.0, 0.5, 9.0
#: Tasks per second that all Flux instances together are fed with (published peak with partitions).
FLUX_FEED_PER_S = 930.0
#: Functions, executables and feed of Dragon, tasks per second: fitted so that functions and executables together exceed 1,500.
DRAGON_FUNCTIONS_PER_S, DRAGON_EXECUTABLES_PER_S, DRAGON_FEED_PER_S = 620.0, 340.0, 700.0
#: Functions per second that one node's pool of warm interpreters takes, and seconds until it is up (our design; our own pool is faster).
POOL_PER_S, POOL_START_S = 5000.0, 2.0


def srun(nodes: int, ceiling: int = CEILING, functions: bool = True) -> Runtime:
    """Every launch is an `srun`, which one central controller starts, and which lives as long as its task."""
    launch = srun_s(nodes)
    return Runtime("srun", launch, launch if functions else NEVER, ceiling=ceiling)


def flux(nodes: int, instances: int = 1) -> Runtime:
    """Flux instances with nodes of their own."""
    start = FLUX_START_S + (FLUX_EACH_S * instances if instances > 1 else 0.0)
    launch = flux_s(max(1, nodes // instances))
    return Runtime("flux", launch, launch, 1 / FLUX_FEED_PER_S, instances, start)


def dragon(nodes: int) -> Runtime:
    """One Dragon runtime over all nodes: executables by its process groups, functions by its warm workers."""
    functions, executables = (dragon_s(nodes, per_s) for per_s in (DRAGON_FUNCTIONS_PER_S, DRAGON_EXECUTABLES_PER_S))
    return Runtime("dragon", executables, functions, 1 / DRAGON_FEED_PER_S, start_s=DRAGON_START_S)


def pools(nodes: int) -> Runtime:
    """One pool of warm interpreters on each node, all started by a single `srun`."""
    return Runtime("pool", function_s=1 / POOL_PER_S, start_s=POOL_START_S + srun_s(nodes), per_node=True)


def srun_s(nodes: int, per_s: float = 152.0, growth: float = 0.25) -> float:
    """Seconds per launch by one central controller: 1/152 s on one node (published peak), more with the nodes (our design)."""
    return (1 + growth * math.log2(nodes)) / per_s


def flux_s(nodes: int, per_s: float = 700.0, growth_s: float = 0.2e-3) -> float:
    """Seconds per launch by a Flux instance with so many nodes."""
    return 1 / per_s + growth_s * math.log2(nodes)


def dragon_s(nodes: int, per_s: float, growth: float = 0.15) -> float:
    """Seconds per launch by a Dragon runtime with so many nodes."""
    return (1 + growth * math.log2(nodes)) / per_s
