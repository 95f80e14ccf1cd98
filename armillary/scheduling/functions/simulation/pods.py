"""Warm and cold pods on nodes: who is idle there, who is used again, and who leaves.

An idle pod is kept for 60 s, as `scheduling/faas` plays it with a fixed keep-alive, and leaves earlier if its node needs the memory. A
call takes the idle pod of its function on that node that was used last and is large enough.
"""

from __future__ import annotations

from typing import Any

from armillary.kernels import loop

from .state import KEEP_S, UNUSED


@loop
def _unlink(x: Any, node: int, pod: int) -> None:
    """Takes an idle pod out of both lists."""
    older, newer = x.pods.older[pod], x.pods.newer[pod]
    if older >= 0:
        x.pods.newer[older] = newer
    else:
        x.nodes.oldest[node] = newer
    if newer >= 0:
        x.pods.older[newer] = older
    else:
        x.nodes.newest[node] = older
    down, up = x.pods.down[pod], x.pods.up[pod]
    if down >= 0:
        x.pods.up[down] = up
    if up >= 0:
        x.pods.down[up] = down
    else:
        x.head[node, x.pods.function[pod]] = down
    x.nodes.idle_mb[node] -= x.pods.memory[pod]


@loop
def end_pod(x: Any, pod: int, now: float) -> None:
    """A pod leaves, and its memory was held until now."""
    x.memory[0] += x.pods.memory[pod] * (now - x.pods.born[pod])
    x.pods.unused[x.counts[UNUSED]] = pod
    x.counts[UNUSED] += 1


@loop
def expire(x: Any, node: int, now: float) -> None:
    """Pods that have idled for 60 s leave."""
    while x.nodes.oldest[node] >= 0 and x.pods.since[x.nodes.oldest[node]] + KEEP_S < now:
        pod = x.nodes.oldest[node]
        _unlink(x, node, pod)
        end_pod(x, pod, x.pods.since[pod] + KEEP_S)


@loop
def warm_pod(x: Any, node: int, f: int, memory_mb: float) -> int:
    """The idle pod of a function that a call takes, or −1."""
    pod = x.head[node, f]
    while pod >= 0 and x.pods.memory[pod] < memory_mb:
        pod = x.pods.down[pod]
    return int(pod)


@loop
def take_pod(x: Any, node: int, f: int, memory_mb: float, capacity_mb: float, now: float) -> tuple[int, bool]:
    """(pod, cold): a warm one, or a new one, for which idle ones leave if their memory is needed. −1 if no pod is left: an error."""
    pod = warm_pod(x, node, f, memory_mb)
    cold = pod < 0
    if cold:
        while x.nodes.oldest[node] >= 0 and x.nodes.busy_mb[node] + x.nodes.idle_mb[node] + memory_mb > capacity_mb:
            old = x.nodes.oldest[node]
            _unlink(x, node, old)
            end_pod(x, old, now)
        if x.counts[UNUSED] == 0:
            return -1, True
        x.counts[UNUSED] -= 1
        pod = x.pods.unused[x.counts[UNUSED]]
        x.pods.function[pod], x.pods.memory[pod], x.pods.born[pod] = f, memory_mb, now
    else:
        _unlink(x, node, pod)
    x.nodes.busy_mb[node] += x.pods.memory[pod]
    return pod, cold


@loop
def idle_pod(x: Any, node: int, pod: int, now: float) -> None:
    """A pod has served its call and idles."""
    f = x.pods.function[pod]
    x.pods.since[pod] = now
    x.pods.older[pod], x.pods.newer[pod] = x.nodes.newest[node], -1
    if x.nodes.newest[node] >= 0:
        x.pods.newer[x.nodes.newest[node]] = pod
    else:
        x.nodes.oldest[node] = pod
    x.nodes.newest[node] = pod
    x.pods.down[pod], x.pods.up[pod] = x.head[node, f], -1
    if x.head[node, f] >= 0:
        x.pods.up[x.head[node, f]] = pod
    x.head[node, f] = pod
    x.nodes.idle_mb[node] += x.pods.memory[pod]
    x.nodes.busy_mb[node] -= x.pods.memory[pod]
