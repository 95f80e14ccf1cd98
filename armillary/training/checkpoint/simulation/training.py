"""Simulated training with checkpoints: seconds of every iteration, what stalls it, and how old the newest checkpoint is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from armillary.training.checkpoint.planning.chunks import sending_s
from armillary.training.checkpoint.planning.policy import Policy, Seen, Setting
from armillary.training.checkpoint.workload import WARM_UP, FloatArray

from .sending import send

if TYPE_CHECKING:
    from armillary.training.checkpoint.workload import CheckpointWork


@dataclass(frozen=True)
class Trained:
    """A simulated run. Arrays have one entry per iteration, the warm-up included, which no mean counts.

    `seconds` of each iteration, of which `stall_s` are due to checkpoints and profiles; `profiled` says where spans were timed.
    `interval`: iterations per checkpoint. `latency`: iterations from a state until its checkpoint is complete. `load_s`: seconds to load
    it after a failure. `replayed`: iterations that turn it into a whole state, of which each costs `replay_share` of an iteration.
    `memory`: whether it lies in the hosts' memory, on `replicas` nodes, rather than on storage.
    """

    seconds: FloatArray
    stall_s: FloatArray
    promise_s: float
    partition_error: float
    interval: float = 1.0
    latency: int = 1
    load_s: float = 0.0
    profiled: FloatArray = field(default_factory=lambda: np.zeros(0))
    memory: bool = False
    replicas: int = 1
    replayed: int = 0
    replay_share: float = 0.0
    #: Bytes that a checkpoint holds; 0 if there is none.
    saved: float = 0.0
    #: (lane, name, start, seconds) of the last iteration.
    events: tuple[tuple[str, str, float, float], ...] = ()

    @property
    def iteration_s(self) -> float:
        """Mean seconds per iteration after the warm-up."""
        return float(self.seconds[WARM_UP:].mean())

    @property
    def mean_stall_s(self) -> float:
        """Mean seconds per iteration that checkpoints cost."""
        return float(self.stall_s[WARM_UP:].mean())

    @property
    def activations(self) -> float:
        """The number of iterations after the first that were profiled, and the first one."""
        return float(self.profiled.sum())


def setting_of(work: CheckpointWork, replicas: int) -> Setting:
    """What a policy may know about the work from the beginning."""
    return Setting(work.state, work.machine.alpha_s, work.machine.rate(replicas), work.expert, work.backward, work.every, WARM_UP)


def in_memory(
    work: CheckpointWork, make: Callable[[Setting], Policy], *, replicas: int = 2, kappa: float = 0.0, committed: bool = False
) -> Trained:
    """Trains with checkpoints in the memory of `replicas` nodes; a profile costs `kappa` of an iteration.

    The checkpoint of the state before an iteration travels during the iteration; what is left after the backward pass holds up the update.
    `committed` chunks cannot be held back once their span has begun.
    """
    setting = setting_of(work, replicas)
    policy = make(setting)
    count = work.iterations
    seconds, stalls, profiled = work.plain_s.copy(), np.zeros(count), np.zeros(count)
    errors, promises, intervals = [], [], []
    events: list[tuple[str, str, float, float]] = []
    latency = 1
    for t in range(count):
        plan = policy.plan()
        sent, over, left = send(work.spans[t], plan.room, plan.size, plan.chunk, setting.alpha, setting.beta, committed=committed)
        late = sending_s(left, setting.alpha, setting.beta, plan.chunk)
        cost = kappa * work.plain_s[t] if plan.profile else 0.0
        stalls[t] = over.sum() + late + cost
        seconds[t] += stalls[t]
        profiled[t] = plan.profile
        policy.observe(Seen(
            work.spans[t] if plan.profile else None, float(work.plain_s[t]), float(stalls[t] - cost), work.shares[t], work.load[t]
        ))  # fmt: skip
        if t >= WARM_UP:
            if plan.spans is not None:
                errors.append(float(np.mean(np.abs(plan.spans - work.spans[t]) / np.maximum(work.spans[t], 1e-12))))
                promises.append(float(plan.spans.sum()) + plan.exposed_s)
            if plan.size > 0:
                intervals.append(plan.interval)
        latency = max(latency, plan.latency) if t >= WARM_UP else latency
        if t == count - 1:
            events = timeline(work, t, sent, over, late, setting.alpha, setting.beta, plan.chunk)
    others = float(work.busy[:WARM_UP].sum(axis=1).mean()) + work.update_s
    first = work.spans[:WARM_UP].mean(axis=0)
    return Trained(
        seconds, stalls, others + (float(np.mean(promises)) if promises else float(first.sum())),
        float(np.mean(errors)) if errors else unplanned_error(work), float(np.mean(intervals)) if intervals else float(count), latency,
        # A new node gets its state from a neighbour and puts it onto the GPU; the others have theirs in their own host.
        work.state / work.machine.nic + work.state / work.machine.pcie, profiled, True, replicas, saved=work.state, events=tuple(events),
    )  # fmt: skip


def unplanned_error(work: CheckpointWork) -> float:
    """How far the first iteration's spans are from later ones, on average, as a share: the error of a plan made once."""
    later = work.spans[WARM_UP:]
    return float(np.mean(np.abs(work.spans[0] - later) / np.maximum(later, 1e-12)))


def timeline(
    work: CheckpointWork, t: int, sent: FloatArray, over: FloatArray, late: float, alpha: float, beta: float, chunk: float
) -> list[tuple[str, str, float, float]]:
    """Lanes of one iteration: computation, collectives and checkpoint traffic."""
    found, now = [], 0.0
    for j in range(work.spans.shape[1]):
        m = int(work.expert[j])
        what = f"{'backward' if work.backward[j] else 'forward'} {f'experts {m}' if m >= 0 else 'attention'}"
        found.append(("compute", what, now, float(work.spans[t, j])))
        if sent[j] > 0:
            takes = sending_s(float(sent[j]), alpha, beta, chunk)
            found.append(("checkpoint", f"{sent[j] / 2**20:.1f} MiB", now, takes))
        now += float(work.spans[t, j] + over[j])
        last = j == work.spans.shape[1] - 1
        found.append(("collective", "gradients" if last else "all-to-all", now, float(work.busy[t, j])))
        now += float(work.busy[t, j])
    if late > 0:
        found.append(("checkpoint", "exposed", now, late))
    found.append(("compute", "update", now + late, work.update_s))
    return found
