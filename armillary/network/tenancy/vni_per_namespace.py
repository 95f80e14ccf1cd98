"""One VNI per Kubernetes namespace, given once by the administrator, bound to the network namespaces of its pods.

It separates tenants, needs no service at run time and as many VNIs as there are tenants. It does not separate two jobs of one tenant.

A baseline of ours, after the static partitions (P_Keys) of the InfiniBand Architecture Specification, 2000.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .cni.plugin import grant
from .device.cxi import CxiDevice, Process
from .simulation.fabric import Fabric, Isolation, Job, Refused
from .simulation.pods import Added
from .vni_netns import CNI_S


class NamespaceFabric(Fabric):
    """VNIs per tenant, in the order in which tenants come, for good."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__()
        self.low, self.high = low, high
        self.of: dict[str, int] = {}

    def admit(self, job: Job) -> None:
        """The tenant's VNI, which is given now if it is the tenant's first job."""
        if job.namespace not in self.of:
            if self.low + len(self.of) > self.high:
                raise Refused("every VNI belongs to a tenant")
            self.of[job.namespace] = self.low + len(self.of)
        self.held[job.name] = (self.of[job.namespace],)

    def start(self, card: CxiDevice, job: Job, netns: int) -> Process:
        """Makes the service of the namespace."""
        grant(card, netns, self.held[job.name][0])
        return super().start(card, job, netns)

    def stop(self, card: CxiDevice, process: Process) -> None:
        """Removes what the namespace has."""
        grant(card, process.netns, None)


@dataclass(frozen=True)
class VniPerNamespace(Isolation):
    """A static VNI per tenant."""

    def fabric(self, clock: Callable[[], float], *, low: int, high: int) -> Fabric:
        """A new run."""
        return NamespaceFabric(low, high)

    def added(self) -> Added:
        """The same plugin, which reads the pod and the VNI of its namespace."""
        return Added(cni_s=CNI_S, cni_api_calls=2)
