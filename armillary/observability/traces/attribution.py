"""What a technique says of a run: how much device time each cause cost, and what changed from one run to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from armillary.arena import Technique

from .analysis.lost import CAUSES, NAMED
from .run.model import Run

#: What a change may be put down to besides causes of lost time: kernels that take longer.
COMPUTE = "compute"


@dataclass(frozen=True)
class Attribution:
    """Shares of the device time: lost to each cause, and spent on each computing kernel where the technique knows it.

    `uncertainty` is by how much imbalance and communication may be wrong because of clocks; None where that is unknown.
    """

    elapsed_ns: float
    shares: Mapping[str, float]
    useful: float
    kernels: Mapping[str, float] = field(default_factory=dict)
    uncertainty: float | None = 0.0

    @property
    def named(self) -> tuple[str, ...]:
        """The causes that matter, largest first: at least 3 % of the device time, and more than what the clocks leave open."""
        doubt = 1.0 if self.uncertainty is None else self.uncertainty
        least = {"imbalance": max(NAMED, doubt), "communication": max(NAMED, doubt)}
        found = [(share, cause) for cause, share in self.shares.items() if share >= least.get(cause, NAMED)]
        return tuple(cause for _, cause in sorted(found, reverse=True))

    @property
    def main(self) -> str:
        """The cause that is named first, or an empty text."""
        return self.named[0] if self.named else ""


@dataclass(frozen=True)
class Change:
    """Shares of the second run's device time by which causes and computing grew, and what explains most: a cause or a kernel."""

    shares: Mapping[str, float]
    main: str


class Analyst(Technique):
    """A technique that says where the devices of a run lost their time."""

    def attribute(self, run: Run) -> Attribution:
        """The shares of the device time that were lost, by cause."""
        raise NotImplementedError

    def explain(self, before: Run, after: Run) -> Change:
        """What changed: the difference of what is said of both runs."""
        return difference(self.attribute(before), self.attribute(after))


def difference(before: Attribution, after: Attribution) -> Change:
    """The change from one attribution to another; the largest part explains it, and computing is told by kernel where kernels are known."""
    scale = before.elapsed_ns / after.elapsed_ns
    shares = {cause: after.shares.get(cause, 0.0) - before.shares.get(cause, 0.0) * scale for cause in CAUSES}
    shares[COMPUTE] = after.useful - before.useful * scale
    main = max(shares, key=lambda name: abs(shares[name]))
    kernels = {
        name: after.kernels.get(name, 0.0) - before.kernels.get(name, 0.0) * scale for name in before.kernels.keys() | after.kernels.keys()
    }  # fmt: skip
    if main == COMPUTE and kernels:
        main = max(sorted(kernels), key=lambda name: abs(kernels[name]))
    return Change(shares, main)
