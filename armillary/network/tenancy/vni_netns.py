"""One VNI per job, bound to the network namespaces of the job's containers.

The fabric keeps packets of different virtual networks (VNIs) apart, and the card's driver grants VNIs through services with members. Users
and groups mean nothing inside a container, which chooses its own, so a member is a network namespace, whose number the kernel looks up
itself. A CNI plugin makes the service together with the container's network, and a service of the cluster hands out one VNI per job, or
per claim that jobs of one namespace share. A VNI that is given back rests for a minute, in which the job's last pods end.

Closing the HPC-Cloud Convergence Gap: Multi-Tenant Slingshot RDMA for Kubernetes, IEEE CLUSTER 2025, arXiv 2508.09663. Ours: the table of
free VNIs, one transaction per transition, claims that only claims can be joined by, the plugin's care for numbers of namespaces that are
used again, CHECK, the token, and everything else that the docs list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim, Gain, Kind, Level, parameter

from .cni.plugin import grant
from .device.cxi import CxiDevice, Process
from .service.vni_service import VniService
from .simulation.fabric import Fabric, Isolation, Job, Refused
from .simulation.pods import Added

#: Seconds that one call of a hook and one run of the plugin took when they were measured (benchmarks/network_tenancy.py, CPU seconds).
HOOK_S, CNI_S = 0.002, 0.065
#: Requests to the API server: the finalizer and the Vni object; the pod, its owner and the Vni object.
HOOK_CALLS, CNI_CALLS = 2, 3
RIVALS = ("default-service", "uid-gid", "vni-per-namespace", "host-privileged")


class NetnsFabric(Fabric):
    """VNIs from the service, through its hooks; services on the card as the plugin makes them."""

    recycles: ClassVar[bool] = True

    def __init__(self, service: VniService, *, clear_stale: bool = True, default_service: bool = False) -> None:
        super().__init__()
        self.service, self.clear_stale, self.default_service = service, clear_stale, default_service

    def card(self) -> CxiDevice:
        """The default service is disabled unless the ablation wants it."""
        return CxiDevice(default_enabled=self.default_service)

    def admit(self, job: Job) -> None:
        """Syncs the claim, if it joins one, and the job."""
        if job.claim:
            self.service.sync({"object": claim_object(job.claim, job.namespace)})
        answer = self.service.sync({"object": job_object(job)})
        if answer.status != 200:
            raise Refused(answer.content["error"])
        self.held[job.name] = (int(answer.content["attachments"][0]["spec"]["vni"]),)

    def release(self, job: Job) -> None:
        """Finalizes the job, as often as the controller would."""
        attached: dict[str, object] = {"Vni.horizon-opencube.eu/v1": {f"vni-{job.name}": {}}}
        for there in (attached, {}):
            answer = self.service.finalize({"object": job_object(job), "attachments": there, "finalizing": True})
            self.errors += answer.status != 200

    def start(self, card: CxiDevice, job: Job, netns: int) -> Process:
        """Makes the service of the namespace."""
        grant(card, netns, self.held[job.name][0], clear_stale=self.clear_stale)
        return super().start(card, job, netns)

    def stop(self, card: CxiDevice, process: Process) -> None:
        """Removes what the namespace has."""
        grant(card, process.netns, None)

    def close(self) -> None:
        """Closes the database."""
        self.service.database.close()


def job_object(job: Job) -> dict[str, object]:
    """The job as the controller posts it."""
    meta = {"name": job.name, "namespace": job.namespace, "uid": job.name, "annotations": {"vni": job.claim or "true"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta}


def claim_object(name: str, namespace: str) -> dict[str, object]:
    """The claim as the controller posts it."""
    meta = {"name": f"claim-{name}", "namespace": namespace, "uid": f"claim-{name}.{namespace}"}
    return {"apiVersion": "horizon-opencube.eu/v1", "kind": "VniClaim", "metadata": meta, "spec": {"name": name}}


@dataclass(frozen=True)
class VniNetns(Isolation):
    """Services bound to network namespaces, VNIs from a service of the cluster."""

    quarantine_s: float = parameter(60.0, "seconds for which a released VNI rests", range=(0.0, 86_400.0))
    free_table: bool = parameter(True, "whether free VNIs stand in a table; otherwise they are searched for at each request, as published")
    published_finalize: bool = parameter(False, "whether a second finalization is answered with an error, as published")
    clear_stale: bool = parameter(True, "whether the plugin removes services that stand for a namespace's number already")
    default_service: bool = parameter(False, "whether the card's default service stays enabled")
    cni_ms: float = parameter(1e3 * CNI_S, "milliseconds of one run of the plugin, without its requests", range=(0.0, 60_000.0))

    claims = (
        Claim(
            "alone_secure", by=Level(at_least=1), on=Kind("attack"), source="abstract, section on security",
            says="secure and container-granular: no attack succeeds, and some do with each of the four other ways to use RDMA",
        ),
        Claim(
            "violations", over=RIVALS, by=Gain(difference=(1, None)), on=Kind("attack"), source="ours",
            says="fewer violations than the best other way to use RDMA",
        ),
        Claim(
            "violations", over=RIVALS, by=Gain(difference=(0, None)), on=Kind("outside"), source="ours",
            says="no more violations than these where its assumptions break: a node that is cut off, a namespace that a tenant makes, a "
            "pod that names another job as its owner",
        ),
        Claim(
            "bandwidth_share", by=Level(at_least=0.99), on=Kind("ramp"), needs="a Slingshot fabric", source="abstract",
            says="minimal overhead on communication",
        ),
        Claim(
            "start_kept", by=Level(at_least=1), on=(Kind("ramp"), Kind("spike")), part=0.5, source="abstract",
            why="1 if pods start at most 5 % (ramp) or 2 % (spike) later than natively on average, 0.5 up to 15 %",
            says="minimal overhead on the start of jobs",
        ),
    )  # fmt: skip

    def service(self, path: str, clock: Callable[[], float] | None, low: int, high: int) -> VniService:
        """The VNI service with this technique's settings."""
        return VniService(
            path, low=low, high=high, quarantine_s=self.quarantine_s, clock=clock, free_table=self.free_table,
            published_finalize=self.published_finalize,
        )  # fmt: skip

    def fabric(self, clock: Callable[[], float], *, low: int, high: int) -> Fabric:
        """A new run, with a database in memory."""
        service = self.service(":memory:", clock, low, high)
        return NetnsFabric(service, clear_stale=self.clear_stale, default_service=self.default_service)

    def added(self) -> Added:
        """The hook before a Vni object is there, and the plugin on the node."""
        return Added(HOOK_S, HOOK_CALLS, self.cni_ms / 1e3, CNI_CALLS, attach=True)
