"""A plan, and the checker that recomputes everything it promises."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from .problem import Problem

#: How far a sum may exceed its limit because of rounding, as a share of the limit; HiGHS keeps constraints to 1e-6 only.
TOLERANCE = 2e-6


@dataclass(frozen=True, eq=False)
class Plan:
    """Which node holds which service (`placed`, M × K), and how requests travel.

    Route r carries the share `share[r]` of user `user[r]`'s requests along the nodes `path[r]`, one per service of the chain, −1 behind its
    end. A user without a route is not served. `borrowed` lists (service, group, node) where stage 2 of SoCL found no storage in a group.
    """

    problem: Problem
    placed: np.ndarray
    user: np.ndarray
    share: np.ndarray
    path: np.ndarray
    borrowed: tuple[tuple[int, int, int], ...] = ()

    @classmethod
    def of_paths(cls, problem: Problem, placed: np.ndarray, path: np.ndarray) -> Plan:
        """A plan in which each user has one path (U × longest chain); users whose path begins with −1 are not served."""
        served = np.flatnonzero(path[:, 0] >= 0)
        return cls(problem, placed.astype(bool), served, np.ones(len(served)), path[served].astype(np.int64))

    @property
    def instances(self) -> dict[str, list[str]]:
        """The nodes that hold each service."""
        p = self.problem
        return {name: [p.nodes[k] for k in np.flatnonzero(self.placed[m])] for m, name in enumerate(p.services)}

    def check(self) -> Checked:
        """Recomputes cost, latency, objective and every constraint from the plan alone."""
        return check(self)

    def to_geojson(self) -> dict[str, Any]:
        """The plan as a GeoJSON FeatureCollection of nodes, links and routes."""
        from armillary.scheduling.provisioning.sockets.geojson import to_geojson

        return to_geojson(self)

    def to_kubernetes(self, image: str = "registry.example/{service}:latest") -> list[dict[str, Any]]:
        """The plan as Kubernetes Deployments with node affinity, Services, and Istio routes with weights."""
        from armillary.scheduling.provisioning.sockets.kubernetes import manifests

        return manifests(self, image)

    def write(self, path: str | os.PathLike[str], image: str = "registry.example/{service}:latest") -> None:
        """Writes `.geojson`, or a Kubernetes List as `.json`, which `kubectl apply -f` reads."""
        import json
        from pathlib import Path

        if str(path).endswith(".geojson"):
            document = self.to_geojson()
        else:
            document = {"apiVersion": "v1", "kind": "List", "items": self.to_kubernetes(image)}
        Path(path).write_text(json.dumps(document, indent=1) + "\n")


@dataclass(frozen=True)
class Checked:
    """What a plan costs and delivers by the model, and which constraints it breaks.

    `latency` holds the expected milliseconds of each user, NaN for one that is not served; `late` the users whose deadline is missed.
    `faults` are sentences about storage, capacity, routes that leave their instances, and users that are not served.
    """

    cost: float
    latency_ms: float
    objective: float
    latency: np.ndarray
    load: np.ndarray
    late: tuple[int, ...]
    faults: tuple[str, ...]

    @property
    def feasible(self) -> bool:
        """Whether every constraint holds, deadlines included."""
        return not self.late and not self.faults


def check(plan: Plan) -> Checked:
    """Recomputes cost, latency, objective and every constraint of a plan from scratch, route by route."""
    p = plan.problem
    placed = np.asarray(plan.placed, bool)
    filled = (placed * p.space[:, None]).sum(0)
    faults = [
        f"node {p.nodes[k]} holds {filled[k]:.6g} of storage and has {p.storage[k]:.6g}"
        for k in np.flatnonzero(filled > p.storage * (1 + TOLERANCE) + 1e-12).tolist()
    ]
    load, latency, carried = np.zeros(len(p.nodes)), np.zeros(len(p.users)), np.zeros(len(p.users))
    for u, share, path in zip(plan.user.tolist(), plan.share.tolist(), plan.path.tolist()):
        chain = p.chain[p.chain_start[u] : p.chain_start[u + 1]].tolist()
        nodes = path[: len(chain)]
        if any(not 0 <= k < len(p.nodes) or not placed[m, k] for m, k in zip(chain, nodes)):
            faults.append(f"user {p.users[u]} is sent to a node that does not hold the service")
            continue
        travel = sum(float(share_o) * p.mb[u] * p.distance[o, nodes[0]] for o, share_o in enumerate(p.origin[u]) if share_o > 0)
        travel += sum(p.mb[u] * p.distance[a, b] for a, b in itertools.pairwise(nodes))
        latency[u] += share * (travel + sum(p.ms[m] for m in chain))
        carried[u] += share
        for m, k in zip(chain, nodes):
            load[k] += share * p.rate[u] * p.cpu[m] * p.ms[m] / 1e3
    faults += [
        f"node {p.nodes[k]} is loaded with {load[k]:.6g} cores and may be with {p.room[k]:.6g}"
        for k in np.flatnonzero(load > p.room * (1 + TOLERANCE) + 1e-12).tolist()
    ]
    faults += [f"user {p.users[u]} is served {carried[u]:.6g} times" for u in np.flatnonzero(np.abs(carried - 1.0) > TOLERANCE).tolist()]
    latency[carried < 0.5] = np.nan
    late = np.flatnonzero(~(latency <= p.deadline * (1 + TOLERANCE)))
    cost = float((placed * p.price[:, None]).sum())
    mean = float((p.weight * latency).sum())
    return Checked(cost, mean, p.objective(cost, mean), latency, load, tuple(late.tolist()), tuple(faults))
