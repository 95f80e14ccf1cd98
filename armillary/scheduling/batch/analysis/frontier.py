"""What fairness costs: I/O slowdown against wait from one end of EquilibrIO's dial to the other, with both licences beside it."""

from __future__ import annotations

from typing import Any

from armillary.scheduling.batch.bandwidth_license import BandwidthLicense
from armillary.scheduling.batch.equilibrio import EquilibrIO
from armillary.scheduling.batch.peak_license import PeakLicense
from armillary.scheduling.batch.simulation.policy import Policy
from armillary.scheduling.batch.simulation.replay import metrics
from armillary.scheduling.batch.workload import BatchWork

FAIRNESS = (0.0, 0.05, 0.1, 0.3, 0.6, 1.0)


def frontier(work: BatchWork) -> list[dict[str, Any]]:
    """One row per point: the policy, its fairness (None for a licence), I/O slowdown, mean wait and mean turnaround in seconds."""
    points: list[tuple[str, float | None, Policy]] = [("equilibrio", phi, EquilibrIO(fairness=phi)) for phi in FAIRNESS]
    points += [("bandwidth-license", None, BandwidthLicense()), ("peak-license", None, PeakLicense())]
    rows = []
    for name, phi, policy in points:
        found = metrics(policy.play(work))
        rows.append({"policy": name, "phi": phi} | {key: found[key] for key in ("io_slowdown", "wait_mean_s", "turnaround_mean_s")})
    return rows
