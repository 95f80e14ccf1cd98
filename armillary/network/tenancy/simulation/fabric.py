"""What every technique does for jobs and pods, and what the simulations know of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import Technique

from ..device.cxi import CxiDevice, Process
from .pods import Added

if TYPE_CHECKING:
    from ..service.vni_service import VniService

#: The network namespace of the host, and the first number that the kernel gives to another one.
HOST_NETNS, FIRST_NETNS = 4026531840, 4026531841


@dataclass(frozen=True)
class Job:
    """A job of a tenant. All jobs of a tenant run as the tenant's user and group, in the tenant's Kubernetes namespace."""

    name: str
    tenant: int
    #: The claim that it joins, if any.
    claim: str = ""

    @property
    def namespace(self) -> str:
        """The tenant's namespace."""
        return f"tenant-{self.tenant}"

    @property
    def user(self) -> int:
        """The tenant's user and group."""
        return 1000 + self.tenant


class Refused(Exception):
    """No VNI is left for a job."""


@dataclass
class Fabric:
    """One technique at work: which VNIs jobs have, and what is done on a card for a pod. Its state lives for one run."""

    #: Whether a VNI that one job gave back goes to another one.
    recycles: ClassVar[bool] = False
    #: VNIs of each job that has some, until its pods are gone.
    held: dict[str, tuple[int, ...]] = field(default_factory=dict)
    #: Calls of hooks that ended in an error.
    errors: int = 0

    def card(self) -> CxiDevice:
        """A card as it is after a start of the node."""
        return CxiDevice()

    def admit(self, job: Job) -> None:
        """Gives a new job its VNIs; Refused if there is none."""
        self.held[job.name] = ()

    def release(self, job: Job) -> None:
        """The job was deleted; its pods may still run for a while."""

    def gone(self, job: Job) -> None:
        """No pod of the job runs any more."""
        self.held.pop(job.name, None)

    def start(self, card: CxiDevice, job: Job, netns: int) -> Process:
        """Does what is done for a pod before it starts, and returns its process."""
        return Process(job.user, job.user, netns, job=job.name)

    def stop(self, card: CxiDevice, process: Process) -> None:
        """Undoes it after the pod has ended."""

    def close(self) -> None:
        """Ends the run."""


class Isolation(Technique):
    """A way to let containers use the fabric. `rdma` is false where they go without it."""

    rdma: ClassVar[bool] = True

    def fabric(self, clock: Callable[[], float], *, low: int, high: int) -> Fabric:
        """A new run of the technique with VNIs from low to high."""
        raise NotImplementedError

    def added(self) -> Added:
        """What it adds to the start of a pod."""
        return Added()

    def service(self, path: str, clock: Callable[[], float] | None, low: int, high: int) -> VniService | None:
        """The technique's VNI service, if it has one."""
        return None
