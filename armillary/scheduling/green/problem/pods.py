"""Pods as arrays: what they ask for, what they use, how long they run and until when."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_PODS, MOST_SAMPLES, MOST_APPS = 2_000_000, 200_000_000, 100_000
#: The four tiers. Pods of the last two are batch work: they may be deferred and restarted, and finish later where they are throttled.
TIERS = ("production", "mid", "batch", "best-effort")
BATCH = 2
#: Seconds within which a pod must have started that may not be deferred (chosen).
GRACE_S = 600.0


def room_s(duration_s: npt.ArrayLike) -> Floats:
    """Seconds between a pod's latest start and its deadline: 1.1 times its duration, and at least ten minutes more than the duration."""
    duration = np.asarray(duration_s, np.float64)
    found: Floats = np.maximum(1.1 * duration, duration + GRACE_S)
    return found


@dataclass(frozen=True)
class Pods:
    """One value per pod, in the order of submission; `usage` has all pods' cores in use, one value per `step_s` of their run.

    `duration_s` is what a run takes unthrottled; `declared_s` is what planners are told.
    """

    submit_s: Floats
    duration_s: Floats
    declared_s: Floats
    cpu: Floats
    memory_gb: Floats
    tier: Ints
    app: Ints
    deadline_s: Floats
    usage: Floats
    #: Where each pod's usage begins in `usage`, one more than there are pods.
    offsets: Ints
    step_s: float = 900.0
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.submit_s)

    def name(self, p: int) -> str:
        """The name of a pod, or its number."""
        return self.names[p] if self.names else f"pod-{p}"

    def check(self) -> Pods:
        """The pods in order of submission, or InputError; compiled loops follow `offsets`, `tier` and `app` without looking again."""
        n = len(self)
        if not 1 <= n <= MOST_PODS:
            raise InputError(f"found {n:,} pods; expected 1 to {MOST_PODS:,}")
        per_pod = (self.submit_s, self.duration_s, self.declared_s, self.cpu, self.memory_gb, self.deadline_s)
        if any(len(a) != n for a in (*per_pod, self.tier, self.app)) or len(self.offsets) != n + 1:
            raise InputError("found columns of different lengths; expected one value per pod")
        for name, values, low, high in (
            ("submit_s", self.submit_s, 0.0, 1e9), ("duration_s", self.duration_s, 0.0, 1e8), ("declared_s", self.declared_s, 0.0, 1e8),
            ("cpu", self.cpu, 0.0, 1e6), ("memory_gb", self.memory_gb, 0.0, 1e6), ("deadline_s", self.deadline_s, 0.0, 2e9),
        ):  # fmt: skip
            if not np.isfinite(values).all() or values.min() < low or values.max() > high:
                raise InputError(f"found a {name} that is none or beyond {low:g} to {high:g}")
        if self.duration_s.min() <= 0 or self.declared_s.min() <= 0:
            raise InputError("found a pod that runs for 0 s; expected a duration above 0")
        if self.tier.min() < 0 or self.tier.max() >= len(TIERS) or self.app.min() < 0 or self.app.max() >= MOST_APPS:
            raise InputError("found a tier or an application that there is not")
        sizes = np.diff(self.offsets)
        if self.offsets[0] != 0 or sizes.min() < 1 or self.offsets[-1] != len(self.usage) or len(self.usage) > MOST_SAMPLES:
            raise InputError(f"found usage of {len(self.usage):,} values that does not belong to the pods; expected at least one each")
        if not np.isfinite(self.usage).all() or self.usage.min() < 0 or self.usage.max() > 1e6 or not 1 <= self.step_s <= 86400:
            raise InputError("found usage below 0 or none; expected cores")
        if np.any(np.diff(self.submit_s) < 0):
            return self.take(np.argsort(self.submit_s, kind="stable"))
        return self

    def take(self, order: Ints) -> Pods:
        """These pods, in this order."""
        sizes = np.diff(self.offsets)[order]
        ends = np.cumsum(sizes)
        at = np.repeat(self.offsets[:-1][order] - (ends - sizes), sizes) + np.arange(int(ends[-1]) if len(ends) else 0)
        return replace(
            self, submit_s=self.submit_s[order], duration_s=self.duration_s[order], declared_s=self.declared_s[order],
            cpu=self.cpu[order], memory_gb=self.memory_gb[order], tier=self.tier[order], app=self.app[order],
            deadline_s=self.deadline_s[order], usage=self.usage[at], offsets=np.concatenate(([0], ends)).astype(np.int64),
            names=tuple(self.names[p] for p in order.tolist()) if self.names else (),
        )  # fmt: skip

    @property
    def latest_s(self) -> Floats:
        """The latest start that a planner may choose: deadline − 1.1·declared, never before the submission."""
        found: Floats = np.maximum(self.submit_s, self.deadline_s - 1.1 * self.declared_s)
        return found
