"""What each part of the strategies brings: order by demand, choice of links, no slots, ageing."""

from __future__ import annotations

from typing import Any

from armillary.scheduling.quantum.asap import Asap
from armillary.scheduling.quantum.epr_nodes import EprNodes
from armillary.scheduling.quantum.planning.strategy import Strategy
from armillary.scheduling.quantum.simulation.schedule import Schedule
from armillary.scheduling.quantum.workload import QuantumWork

#: Strategies with one part changed, by name.
PARTS: dict[str, tuple[type[Strategy], dict[str, Any]]] = {
    "asap": (Asap, {}),
    "asap without ageing": (Asap, {"age_weight": 0.0}),
    "asap in queue order": (Asap, {"by_demand": False}),
    "asap without links": (Asap, {"by_links": False}),
    "asap with neither (list without slots)": (Asap, {"by_demand": False, "by_links": False}),
    "epr-nodes (asap with slots)": (EprNodes, {}),
    "epr-nodes in queue order": (EprNodes, {"by_demand": False}),
    "epr-nodes without links (epr)": (EprNodes, {"by_links": False}),
    "neither (list)": (EprNodes, {"by_demand": False, "by_links": False}),
}


def ablation(work: QuantumWork) -> dict[str, Schedule]:
    """The judge's schedule of each variant."""
    return {name: work.play(kind(**change)) for name, (kind, change) in PARTS.items()}
