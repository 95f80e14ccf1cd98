"""DHRT behind the Kubernetes scheduler: which nodes keep a pod's deadline, and which of them cost least.

    from armillary.scheduling.kubernetes import Extender, serve
    serve(Extender(judge(dhrt)))

A pod says by annotations which function it runs and within how many seconds it must have ended; a node's label says its type. The size
is the pod's CPU request, rounded up to a size of the menu. Where no node would be in time, none is refused: the pod runs late rather than
never.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from armillary.errors import InputError
from armillary.scheduling.functions.dhrt import Dhrt
from armillary.scheduling.functions.planning.allocator import Worker
from armillary.scheduling.kubernetes import Judged, Node, Pod

from .knative import TYPE_LABEL

FUNCTION, DEADLINE = "armillary.dev/function", "armillary.dev/deadline-seconds"


def judge(
    dhrt: Dhrt, *, speeds: Mapping[str, float] | None = None, prices: Mapping[str, float] | None = None, label: str = TYPE_LABEL
) -> Callable[[Pod, Sequence[Node]], Judged]:
    """A function from a pod and nodes to feasibility and scores, by what `dhrt` has learned.

    speeds, prices: by node type, 1 where one is not named; prices are per core and time.
    """

    def decide(pod: Pod, nodes: Sequence[Node]) -> Judged:
        function = pod.annotations.get(FUNCTION, "")
        if not function:
            return Judged()
        slack = _seconds(pod.annotations.get(DEADLINE, ""), pod.name)
        own = dhrt.allocator
        sizes = [float(v) for v in own.sizes if v >= pod.cpu - 1e-9]
        v = sizes[0] if sizes else float(own.sizes[-1])
        needs: dict[str, float] = {}
        costs: dict[str, float] = {}
        found: dict[str, tuple[float, float, float]] = {}
        for node in nodes:
            kind = node.labels.get(label, "")
            if kind not in found:
                worker = Worker(
                    node.name, kind, max(node.cpu, 1.0), node.cpu, speed=(speeds or {}).get(kind, 1.0), price=(prices or {}).get(kind, 1.0)
                )
                time, deviation = own.expect(function, worker, v)
                found[kind] = (time, deviation, worker.price)
            time, deviation, price = found[kind]
            if math.isfinite(time):
                needs[node.name] = time + own.policy.z * deviation
                costs[node.name] = v * time * price
        late = {name: f"needs {need:.3g} s of {slack:.3g} s" for name, need in needs.items() if need > slack}
        if len(late) == len(nodes):
            return Judged(scores={name: -need for name, need in needs.items()})
        return Judged(refused=late, scores={name: -cost for name, cost in costs.items()})

    return decide


def _seconds(text: str, pod: str) -> float:
    try:
        found = float(text) if text else math.inf
    except ValueError:
        found = math.nan
    if not found > 0:
        raise InputError(f"found {text[:40]!r}; expected seconds above 0", where=f"{pod}: {DEADLINE}")
    return found
