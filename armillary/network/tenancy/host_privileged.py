"""The card is mounted into privileged pods on the host's network, as many clusters do to get RDMA working at all.

Such a pod may make services itself, so it can use every VNI there is.

The profile "privileged" of the Pod Security Standards, Kubernetes 1.22, 2021.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .device.cxi import DEFAULT_VNIS, CxiDevice, Process
from .simulation.fabric import HOST_NETNS, Fabric, Isolation, Job


class HostFabric(Fabric):
    """Processes are the host's, and the default service is enabled."""

    def card(self) -> CxiDevice:
        """The default service is enabled."""
        return CxiDevice(default_enabled=True)

    def admit(self, job: Job) -> None:
        """Nothing is handed out."""
        self.held[job.name] = DEFAULT_VNIS

    def start(self, card: CxiDevice, job: Job, netns: int) -> Process:
        """A privileged process in the host's network namespace."""
        return Process(0, 0, HOST_NETNS, admin=True, job=job.name)


@dataclass(frozen=True)
class HostPrivileged(Isolation):
    """Privileged pods with the device on the host's network."""

    def fabric(self, clock: Callable[[], float], *, low: int, high: int) -> Fabric:
        """A new run."""
        return HostFabric()
