"""What each part of user interrupts is worth: a scenario with one part off at a time."""

from __future__ import annotations

from typing import Any

from armillary.network.notification.adaptive import Adaptive
from armillary.network.notification.simulation.notifier import Notifier
from armillary.network.notification.simulation.play import alone, compute_of, overlap, play
from armillary.network.notification.uintr import Uintr
from armillary.network.notification.workload import Scenario

VARIANTS: dict[str, Notifier] = {
    "uintr": Uintr(),
    "armed while waiting": Uintr(disarm=False),
    "no coalescing": Uintr(batch=1),
    "kernel-forward": Uintr(variant="kernel-forward"),
    "iommu-posted": Uintr(variant="iommu-posted"),
    "handler 5 times as long": Uintr(handler_us=1.0),
    "adaptive": Adaptive(),
}


def ablation(scenario: Scenario, variants: dict[str, Notifier] | None = None) -> list[dict[str, Any]]:
    """Return a row per variant: time per iteration in microseconds, overlap, and the share of the core that notification takes.

    `overlap` is None in `burst` and without computing, where there is nothing to hide.
    """
    alone_s = alone(scenario)
    compute_s = compute_of(scenario, alone_s)
    rows = []
    for name, technique in (variants or VARIANTS).items():
        played = play(scenario, technique.policy(scenario.cores), compute_s)
        hides = compute_s > 0.0 and scenario.scenario != "burst"
        rows.append(
            {
                "variant": name,
                "time_us": 1e6 * played.iteration_s,
                "overlap": overlap(played, alone_s) if hides else None,
                "stolen": played.stolen,
                "handler_runs": played.runs,
            }
        )
    return rows

