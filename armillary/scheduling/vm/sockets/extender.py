"""TRACE behind the Kubernetes scheduler, for clusters whose pods are VMs (KubeVirt and others).

    from armillary.scheduling.kubernetes import Extender, serve
    serve(Extender(judge(Trace.load(), hosts)))

`hosts` gives the nodes with the VMs on them as they are now. A pod says its metrics by an annotation, a JSON object; its vCPUs and memory
are its requests unless the annotation has them. Nodes score by the predicted QoS. A VM that is on one of the nodes already is moving: nodes
to which the move is not worth it are refused, unless none would be left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from armillary.errors import InputError
from armillary.files import parse_json
from armillary.scheduling.kubernetes import Judged, Node, Pod
from armillary.scheduling.vm.recommender import Host, Recommender, Vm

METRICS = "armillary.dev/vm-metrics"


def judge(
    recommender: Recommender, hosts: Callable[[], Sequence[Host]], *, clock: Callable[[], float] = lambda: 12.0, annotation: str = METRICS
) -> Callable[[Pod, Sequence[Node]], Judged]:
    """A function from a pod and nodes to feasibility and scores. clock: gives the hour of the day."""

    def decide(pod: Pod, nodes: Sequence[Node]) -> Judged:
        text = pod.annotations.get(annotation, "")
        if not text:
            return Judged()
        vm = Vm(pod.name, _metrics(pod, text, annotation))
        asked = {node.name for node in nodes}
        known = [host for host in hosts() if host.name in asked]
        if not known:
            return Judged()
        found = recommender.recommend(vm, known, k=len(known), hour=clock())
        scores = dict(zip(found.hosts, (10.0 * score for score in found.scores)))
        closed = {name: "the move is not worth it" for name, keep in zip(found.hosts, found.keep) if not keep}
        return Judged(refused=closed if len(closed) < len(found.hosts) else {}, scores=scores)

    return decide


def _metrics(pod: Pod, text: str, annotation: str) -> dict[str, float]:
    where = f"{pod.name}: {annotation}"
    found: Any = parse_json(text, where)
    if not isinstance(found, dict) or not all(isinstance(v, int | float) and not isinstance(v, bool) for v in found.values()):
        raise InputError("expected an object of numbers by metric", where=where)
    asked = {"vcpu": pod.cpu, "memory_gb": pod.memory / 1e9}
    return {name: value for name, value in asked.items() if value} | found
