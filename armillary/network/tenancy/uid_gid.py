"""One VNI per job, and a service per job whose members are the job's user and group, as batch launchers do it.

It separates users where the launcher decides who a process is. A container decides that itself: it runs as whatever user it was told to
run as, or as root. VNIs come from the same database as those of `vni-netns`, with the same rest.

Slurm 22.05, plugin switch/hpe_slingshot, 2022.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import parameter

from .cni.plugin import DRIVER
from .device.cxi import CxiDevice, Member, Process, ServiceDescription
from .service.database import NoFreeVni, VniDatabase
from .simulation.fabric import Fabric, Isolation, Job, Refused
from .simulation.pods import Added

#: Seconds in which a launcher makes a service: one call of the driver's tool (ours).
LAUNCHER_S = 0.005


class UserFabric(Fabric):
    """VNIs per job or claim from a database; services with the user and the group of the tenant."""

    recycles: ClassVar[bool] = True

    def __init__(self, database: VniDatabase) -> None:
        super().__init__()
        self.database = database
        self._services: dict[Process, int] = {}

    def admit(self, job: Job) -> None:
        """Takes a VNI, or the claim's."""
        try:
            if job.claim:
                self.database.acquire(job.claim, job.namespace, kind="claim")
                self.held[job.name] = (self.database.join(job.claim, job.namespace, job.name),)
            else:
                self.held[job.name] = (self.database.acquire(job.name, job.namespace, uid=job.name),)
        except NoFreeVni as problem:
            raise Refused(str(problem)) from None

    def release(self, job: Job) -> None:
        """Gives the VNI back."""
        self.database.end(job.namespace, job.name)

    def start(self, card: CxiDevice, job: Job, netns: int) -> Process:
        """Makes a service with the job's user and group."""
        process = super().start(card, job, netns)
        members = (Member("uid", job.user), Member("gid", job.user))
        self._services[process] = card.alloc_service(ServiceDescription(members, self.held[job.name]), DRIVER)
        return process

    def stop(self, card: CxiDevice, process: Process) -> None:
        """Removes the service."""
        card.destroy_service(self._services.pop(process), DRIVER)

    def close(self) -> None:
        """Closes the database."""
        self.database.close()


@dataclass(frozen=True)
class UidGid(Isolation):
    """Services by user and group."""

    quarantine_s: float = parameter(60.0, "seconds for which a released VNI rests", range=(0.0, 86_400.0))

    def fabric(self, clock: Callable[[], float], *, low: int, high: int) -> Fabric:
        """A new run, with a database in memory."""
        return UserFabric(VniDatabase(":memory:", low=low, high=high, quarantine_s=self.quarantine_s, clock=clock))

    def added(self) -> Added:
        """The launcher takes a VNI before the job starts, and calls the driver on the node."""
        return Added(hook_s=LAUNCHER_S, cni_s=LAUNCHER_S, attach=True)
