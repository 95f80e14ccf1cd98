"""Tenants who try every VNI through every service as everybody: which of these attempts the card lets through.

A scene goes through four moments on one node: all jobs run; one job was deleted, its last pod still runs, and a new job has come; that pod
has ended, and a new pod has got the number of its network namespace although a service may still stand for it; and the rest of the VNI is
over, and another job has taken what was free. At each moment every process tries every service with every VNI of interest, as itself, as
root, as every other user and group, saying that it is in every other network namespace, and once on the host's network.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..device.cxi import DEFAULT_SERVICE, DEFAULT_VNIS, CxiDevice, CxiError, Process, ServiceDescription
from .fabric import FIRST_NETNS, HOST_NETNS, Fabric, Isolation, Job, Refused

#: VNIs of the range from which the fabrics of a scene take theirs.
LOW, HIGH = 100, 159
#: The last second at which a pod of a deleted job runs, by Kubernetes' default, and one after the rest of its VNI.
GRACE_S, AFTER_S = 29.0, 75.0
#: The beginning of simulated time, since databases count from 1970.
EPOCH_S = 1e9


@dataclass(frozen=True)
class Scene:
    """Who is there: jobs that run from the start, the one that is deleted, those that come later, and VNIs that are guessed."""

    jobs: tuple[Job, ...]
    deleted: int
    later: tuple[Job, ...]
    guesses: tuple[int, ...]
    #: Whether the assumptions break: the node is cut off, a tenant makes namespaces, a pod names another job as its owner.
    outside: bool = False


@dataclass
class Attacked:
    """Attempts, violations by the way they were made, and uses that a job was entitled to.

    A use is a pod that opened an endpoint through a service with a VNI at one of the moments, with whatever identity.
    """

    attempts: int = 0
    violations: Counter[str] = field(default_factory=Counter)
    own: int = 0

    @property
    def total(self) -> int:
        """All violations."""
        return sum(self.violations.values())


@dataclass
class _Pod:
    job: Job
    process: Process
    #: How its process came to be, where that is an attack by itself.
    way: str = ""


class Kernel:
    """Numbers of network namespaces as the kernel gives them: the lowest that is free."""

    def __init__(self) -> None:
        self.used: set[int] = set()

    def new(self) -> int:
        """A new namespace."""
        number = FIRST_NETNS
        while number in self.used:
            number += 1
        self.used.add(number)
        return number


def draw(rng: np.random.Generator, tenants: int, jobs: int, guesses: int, *, outside: bool = False) -> Scene:
    """A scene: one to `jobs` + 1 jobs of each tenant, `jobs` of the first one's and two more with a claim, one job deleted."""
    counts = [jobs, *(int(count) for count in rng.integers(1, jobs + 2, tenants - 1))]
    all_jobs = [Job(f"job-{tenant}-{number}", tenant) for tenant, count in enumerate(counts) for number in range(count)]
    shared = [replace(Job(f"shared-{number}", 0), claim="mesh") for number in range(2)]
    order = [int(place) for place in rng.permutation(len(all_jobs))]
    running = [*(all_jobs[place] for place in order), *shared]
    deleted = int(rng.integers(0, len(all_jobs)))
    others = [tenant for tenant in range(tenants) if tenant != running[deleted].tenant]
    later = tuple(Job(f"later-{number}", int(rng.choice(others))) for number in range(4))
    return Scene(tuple(running), deleted, later, tuple(int(x) for x in rng.integers(1, 65536, guesses)), outside)


def attack(technique: Isolation, scene: Scene) -> Attacked:
    """Plays a scene under a technique and counts."""
    now = [EPOCH_S]
    fabric = technique.fabric(lambda: now[0], low=LOW, high=HIGH)
    try:
        return _Play(fabric, scene, now).play()
    finally:
        fabric.close()


