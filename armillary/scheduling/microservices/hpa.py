"""HPA: as many replicas as bring the mean CPU utilisation to its target.

Every 15 s, `desired = ceil(current · utilisation / target)`, unless the ratio is within 0.1 of 1. Replicas that are not ready count as
idle when it scales up. Within 15 s it at most doubles, or adds four. It scales down to the largest of its last 300 s of recommendations.
Quotas stay as owners set them.

The Horizontal Pod Autoscaler of Kubernetes 1.23 (autoscaling/v2, 2021) with its defaults. Kubernetes leaves the target to the user; 0.3 had
the best score of 0.15 to 0.7 on other draws of the built-in loads.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from armillary.arena import parameter

from .application.application import Application
from .control.allocator import Allocator
from .simulation.window import Decision, Window

SYNC_S, TOLERANCE, STABLE_S = 15, 0.1, 300


def desired_replicas(replicas: int, utilisation: float, target: float, ready: int | None = None, tolerance: float = TOLERANCE) -> int:
    """Kubernetes' rule, where `utilisation` is the mean over `ready` replicas (all of them by default)."""
    ready = replicas if ready is None else ready
    ratio = utilisation / target
    if abs(ratio - 1) <= tolerance or ready == 0:
        return replicas
    if ready == replicas or ratio < 1:
        # Replicas that are not ready are left out when it scales down.
        found = math.ceil(ratio * ready - 1e-9)
        return found if ready == replicas else min(found, replicas)
    whole = ratio * ready / replicas
    if whole <= 1 + tolerance:
        return replicas
    return max(replicas, math.ceil(whole * replicas - 1e-9))


@dataclass(frozen=True)
class Hpa(Allocator):
    """Replicas by CPU utilisation."""

    target: float = parameter(0.3, "CPU utilisation that is aimed at", range=(0.01, 1.0))
    least: int = parameter(1, "fewest replicas of a service", range=(1, 1000))
    most: int = parameter(50, "most replicas of a service", range=(1, 1000))

    def controller(self, app: Application) -> HpaController:
        """A controller for one run."""
        return HpaController(self, app)


class HpaController:
    """The last 15 s of utilisation and the recommendations of the last 300 s."""

    def __init__(self, how: Hpa, app: Application) -> None:
        self.how, self.quotas, self.desired = how, app.quotas, app.replicas.copy()
        self._seen: deque[np.ndarray] = deque(maxlen=SYNC_S)
        self._asked: deque[np.ndarray] = deque(maxlen=STABLE_S // SYNC_S)
        self._second = 0

    def decide(self, window: Window) -> Decision:
        """Replicas, decided every 15 s."""
        self._seen.append(window.used / window.cores)
        self._second += 1
        if self._second % SYNC_S == 0:
            self.desired = self._synced(window)
        return Decision(self.quotas, self.desired)

    def _synced(self, window: Window) -> np.ndarray:
        use = np.mean(self._seen, 0)
        how = self.how
        ready = np.minimum(window.replicas, self.desired)
        asked = np.array([
            desired_replicas(int(self.desired[s]), float(use[s]), how.target, int(ready[s])) for s in range(len(use))
        ])  # fmt: skip
        self._asked.append(asked)
        stable = np.where(asked < self.desired, np.minimum(np.max(self._asked, 0), self.desired), asked)
        limit = np.maximum(2 * self.desired, self.desired + 4)
        found: np.ndarray = np.clip(np.minimum(stable, limit), how.least, max(how.least, how.most))
        return found
