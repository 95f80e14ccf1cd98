"""Two replicas run on half the GPUs each. A loss stops one of them, and the other goes on and takes over the interrupted requests.

The remaining GPUs of a broken half are idle until there are enough for another half, by a repair or because the other half broke too.
Requests that moved compute their keys and values again. Replication is the oldest answer (Gray, Why do computers stop, 1985), and engines
run on half a node each, 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import NotForThisCase
from armillary.parameters import parameter

from .simulation.restarting import loading_s
from .simulation.service import DETECTION_S, RESTART_S, Resilient, Service
from .workload import ResilienceWork


@dataclass(frozen=True)
class Replicate2(Resilient):
    """Two tensor-parallel groups of half the node. Replication, Gray 1985."""

    restart_s: float = parameter(RESTART_S, "seconds from a process's start to the loading of weights", range=(0.0, 3600.0))

    def service(self, work: ResilienceWork) -> Service:
        """Returns the service with both halves, if the model fits on one."""
        node = work.node
        half = node.gpus // 2
        if half < 1 or node.model.kv_heads % half or not node.fits(node.layout(half)):
            raise NotForThisCase(f"{node.model.name} does not fit on {half} GPUs, or its heads do not divide")
        return Halves(work, half, self.restart_s)


class Halves(Service):
    """Two groups, of which a broken one is started again as soon as enough GPUs are idle."""

    def __init__(self, work: ResilienceWork, half: int, restart_s: float) -> None:
        self.groups = [list(range(half)), list(range(half, 2 * half))]
        self.half, self.restart_s = half, restart_s
        self.healthy = list(range(work.node.gpus))
        self.limbo: list[int] = []
        #: The number of starts of each group; a start during which a GPU is lost is void.
        self.starts = [0, 0]
        super().__init__(work, [work.node.layout(tuple(g)) for g in self.groups], [0, 1])

    def down(self, device: int) -> None:
        """Sends the group's requests to the other one, and starts a new group if enough GPUs are idle."""
        if device in self.healthy:
            self.healthy.remove(device)
        for r, group in enumerate(self.groups):
            if device not in group:
                continue
            self.starts[r] += 1
            self.groups[r] = []
            self.say(f"GPU {device} is lost, and the replica on {self.half} GPUs with it")
            if r in self.opened:
                running, waiting = self.halt(r)
                self.interrupt(running)
                self.lost_tokens += sum(computed for _, computed in running)
                self.limbo += [*(q for q, _ in running), *waiting]
                if self.opened:
                    self.kv_capacity = min(self.kv_capacity, self._capacity())
                    self.serving.at(self.now + DETECTION_S, self._send)
            self._fill(DETECTION_S)

    def up(self, device: int) -> None:
        """Starts a group if the repaired GPU completes one."""
        self.healthy.append(device)
        self._fill(0.0)

    def _fill(self, noticed_s: float) -> None:
        for r, group in enumerate(self.groups):
            idle = [d for d in self.healthy if not any(d in g for g in self.groups)]
            if group or len(idle) < self.half:
                continue
            self.groups[r] = idle[: self.half]
            hole = noticed_s + self.restart_s + loading_s(self.node, self.layouts[r])
            self.serving.at(self.now + hole, lambda r=r, start=self.starts[r]: self._begin(r, start))  # type: ignore[misc]

    def _begin(self, r: int, start: int) -> None:
        if self.starts[r] == start:
            self.open(r, self.node.layout(tuple(self.groups[r])))
            self._send()

    def _send(self) -> None:
        if self.opened:
            limbo, self.limbo = self.limbo, []
            for q in limbo:
                self.send(q, min(self.opened, key=lambda r: self.serving.snapshot(r).tokens))