class _Play:
    def __init__(self, fabric: Fabric, scene: Scene, now: list[float]) -> None:
        self.fabric, self.scene, self.now = fabric, scene, now
        self.card, self.kernel, self.pods = fabric.card(), Kernel(), list[_Pod]()
        self.jobs: dict[str, Job] = {}
        self.stale: set[int] = set()
        self.found = Attacked()
        #: Uses that were counted: pod, service and VNI, or None for a service that the pod made.
        self._seen: set[tuple[int, int, int | None, int]] = set()
        self._moment = 0

    def play(self) -> Attacked:
        for job in self.scene.jobs:
            self._come(job)
        self._everybody_tries()
        victim = self.pods[self.scene.deleted]
        self.stale |= set(self.fabric.held[victim.job.name])
        self.now[0] += 100.0
        self.fabric.release(victim.job)
        self.now[0] += GRACE_S
        self._come(self.scene.later[0])
        self._admit(self.scene.later[1])
        grabbed = self._grab(self.scene.later[2])
        self._everybody_tries()
        for job in grabbed:
            self.fabric.release(job)
            self.fabric.gone(job)
        if not self.scene.outside:
            self._end(victim, missed=True)
            self._start(self.scene.later[1], "number of a namespace that is gone")
            self._everybody_tries()
        self.now[0] += AFTER_S
        if self.scene.outside:
            self._break_assumptions(victim)
        self._grab(self.scene.later[3])
        self._everybody_tries()
        return self.found

    def _come(self, job: Job) -> None:
        self._admit(job)
        self._start(job)

    def _admit(self, job: Job) -> None:
        self.fabric.admit(job)
        self.jobs[job.name] = job

    def _start(self, job: Job, way: str = "") -> None:
        self.pods.append(_Pod(job, self.fabric.start(self.card, job, self.kernel.new()), way))

    def _end(self, pod: _Pod, *, missed: bool) -> None:
        """The pod ends and its namespace is gone; `missed`: nobody told the plugin."""
        self.card.close_of(lambda process: process == pod.process)
        if not missed:
            self.fabric.stop(self.card, pod.process)
        self.kernel.used.discard(pod.process.netns)
        self.pods.remove(pod)
        self.fabric.gone(pod.job)

    def _break_assumptions(self, cut_off: _Pod) -> None:
        """The deleted job's pod runs on, cut off; another ends unnoticed and a tenant makes a namespace; a pod lies about its owner."""
        cut_off.way = "pod on a node that is cut off"
        ended = next(pod for pod in self.pods if pod is not cut_off and not pod.job.claim)
        self.stale |= set(self.fabric.held[ended.job.name])
        self._end(ended, missed=True)
        self.fabric.release(ended.job)
        self.now[0] += AFTER_S
        maker = next(pod for pod in self.pods if pod.job.tenant != ended.job.tenant)
        made = replace(maker.process, netns=self.kernel.new(), admin=maker.process.admin)
        self.pods.append(_Pod(maker.job, made, "namespace that a tenant made"))
        mates = [pod for pod in self.pods if pod.job.tenant == maker.job.tenant and pod.job != maker.job and not pod.job.claim]
        if mates:
            liar = self.fabric.start(self.card, mates[0].job, self.kernel.new())
            self.pods.append(_Pod(maker.job, replace(liar, job=maker.job.name), "pod that names another job as its owner"))

    def _grab(self, greedy: Job) -> list[Job]:
        """A tenant takes VNIs until it gets one that a deleted job had, for which it starts a pod, or until none is left.

        Returns its jobs without a pod.
        """
        without = []
        for number in range(HIGH - LOW + 2):
            job = Job(f"{greedy.name}-{number}", greedy.tenant)
            try:
                self._admit(job)
            except Refused:
                break
            if self.stale & set(self.fabric.held[job.name]):
                self._start(job)
                break
            without.append(job)
        return without

    # Attempts

    def _everybody_tries(self) -> None:
        self._moment += 1
        vnis = {vni for held in self.fabric.held.values() for vni in held if self._runs(held)} | self.stale
        wanted = sorted(vnis | set(DEFAULT_VNIS) | set(self.scene.guesses))
        users = sorted({pod.process.uid for pod in self.pods} | {0})
        places = sorted({pod.process.netns for pod in self.pods})
        for pod in self.pods:
            for process, way in _identities(pod, users, places):
                self._tries(pod, process, way, wanted)

    def _runs(self, held: Sequence[int]) -> bool:
        """Whether a process of the scene may have these; jobs that only took VNIs away need not be tried."""
        running = {vni for pod in self.pods for vni in self.fabric.held.get(pod.job.name, ())}
        return any(vni in running for vni in held)

    def _tries(self, pod: _Pod, process: Process, way: str, wanted: Sequence[int]) -> None:
        services = list(self.card.services)
        for vni in wanted:
            for service in services:
                self.found.attempts += 1
                if _opens(self.card, process, service, vni):
                    self._count(pod, vni, service, way or ("default service" if service == DEFAULT_SERVICE else ""))
            if process.admin and way == "":
                self.found.attempts += 1
                with _own_service(self.card, process, vni) as made:
                    if made is not None and _opens(self.card, process, made, vni):
                        self._count(pod, vni, None, "service that it made")

    def _count(self, pod: _Pod, vni: int, service: int | None, way: str) -> None:
        """Counts a use once, however many identities it works with; the first is the process as it is."""
        use = (self._moment, id(pod), service, vni)
        if use in self._seen:
            return
        self._seen.add(use)
        if self._entitled(pod.job, vni):
            self.found.own += 1
            return
        known = "stale number" if vni in self.stale else "guessed number"
        self.found.violations[way or pod.way or ("VNI that two jobs have" if vni in self.fabric.held.get(pod.job.name, ()) else known)] += 1

    def _entitled(self, job: Job, vni: int) -> bool:
        """Whether the VNI is the job's own, or of a claim that it joined, and of no job that it does not share a claim with."""
        if vni not in self.fabric.held.get(job.name, ()):
            return False
        for name, held in self.fabric.held.items():
            other = self.jobs[name]
            related = name == job.name or (job.claim and (job.claim, job.tenant) == (other.claim, other.tenant))
            if vni in held and not related:
                return False
        return True


def _identities(pod: _Pod, users: Sequence[int], places: Sequence[int]) -> Iterator[tuple[Process, str]]:
    """The process as it is, and as everybody that it could pretend to be."""
    me = pod.process
    yield me, ""
    yield replace(me, uid=0, gid=0), "root in the container"
    for user in users:
        if user not in (me.uid, 0):
            yield replace(me, uid=user), "forged user"
            yield replace(me, gid=user), "forged group"
    for place in places:
        if place != me.netns:
            yield replace(me, claimed_netns=place), "forged namespace"
    if me.netns != HOST_NETNS:
        yield replace(me, netns=HOST_NETNS), "host network"


def _opens(card: CxiDevice, process: Process, service: int, vni: int) -> bool:
    try:
        card.close(card.open_endpoint(process, service, vni))
    except CxiError:
        return False
    return True


@contextlib.contextmanager
def _own_service(card: CxiDevice, process: Process, vni: int) -> Iterator[int | None]:
    try:
        service = card.alloc_service(ServiceDescription(vnis=(vni,)), process)
    except CxiError:
        yield None
        return
    yield service
    card.destroy_service(service, process)
