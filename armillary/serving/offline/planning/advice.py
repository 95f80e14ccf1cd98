"""Answers two questions by planning several times: what does quality cost in speed, and which GPU should be added?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from armillary.cluster import Cluster, from_dict
from armillary.errors import InputError
from armillary.llm import chip

from ..splitquant import SplitQuant
from ..splitquant_h import SplitQuantH
from ..workload import OfflineWork
from .plan import Plan
from .problem import DoesNotFit


@dataclass(frozen=True)
class Point:
    """One plan of a curve, with its Σω and its simulated output tokens per second."""

    quality_loss: float
    token_throughput: float
    plan: Plan


def pareto(work: OfflineWork, points: int = 8, technique: SplitQuant | None = None) -> list[Point]:
    """Returns the Pareto-optimal plans from the best quality that fits to the fastest; simulated.

    The bounds on Σω are spaced geometrically from the least that fits to the loss of the fewest bits.
    """
    if not 2 <= points <= 100:
        raise InputError(f"points: found {points}; expected 2 to 100")
    planner = technique or SplitQuant(limit_s=20.0)
    most = float(work.omegas.max(1).sum())
    fastest = replace(planner, quality=most, theta=0.0).plan_for(work)
    from ..adabits import Adabits

    finest = Adabits().plan_for(work)
    low, found = finest.quality_loss, [finest, fastest]
    floor = max(low, most * 1e-5)
    for k in range(1, points - 1):
        bound = floor * (most / floor) ** (k / (points - 1))
        try:
            found.append(replace(planner, quality=bound, theta=0.0).plan_for(work))
        except DoesNotFit:
            continue
    tried = sorted(
        (Point(p.quality_loss, p.simulate().token_throughput, p) for p in found), key=lambda x: (x.quality_loss, -x.token_throughput)
    )
    kept: list[Point] = []
    for point in tried:
        if not kept or point.token_throughput > kept[-1].token_throughput * (1 + 1e-9):
            kept.append(point)
    return kept


@dataclass(frozen=True)
class Addition:
    """One more device of a kind, with the tokens per second that it gives and the gain over the cluster without it."""

    device: str
    token_throughput: float
    gain: float
    plan: Plan


def which_gpu(
    work: OfflineWork, candidates: Sequence[str] = ("t4", "v100-32", "a100-40", "l40s", "a100-80", "h100-80"),
    technique: SplitQuant | None = None, rate: str = "100 Gb/s",
) -> list[Addition]:  # fmt: skip
    """Returns the devices to add, best first, by planning the work again with one more device of each kind on its own node; simulated."""
    planner = technique or SplitQuantH()
    try:
        before = planner.plan_for(work).simulate().token_throughput
    except DoesNotFit:
        before = 0.0
    found = []
    for name in candidates:
        more = replace(work, cluster=with_device(work.cluster, name, rate), profile=None)
        plan = planner.plan_for(more)
        now = plan.simulate().token_throughput
        found.append(Addition(name, now, now - before, plan))
    return sorted(found, key=lambda each: -each.token_throughput)


def with_device(cluster: Cluster, model: str, rate: str = "100 Gb/s") -> Cluster:
    """Returns the cluster with one more node that has one such device, on the first network."""
    chip(model)  # raises for a name that the catalogue does not know
    tables: dict[str, Any] = cluster.to_dict()
    network = cluster.network_name(None) if cluster.networks else "compute"
    tables.setdefault("network", {}).setdefault(network, {"topology": "star", "rate": rate, "latency": "10 us"})
    node = {
        "socket": [{"count": 1}],
        "device": [{"count": 1, "kind": "npu" if "910" in model else "gpu", "model": model, "near": "socket:0"}],
        "nic": [{"count": 1, "rate": rate, "network": network}],
        "link": [{"kind": "pcie", "topology": "tree", "between": ["socket", "device"], "rate": "12 GB/s", "latency": "0.9 us"}],
    }
    names = {group["name"] for group in tables["group"]}
    name = next(n for n in (f"added-{i}" for i in range(len(names) + 1)) if n not in names)
    tables["group"] = [*tables["group"], {"name": name, "count": 1, "node": node}]
    return from_dict(tables, where=f"{cluster.name} with {model}")
