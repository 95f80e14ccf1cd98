"""Tries every transport, placement, reduction and, if older data may be analysed, frequency; takes the one that costs least.

A versatile simulated data transport layer for in situ workflows performance evaluation, IEEE CLUSTER 2025.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from armillary.arena import Claim, InputError, Kind, Level, NotForThisCase, Technique, parameter

from .reduction.reduction import Reduction
from .simulation.way import Way

if TYPE_CHECKING:
    from .simulation.play import Simulated
    from .workload import TransportWork

#: Transport and placement, in the order in which ties are broken.
WAYS = (
    ("staging-colocated", "colocated"), ("staging-remote", "remote"), ("file-local", "colocated"), ("file-local", "remote"),
    ("file-shared", "colocated"), ("file-shared", "remote"),
)  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """One way, and what it costs."""

    transport: str
    placement: str
    reduction: str
    every: int
    found: Simulated

    def row(self) -> dict[str, Any]:
        """For a table."""
        return {
            "transport": self.transport, "placement": self.placement, "reduction": self.reduction, "every": self.every,
            "makespan": self.found.makespan, "core_seconds": self.found.core_seconds, "bytes_moved": self.found.bytes_moved,
        }  # fmt: skip


@dataclass(frozen=True)
class Auto(Technique):
    """The best way by simulation."""

    goal: str = parameter("makespan", "what should be least", choices=("makespan", "core_seconds"))
    lossy: bool = parameter(False, "let data be decimated or compressed too")
    staleness: int = parameter(1, "analyse at least every so many-th of the steps that streams publish now", range=(1, 1000))
    eps: float = parameter(1e-3, "error bound of a compression", range=(1e-15, 1.0))
    flops: float = parameter(10.0, "flops per element that a reduction costs at each side", range=(0.0, 1e6))

    claims = (
        Claim(
            "prediction_error", by=Level(at_most=15.0), on=Kind("real"), honest=(None, 15.0), part=30.0,
            why="the paper names no figure for real transports; 15 % is what a choice between them needs",
            says="predicts the makespan of real files and real staging", source="ours",
        ),
        Claim(
            "ranking_agrees", by=Level(at_least=1.0), on=Kind("real"), source="ours",
            says="the simulated ranking of real transports is the measured one on every case",
        ),
        Claim(
            "regret", by=Level(at_most=10.0), on=Kind("real"), source="ours",
            says="its choice costs at most 10 % more than the best measured one",
        ),
    )  # fmt: skip

    def simulate(self, work: TransportWork) -> Simulated:
        """The best way's figures."""
        return self.search(work)[0].found

    def search(self, work: TransportWork, simulate: Callable[[Way], Simulated] | None = None) -> list[Choice]:
        """Every way that is possible, best first; at equal cost, in the order of `WAYS`.

        `simulate` plays one way on the work, for callers that know some ways already.
        """
        found, reasons = [], []
        for way in self._ways():
            try:
                simulated = way.simulate(work) if simulate is None else simulate(way)
            except InputError as error:
                reasons.append(f"{way.transport}: {error}")
                continue
            found.append(Choice(way.transport, way.placement, way.reduction.kind, way.every, simulated))
        if not found:
            raise NotForThisCase("; ".join(dict.fromkeys(reasons)))
        return sorted(found, key=lambda one: float(getattr(one.found, self.goal)))

    def _ways(self) -> Iterator[Way]:
        reductions = [Reduction()]
        if self.lossy:
            reductions += [
                Reduction("decimation", flops=self.flops),
                Reduction("compression", compressor="sz", eps=self.eps, flops=self.flops),
            ]
        every = sorted({1, *(2**i for i in range(1, 10) if 2**i <= self.staleness), self.staleness})
        for transport, placement in WAYS:
            for reduction in reductions:
                for factor in every:
                    yield Way(transport, placement, reduction, factor)


def front(choices: list[Choice]) -> list[Choice]:
    """The choices that no other beats in both makespan and core-seconds, by makespan."""
    kept: list[Choice] = []
    for one in sorted(choices, key=lambda c: (c.found.makespan, c.found.core_seconds)):
        if not kept or one.found.core_seconds < kept[-1].found.core_seconds:
            kept.append(one)
    return kept
