"""How long pods take to start on Kubernetes, in five stages, with or without what a technique adds to them.

created: the client, the API server and the job controller are one queue, which makes a pod for each new job and does some work for each
that ends. scheduled: in the order of creation, on the node with the fewest pods, at most 110 each. pull begun: the main CNI plugin, and
after it the technique's own, one pod at a time on each node; a plugin that answers "try again later" is called again after the kubelet's
back-off. pulled: 5 pulls per second with a burst of 10, and a pull beyond that is tried again after the back-off of images. started.

Only the native stages were calibrated, on the means that the artifact of the paper gives for `ramp` and `spike`. What a technique adds
follows from the seconds that its parts took when they were measured.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from armillary.engine import Agenda

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
STAGES = ("created", "scheduled", "pull begun", "pulled", "started")


@dataclass(frozen=True)
class Kubernetes:
    """The native cluster. Seconds, unless the name says otherwise."""

    nodes: int = 1
    #: The queue of client, API server and controller: per new job, per job that ended, and what passes before a pod is there.
    create_s: float = 0.132
    finish_s: float = 0.150
    settle_s: float = 0.1
    #: The scheduler's own delay, and pods of one node.
    schedule_s: float = 0.48
    pods_per_node: int = 110
    #: The main CNI plugin, how many pods of a node it serves at once, the sandbox around it, a pull of an image that is there, a start.
    cni_s: float = 0.136
    cni_at_once: int = 1
    sandbox_s: float = 0.066
    pull_s: float = 0.1
    start_s: float = 0.1
    #: From the end of the program until the node has room again.
    gone_s: float = 4.2
    #: The kubelet's pulls per second and burst, and its back-off of images.
    pulls_per_s: float = 5.0
    burst: int = 10
    pull_back_off_s: float = 10.0
    most_back_off_s: float = 300.0
    #: The kubelet's back-off after a failed sandbox, and its jitter.
    sandbox_back_off_s: float = 10.0
    jitter: float = 0.5
    #: Relative spread of every service time.
    spread: float = 0.2
    #: One request to the API server, and workers of the controller that calls the hooks.
    api_s: float = 0.010
    workers: int = 25


@dataclass(frozen=True)
class Added:
    """What a technique adds: seconds of a worker before a Vni object is there, and of its plugin on the node.

    api_calls are requests to the API server within the one and the other. attach=False: there is no object to wait for.
    """

    hook_s: float = 0.0
    hook_api_calls: int = 0
    cni_s: float = 0.0
    cni_api_calls: int = 0
    attach: bool = False


@dataclass(frozen=True)
class Started:
    """When each pod passed its stages, and when its job was gone."""

    submit_s: Floats
    #: [pod, stage]
    stage_s: Floats
    end_s: Floats
    #: Calls of the plugin that were too early.
    retries: int

    @property
    def delay_s(self) -> Floats:
        """Seconds from submission to start."""
        return self.stage_s[:, -1] - self.submit_s

    def stage_means(self) -> list[float]:
        """Mean seconds of each stage."""
        before = np.concatenate([self.submit_s[:, None], self.stage_s[:, :-1]], axis=1)
        return [float(x) for x in (self.stage_s - before).mean(axis=0)]


@dataclass
class _Node:
    pods: int = 0
    #: Pods whose network waits to be made, and how many are being made.
    networks: deque[int] = field(default_factory=deque)
    busy: int = 0
    tokens: float = 0.0
    counted_s: float = 0.0


class Cluster:
    """Plays jobs of one pod or more; everything drawn comes from `noise`, which is the same for every technique."""

    def __init__(
        self, submit_s: Floats, pods: Ints, run_s: Floats, noise: Floats, kubernetes: Kubernetes, added: Added,
        acquired: Callable[[int, float], bool] | None = None, released: Callable[[int, float], None] | None = None,
        deleted_s: Floats | None = None, ask_again_s: float = 5.0, most_asks: int = 1,
    ) -> None:  # fmt: skip
        self.k, self.added = kubernetes, added
        self.submit_s, self.run_s = submit_s, run_s
        self.first = np.concatenate([[0], np.cumsum(pods)]).astype(np.int64)
        self.job_of = np.repeat(np.arange(len(pods)), pods)
        self.noise = noise
        self.stage_s = np.full((len(self.job_of), len(STAGES)), np.nan)
        self.end_s = np.full(len(pods), np.nan)
        self.left = pods.copy()
        self.agenda = Agenda()
        self.retries = 0
        self._acquired, self._released = acquired, released
        self._deleted_s, self._ask_again_s, self._most_asks = deleted_s, ask_again_s, most_asks
        self._asks = np.zeros(len(pods), np.int64)
        self._running_pods = np.zeros(len(pods), np.int64)
        self._control: deque[tuple[bool, int]] = deque()
        self._control_busy = False
        self._pending: deque[int] = deque()
        self._nodes = [_Node(tokens=kubernetes.burst) for _ in range(kubernetes.nodes)]
        self._node_of = np.full(len(self.job_of), -1)
        self._hooks: deque[int] = deque()
        self._workers = kubernetes.workers
        self._attached_s = np.full(len(pods), np.inf if added.attach else -np.inf)
        self._tries = np.zeros(len(self.job_of), np.int64)

    def play(self) -> Started:
        """Runs until every job that could start has ended."""
        for job in range(len(self.submit_s)):
            self.agenda.at(float(self.submit_s[job]), self._submitted, job)
        self.agenda.run()
        return Started(self.submit_s[self.job_of], self.stage_s, self.end_s, self.retries)

    # The controller

    def _submitted(self, job: int) -> None:
        self._control.append((True, job))
        self._work()

    def _work(self) -> None:
        if self._control_busy or not self._control:
            return
        self._control_busy = True
        new, job = self._control.popleft()
        if new:
            # A technique without hooks has its VNIs at once, or never.
            if self.added.attach:
                self._hooks.append(job)
                self._hook()
            elif self._acquired is not None and not self._acquired(job, self.agenda.now):
                self._attached_s[job] = math.inf
        base = self.k.create_s if new else self.k.finish_s
        self.agenda.after(base * self._factor(self.first[job], 0 if new else 1), self._worked, new, job)

    def _worked(self, new: bool, job: int) -> None:
        self._control_busy = False
        if new:
            self.agenda.after(self.k.settle_s, self._created, job)
        self._work()

    def _created(self, job: int) -> None:
        for pod in range(self.first[job], self.first[job + 1]):
            self.stage_s[pod, 0] = self.agenda.now
            self._pending.append(pod)
        self._schedule()

    # The hook

    def _hook(self) -> None:
        while self._workers and self._hooks:
            self._workers -= 1
            job = self._hooks.popleft()
            taken = (self.added.hook_s + self.added.hook_api_calls * self.k.api_s) * self._factor(self.first[job], 2)
            self.agenda.after(taken, self._hooked, job)

    def _hooked(self, job: int) -> None:
        self._workers += 1
        self._asks[job] += 1
        if self._acquired is None or self._acquired(job, self.agenda.now):
            self._attached_s[job] = self.agenda.now
        elif self._asks[job] < self._most_asks:
            self.agenda.after(self._ask_again_s, self._ask_again, job)
        self._hook()

    def _ask_again(self, job: int) -> None:
        self._hooks.append(job)
        self._hook()

    # Nodes

    def _schedule(self) -> None:
        while self._pending:
            node = min(range(len(self._nodes)), key=lambda n: self._nodes[n].pods)
            if self._nodes[node].pods >= self.k.pods_per_node:
                return
            pod = self._pending.popleft()
            self._nodes[node].pods += 1
            self._node_of[pod] = node
            self.agenda.after(self.k.schedule_s * self._factor(pod, 3), self._scheduled, pod)

    def _scheduled(self, pod: int) -> None:
        if np.isnan(self.stage_s[pod, 1]):
            self.stage_s[pod, 1] = self.agenda.now
        self.agenda.after(self.k.sandbox_s * self._factor(pod, 4), self._network, pod)

    def _network(self, pod: int) -> None:
        node = self._nodes[self._node_of[pod]]
        node.networks.append(pod)
        self._next_network(node)

    def _next_network(self, node: _Node) -> None:
        if node.busy >= self.k.cni_at_once or not node.networks:
            return
        node.busy += 1
        pod = node.networks.popleft()
        own = self.added.cni_s + self.added.cni_api_calls * self.k.api_s
        # The last request of the plugin sees whether the object is there.
        self.agenda.after(self.k.cni_s * self._factor(pod, 5) + own * self._factor(pod, 6), self._networked, node, pod)

    def _networked(self, node: _Node, pod: int) -> None:
        node.busy -= 1
        if self._attached_s[self.job_of[pod]] > self.agenda.now:
            self.retries += 1
            if self._asks[self.job_of[pod]] >= self._most_asks or not self.added.attach:
                self._never(pod)
                self._next_network(node)
                return
            wait = self.k.sandbox_back_off_s * (1 + self.k.jitter * self._share(pod, self._tries[pod]))
            self._tries[pod] += 1
            self.agenda.after(wait, self._network, pod)
        else:
            self.stage_s[pod, 2] = self.agenda.now
            self._tries[pod] = 0
            self._pull(pod)
        self._next_network(node)

    def _never(self, pod: int) -> None:
        """A pod whose job gets no VNI is given up, and its place is free."""
        self._nodes[self._node_of[pod]].pods -= 1
        self._schedule()

    def _pull(self, pod: int) -> None:
        node, now = self._nodes[self._node_of[pod]], self.agenda.now
        node.tokens = min(float(self.k.burst), node.tokens + (now - node.counted_s) * self.k.pulls_per_s)
        node.counted_s = now
        if node.tokens >= 1:
            node.tokens -= 1
            self.agenda.after(self.k.pull_s * self._factor(pod, 7), self._pulled, pod)
            return
        wait = min(self.k.most_back_off_s, self.k.pull_back_off_s * 2.0 ** min(self._tries[pod], 10))
        self._tries[pod] += 1
        self.agenda.after(wait * self._factor(pod, 8 + int(self._tries[pod]) % 3), self._pull, pod)

    def _pulled(self, pod: int) -> None:
        self.stage_s[pod, 3] = self.agenda.now
        self.agenda.after(self.k.start_s * self._factor(pod, 11), self._running, pod)

    def _running(self, pod: int) -> None:
        self.stage_s[pod, 4] = self.agenda.now
        job = self.job_of[pod]
        self.agenda.after(float(self.run_s[job]), self._ended, pod)
        self._running_pods[job] += 1
        whole = self._running_pods[job] == self.first[job + 1] - self.first[job]
        if whole and self._deleted_s is not None and self._deleted_s[job] < self.run_s[job] and self._released is not None:
            self.agenda.after(float(self._deleted_s[job]), self._delete, int(job))

    def _delete(self, job: int) -> None:
        assert self._released is not None
        self._released(job, self.agenda.now)

    def _ended(self, pod: int) -> None:
        self.agenda.after(self.k.gone_s, self._gone, pod)

    def _gone(self, pod: int) -> None:
        self._nodes[self._node_of[pod]].pods -= 1
        job = self.job_of[pod]
        self.left[job] -= 1
        if not self.left[job]:
            self.end_s[job] = self.agenda.now
            self._control.append((False, int(job)))
            self._work()
            if self._released is not None:
                self._released(int(job), self.agenda.now)
        self._schedule()

    def _factor(self, pod: int, part: int) -> float:
        return 1.0 + self.k.spread * (2.0 * self._share(pod, part) - 1.0)

    def _share(self, pod: int, part: int) -> float:
        return float(self.noise[pod, int(part) % self.noise.shape[1]])


#: Columns of `noise` that a pod needs.
NOISES = 12


def ramp_times(most: int, sustain: int, apart_s: float) -> Floats:
    """Submission times of a ramp: batches of 1, 2, …, most, then `sustain` more of most, then most − 1, …, 1."""
    batches = [*range(1, most + 1), *[most] * sustain, *range(most - 1, 0, -1)]
    return np.repeat(np.arange(len(batches)) * apart_s, batches).astype(np.float64)
