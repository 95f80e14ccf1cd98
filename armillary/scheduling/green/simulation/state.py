"""The arrays that the loop works on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from armillary.scheduling.green.problem.nodes import Nodes
from armillary.scheduling.green.problem.pods import Pods
from armillary.scheduling.green.problem.sunshine import AHEAD, CELL, SLOT_S

#: What a node does, and what has become of a pod.
OFF, BOOTING, ON = range(3)
FUTURE, WAITING, BOUND, RUNNING, DONE, TOO_LARGE = range(6)
#: Slots over which a node's heat and throttling are counted; slots between samples of usage; samples before a class is known.
WINDOW_SLOTS, SAMPLE_SLOTS, KNOWN = 10, 5, 10
#: Slots between checkpoints of restartable pods (chosen): a drained pod goes on from its last one.
CHECKPOINT = 15


class Given(NamedTuple):
    """The problem; nothing here changes."""

    cores: Any
    memory: Any
    idle: Any
    peak: Any
    exponent: Any
    off: Any
    boot_w: Any
    #: Slots of a boot.
    boot: Any
    #: Watts per core of the cheapest type when full, and one node of each type.
    marginal: float
    kinds: Any
    #: Pods: slots of submission, latest planned start, declared and true duration.
    submit: Any
    latest: Any
    declared: Any
    duration: Any
    cpu: Any
    mem: Any
    tier: Any
    klass: Any
    usage: Any
    offsets: Any
    #: Slots of one value of usage.
    step: float
    #: Watts of the panels per slot.
    watts: Any


class State(NamedTuple):
    """Everything that the loop writes."""

    # Nodes: sums of requests, of estimated usage and of memory, numbers of pods, and what they do.
    requested: Any
    estimated: Any
    used_memory: Any
    pods: Any
    status: Any
    ready: Any
    idle_since: Any
    heat: Any
    kappa: Any
    lost: Any
    demanded: Any
    quiet: Any
    demand: Any
    #: The slot at which all pods of a node are expected to have ended.
    busy_until: Any
    # Pods.
    phase: Any
    node: Any
    start: Any
    end: Any
    progress: Any
    plan: Any
    #: Watts by which a waiting pod counts in the plan.
    plan_w: Any
    promised: Any
    guess: Any
    restarts: Any
    #: Pods that run or are bound, and pods that wait, by tier and submission; `counts` has how many of each.
    active: Any
    waiting: Any
    counts: Any
    key: Any
    #: Classes of pods: samples, mean and sum of squared deviations of usage over request.
    seen: Any
    mean: Any
    squares: Any
    #: Watts of the cluster and cores that were wanted and not given, per slot.
    power: Any
    missing: Any
    wanted: Any
    awake: Any
    #: Planned watts per cell, counted from the beginning of the work, and the budget that is left from now on.
    planned: Any
    #: Cores of nodes that are planned to be awake, and cores in use on them, per cell.
    awake_cores: Any
    used_cores: Any
    budget: Any
    #: Prefix sums over the coming cells, of energy from the grid and from the sun.
    brown: Any
    sunny: Any
    #: Largest share of a node's memory that was ever in use.
    memory_peak: Any


def given(nodes: Nodes, pods: Pods, watts: Any, classes: int) -> Given:
    """The problem in slots."""
    return Given(
        nodes.cores, nodes.memory_gb, nodes.idle_w, nodes.peak_w, nodes.exponent, nodes.off_w, nodes.boot_w,
        np.ceil(nodes.boot_s / SLOT_S).astype(np.int64), nodes.marginal_w_per_core,
        np.sort(np.unique(np.stack(nodes.columns), axis=1, return_index=True)[1]).astype(np.int64),
        np.ceil(pods.submit_s / SLOT_S).astype(np.int64), np.floor(pods.latest_s / SLOT_S + 1e-9).astype(np.int64),
        pods.declared_s / SLOT_S, pods.duration_s / SLOT_S, pods.cpu, pods.memory_gb, pods.tier, pods.app * 4 + pods.tier, pods.usage,
        pods.offsets, pods.step_s / SLOT_S, watts,
    )  # fmt: skip


def state(nodes: int, pods: int, classes: int, slots: int, kappa: float) -> State:
    """A cluster of awake, empty nodes."""

    def zeros(n: int) -> Any:
        return np.zeros(n)

    def whole(n: int, value: int = 0) -> Any:
        return np.full(n, value, np.int64)

    cells = slots // CELL + AHEAD + 2
    return State(
        requested=zeros(nodes), estimated=zeros(nodes), used_memory=zeros(nodes), pods=whole(nodes), status=whole(nodes, ON),
        ready=whole(nodes), idle_since=whole(nodes), heat=np.zeros((nodes, WINDOW_SLOTS)), kappa=np.full(nodes, kappa), lost=zeros(nodes),
        demanded=zeros(nodes), quiet=whole(nodes), demand=zeros(nodes), busy_until=zeros(nodes), phase=whole(pods), node=whole(pods, -1),
        start=whole(pods, -1), end=whole(pods, -1), progress=zeros(pods), plan=whole(pods), plan_w=zeros(pods),
        promised=np.full(pods, -1.0), guess=zeros(pods), restarts=whole(pods), active=whole(pods), waiting=whole(pods), counts=whole(3),
        key=zeros(pods), seen=whole(classes), mean=zeros(classes), squares=zeros(classes), power=zeros(slots), missing=zeros(slots),
        wanted=zeros(slots), awake=whole(slots), planned=zeros(cells), awake_cores=zeros(cells), used_cores=zeros(cells),
        budget=zeros(AHEAD), brown=zeros(AHEAD + 1), sunny=zeros(AHEAD + 1), memory_peak=zeros(1),
    )  # fmt: skip
