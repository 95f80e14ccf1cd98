"""DHRT: start from a guess, look at every live run, and move to the smallest allocation on the cheapest node type that is in time.

Each run updates a profile of its function: times by size and node type, how much of the time is parallel (by CPU and throttled seconds),
and peaks of memory. A call gets the pair of node type and size that costs least among those expected to meet its deadline with a margin.
The queue goes by the latest time at which a call can start, and is looked at again every 100 ms, so a call's size grows as its slack
shrinks. A running call that falls behind gets a larger quota. A call that cannot be in time any more runs last.

Deadline-Aware Resource Allocation and Scheduling of Serverless Workloads on Heterogeneous Clusters, IEEE CLUSTER 2025. The procedures are
our design after the abstract: the fit, the margin, the exploration, the order of the queue and the looks at running calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from armillary.arena import Claim, Gain, Kind, Level, Technique, parameter

from .planning.allocator import Allocation, Allocator, Call, Worker
from .planning.policy import CHOSEN, FIRST_COME, LATEST_START, Policy
from .workload import FunctionsWork

RIVALS = ("fixed-least-loaded", "fixed-tuned", "fixed-random", "round-robin", "edf-fixed", "max-alloc", "first-fit")
_OURS = "the abstract has no figure; the level is ours"


@dataclass(frozen=True)
class Dhrt(Technique):
    """Sizes and nodes by deadlines, learned from live runs."""

    z: float = parameter(1.65, "standard deviations of margin before a deadline", range=(0.0, 10.0))
    explore: float = parameter(0.1, "chance of trying a neighbouring size, over the root of the runs so far", range=(0.0, 1.0))
    counters: bool = parameter(True, "whether CPU and throttled seconds say how parallel a function is")
    node_factors: bool = parameter(True, "whether it learns how much node types differ for a function")
    learn_memory: bool = parameter(True, "whether memory follows the peaks that were seen")
    raise_quota: bool = parameter(True, "whether running calls that fall behind get a larger quota")
    admission: bool = parameter(True, "whether calls that cannot be in time run last")
    latest_start: bool = parameter(True, "whether the queue goes by latest starts; otherwise first come, first served")
    look_ms: float = parameter(100.0, "milliseconds between looks at the queue; 0 for looks at events only", range=(0.0, 60_000.0))

    claims = (
        Claim(
            "calls_to_converge", by=Level(at_most=5), on=Kind("cpu-bound"), source="abstract; level ours",
            says="optimal allocations after a few live executions, on CPU-bound functions",
        ),
        Claim(
            "calls_to_converge", by=Level(at_most=10), on=Kind("load"), source="abstract; level ours",
            says="optimal allocations after a few live executions, on all functions",
        ),
        Claim(
            "deadline_missed", over=RIVALS, by=Gain(percent=(50, None)), on=Kind("load"), honest=(50, None), part=15, why=_OURS,
            says="significantly fewer deadline violations", source="abstract; level ours",
        ),
        Claim(
            "core_s_per_met", over=RIVALS, by=Gain(percent=(10, None)), on=Kind("load"), honest=(10, None), part=0, why=_OURS,
            says="better resource efficiency", source="abstract; level ours",
        ),
        Claim(
            "deadline_met", over="fixed-tuned", by=Gain(difference=(-0.01, None)), on=Kind("misfit"), source="ours",
            says="hardly more misses than tuned sizes where times go in steps and inputs come in two sizes",
        ),
        Claim(
            "deadline_missed", over="edf-tuned", by=Gain(percent=(15, None)), on=Kind("load"), source="ours",
            says="fewer misses than sizes for tight deadlines with the earliest deadline first",
        ),
        Claim(
            "core_s_per_met", over="edf-tuned", by=Gain(percent=(0, None)), on=Kind("load"), source="ours",
            says="no more core-seconds per call in time than these",
        ),
        Claim(
            "deadline_met", over="edf-tuned", by=Gain(difference=(-0.01, None)), on=Kind("misfit"), source="ours",
            says="hardly more misses than these on misfits",
        ),
    )  # fmt: skip

    def policy(self, work: FunctionsWork | None = None) -> Policy:
        """The rules that the play follows."""
        return Policy(
            size=CHOSEN, order=LATEST_START if self.latest_start else FIRST_COME, z=self.z, counters=self.counters,
            node_factors=self.node_factors, learn_memory=self.learn_memory, raise_quota=self.raise_quota, admission=self.admission,
            explore=self.explore, look_s=self.look_ms / 1e3,
        )  # fmt: skip

    @property
    def allocator(self) -> Allocator:
        """What this object has learned from `observe`."""
        own: Allocator | None = self.__dict__.get("_allocator")
        if own is None:
            own = self.__dict__["_allocator"] = Allocator(self.policy(), self.rng)
        return own

    def allocate(self, call: Call, nodes: Sequence[Worker]) -> Allocation:
        """(node, vCPUs, MB) for a call on nodes as they are now; no node where the call should wait."""
        return self.allocator.allocate(call, nodes)

    def observe(
        self, call: Call, cpu_s: float, wall_s: float, peak_mb: float, node: Worker, vcpu: float = 1.0, *, throttled_s: float | None = None
    ) -> bool:
        """Learns from a run; False if a timing is no number, and the run is dropped."""
        return self.allocator.observe(call, cpu_s, wall_s, peak_mb, node, vcpu, throttled_s=throttled_s)
