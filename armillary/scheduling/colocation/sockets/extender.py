"""Hestia behind the Kubernetes scheduler: which nodes have the threads for a pod, and on which it is slowed down least.

    from armillary.scheduling.kubernetes import Extender, serve
    serve(Extender(judge(live)))

A pod says its application by the annotation `armillary.dev/app`, and its readings, if it has any, by `armillary.dev/cpi`, `mpki`,
`mem-gbps`, `net-mbps`, `cpu-cores` and `rps`. Its threads are its CPU request, rounded up. Nodes are known by what `live.observe` was told;
a node that it does not know is neither refused nor scored. The CPUs for the node's agent come from `live.place`, as an annotation or a
cgroup line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from armillary.errors import InputError
from armillary.scheduling.kubernetes import Judged, Node, Pod

from .live import Instance, Live

APP = "armillary.dev/app"
READINGS = {
    "cpi": "armillary.dev/cpi", "mpki": "armillary.dev/mpki", "mem_gbps": "armillary.dev/mem-gbps", "net_mbps": "armillary.dev/net-mbps",
    "cpu_cores": "armillary.dev/cpu-cores", "rps": "armillary.dev/rps",
}  # fmt: skip


def instance_of(pod: Pod) -> Instance | None:
    """The instance that a pod asks for; None without an application."""
    app = pod.annotations.get(APP, "")
    if not app:
        return None
    values: dict[str, float] = {}
    for name, key in READINGS.items():
        text = pod.annotations.get(key, "")
        if text:
            try:
                values[name] = float(text)
            except ValueError:
                values[name] = math.nan
            if not math.isfinite(values[name]):
                raise InputError(f"found {text[:40]!r}; expected a number", where=f"{pod.name}: {key}")
    return Instance(pod.name, app, max(1, math.ceil(pod.cpu - 1e-9)), **values)  # type: ignore[arg-type]


def judge(live: Live) -> Callable[[Pod, Sequence[Node]], Judged]:
    """A function from a pod and nodes to feasibility and scores, by what `live` knows of the servers."""

    def decide(pod: Pod, nodes: Sequence[Node]) -> Judged:
        instance = instance_of(pod)
        if instance is None:
            return Judged()
        known = [node.name for node in nodes if node.name in live.servers]
        if not known:
            return Judged()
        found = live.scores(instance, known)
        refused = {name: f"fewer than {instance.threads} free hardware threads" for name in known if name not in found}
        return Judged(refused=refused, scores={name: -score for name, score in found.items()})

    return decide
