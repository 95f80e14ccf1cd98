"""A plan as Kubernetes manifests: a Deployment per instance, a Service per service, and Istio-like routes with weights.

A Deployment is bound to its node by `kubernetes.io/hostname`. Requests of a service's callers are told apart by the label of the node that
they come from, and each VirtualService sends them to the instances in the proportions in which the plan's routes do.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.scheduling.provisioning.problem.plan import Plan

_PROXY = "networking.istio.io/v1"


def manifests(plan: Plan, image: str = "registry.example/{service}:latest") -> list[dict[str, Any]]:
    """Deployments, Services, DestinationRules and VirtualServices, in this order; `image` may name the service in braces."""
    p = plan.problem
    name_of, node_of = _labels(p.services, "service"), _labels(p.nodes, "node")
    used = [m for m in range(len(p.services)) if plan.placed[m].any()]
    flows = _flows(plan)
    deployments = [
        _deployment(name_of[m], node_of[k], p.nodes[k], float(p.cpu[m]), image)
        for m in used
        for k in np.flatnonzero(plan.placed[m]).tolist()
    ]
    services = [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name_of[m]},
         "spec": {"selector": {"app": name_of[m]}, "ports": [{"port": 80, "targetPort": 8080}]}}
        for m in used
    ]  # fmt: skip
    rules = [
        {"apiVersion": _PROXY, "kind": "DestinationRule", "metadata": {"name": name_of[m]}, "spec": {"host": name_of[m], "subsets": [
            {"name": node_of[k], "labels": {"edge-node": node_of[k]}} for k in np.flatnonzero(plan.placed[m]).tolist()]}}
        for m in used
    ]  # fmt: skip
    routes = []
    for m in used:
        http = []
        for source in sorted(flows[m]):
            weights = _percent(flows[m][source])
            match = {} if source < 0 else {"match": [{"sourceLabels": {"edge-node": node_of[source]}}]}
            to = [{"destination": {"host": name_of[m], "subset": node_of[k]}, "weight": share} for k, share in weights.items()]
            http.append((source, {**match, "route": to}))
        # What comes from outside the mesh carries no label, so its rule stands last and matches everything.
        http.sort(key=lambda one: (one[0] < 0, one[0]))
        routes.append(
            {"apiVersion": _PROXY, "kind": "VirtualService", "metadata": {"name": name_of[m]},
             "spec": {"hosts": [name_of[m]], "http": [rule for _, rule in http]}}
        )  # fmt: skip
    return [*deployments, *services, *rules, *routes]


def _deployment(service: str, node: str, host: str, cores: float, image: str) -> dict[str, Any]:
    labels = {"app": service, "edge-node": node}
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    request = {"cpu": f"{max(1, round(1000 * cores))}m"}
    container = {"name": service, "image": image.replace("{service}", service), "resources": {"requests": request}}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": f"{service}-{node}", "labels": labels},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"affinity": affinity, "containers": [container]}}},
    }  # fmt: skip


def _flows(plan: Plan) -> list[dict[int, dict[int, float]]]:
    """For each service, the requests per second from each node (−1: from the users) to each of its nodes."""
    p = plan.problem
    out: list[dict[int, dict[int, float]]] = [defaultdict(lambda: defaultdict(float)) for _ in p.services]
    for u, share, path in zip(plan.user.tolist(), plan.share.tolist(), plan.path.tolist()):
        before = -1
        for place, m in enumerate(p.chain[p.chain_start[u] : p.chain_start[u + 1]].tolist()):
            out[m][before][path[place]] += share * float(p.rate[u])
            before = path[place]
    return out


def _percent(flows: dict[int, float]) -> dict[int, int]:
    """Whole percentages that sum to 100: the largest remainders are rounded up."""
    total = sum(flows.values())
    exact = {k: 100 * value / total for k, value in flows.items()}
    whole = {k: int(value) for k, value in exact.items()}
    for k in sorted(exact, key=lambda k: (whole[k] - exact[k], k))[: 100 - sum(whole.values())]:
        whole[k] += 1
    return {k: whole[k] for k in sorted(whole) if whole[k]}


def _labels(names: tuple[str, ...], what: str) -> list[str]:
    """Names as Kubernetes takes them: lower-case letters, digits and dashes, 30 at most; two that become equal are refused."""
    found = [re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:30].strip("-") for name in names]
    found = [f"{what}-{name}" if not name or not name[0].isalpha() else name for name in found]
    seen: dict[str, str] = {}
    for name, label in zip(names, found):
        if label in seen:
            raise InputError(f'the {what}s "{seen[label]}" and "{name}" would both be called {label} in Kubernetes; rename one of them')
        seen[label] = name
    return found
