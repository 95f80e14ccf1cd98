"""Tensor parallelism over a power of two that is restarted after a loss, as serving engines do today, with or without a spare GPU."""

from __future__ import annotations

from armillary.errors import InputError

from ..planning.layout import Layout
from ..planning.node import Node
from ..workload import ResilienceWork
from .service import DETECTION_S, REGROUP_S, RESTART_S, Service


def powers_of_two(node: Node) -> list[int]:
    """Returns the group sizes on which the model fits and its heads divide, largest first."""
    sizes = [2**k for k in range(node.gpus.bit_length()) if 2**k <= node.gpus]
    good = [g for g in sizes if node.model.kv_heads % g == 0 and node.fits(node.layout(g))]
    if not good:
        node.check(node.layout(max(sizes)))
        raise InputError(
            f"{node.model.name}: its {node.model.kv_heads} key-value heads divide over no power of two of {node.gpus} GPUs that holds it"
        )
    return good[::-1]


def loading_s(node: Node, layout: Layout) -> float:
    """Returns the seconds until every GPU of a group has read its weights from host memory over its own link."""
    return float(node.weight_bytes(layout).max()) / node.pcie


class Restarting(Service):
    """One group over the largest power of two of healthy GPUs, which restarts after a loss and when a repair allows a larger group.

    With `retry`, interrupted requests begin again at their prompt; otherwise delivered tokens are kept and all KV is computed again.
    `spares` further GPUs stand by with a running process, and one of them replaces a lost GPU without a restart.
    """

    def __init__(self, work: ResilienceWork, *, restart_s: float = RESTART_S, retry: bool = False, spares: int = 0) -> None:
        self.sizes = powers_of_two(work.node)
        self.restart_s, self.retry = restart_s, retry
        self.healthy = list(range(work.node.gpus + spares))
        self.group = self.healthy[: self.sizes[0]]
        self.spares = spares > 0
        self.limbo: tuple[list[int], list[int]] = ([], [])
        #: The replica that is starting or serving; -1 if there is none.
        self.current = 0
        super().__init__(work, [work.node.layout(g) for g in self.sizes], [0])

    def down(self, device: int) -> None:
        """Interrupts the whole group if it loses a GPU; the loss of an idle GPU changes nothing."""
        if device in self.healthy:
            self.healthy.remove(device)
        if device not in self.group:
            return
        self.generation += 1
        self._stop(interrupted=True)
        idle = [d for d in self.healthy if d not in self.group]
        if self.spares and idle and self.sizes[self.current] == self.sizes[0]:
            self.group[self.group.index(device)] = idle[0]
            self.say(f"GPU {device} is lost; GPU {idle[0]} takes its place")
            self.later(self.now + DETECTION_S + REGROUP_S + loading_s(self.node, self.layouts[self.current]), self._begin)
            return
        self._restart(DETECTION_S, f"GPU {device} is lost")

    def up(self, device: int) -> None:
        """Uses a repaired GPU if the group can double, even while it starts; otherwise the GPU stands by."""
        self.healthy.append(device)
        best = next((i for i, g in enumerate(self.sizes) if g <= len(self.healthy)), -1)
        if best != -1 and (self.current == -1 or best < self.current):
            self.generation += 1
            self._stop(interrupted=False)
            self._restart(0.0, "enough GPUs for a larger group")

    def _stop(self, *, interrupted: bool) -> None:
        if self.current in self.opened:
            running, waiting = self.halt(self.current)
            if interrupted:
                self.interrupt(running)
            self.lost_tokens += sum(computed for _, computed in running)
            self.limbo = ([*self.limbo[0], *(q for q, _ in running)], [*self.limbo[1], *waiting])

    def _restart(self, noticed_s: float, why: str) -> None:
        self.current = next((i for i, g in enumerate(self.sizes) if g <= len(self.healthy)), -1)
        if self.current == -1:
            self.group = []
            self.say(f"{why}; the {len(self.healthy)} left do not hold the model: stopped")
            return
        g = self.sizes[self.current]
        kept = [d for d in self.group if d in self.healthy][:g]
        self.group = [*kept, *(d for d in self.healthy if d not in kept)][:g]
        hole = noticed_s + self.restart_s + loading_s(self.node, self.layouts[self.current])
        self.say(f"{why}; restart over {g} GPUs, {hole:.1f} s")
        self.later(self.now + hole, self._begin)

    def _begin(self) -> None:
        interrupted, waiting = self.limbo
        self.limbo = ([], [])
        for q in interrupted:
            self.send(q, self.current, retry=self.retry)
        for q in waiting:
            self.send(q, self.current)
        self.open(self.current, self.node.layout(tuple(self.group)))
