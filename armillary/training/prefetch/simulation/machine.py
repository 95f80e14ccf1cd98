"""What a remote feature costs: the network between trainers, and the computation that hides it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.cluster import Cluster

#: Seconds of one request to another machine's feature server, besides its bytes (ours).
REQUEST_S = 1e-3
#: Bytes per second of features that reach one trainer over remote procedure calls. Ours: of the order that DistDGL's published 13 s per
#: epoch of ogbn-papers100M on 16 machines leave (most of a second for a minibatch with 150 MB of features), far below what a port carries.
FEATURE_RATE = 0.25e9
#: The share of a GPU's fp32 peak that the aggregation of sparse neighbours reaches (ours).
REACHED = 0.05
#: Seconds of every minibatch for launches, the all-reduce of gradients and the optimizer (ours).
STEP_S = 10e-3


@dataclass(frozen=True)
class Machine:
    """α and β of a remote fetch, and the rate of computation of one trainer."""

    name: str
    #: Seconds per machine that a request contacts (α).
    request_s: float = REQUEST_S
    #: Bytes of features per second and trainer (β).
    bytes_per_s: float = FEATURE_RATE
    #: Floating-point operations per second that training reaches.
    flops: float = REACHED * 19.5e12
    #: Seconds of every minibatch besides its operations.
    step_s: float = STEP_S

    @staticmethod
    def of(cluster: Cluster | str) -> Machine:
        """The first node of a cluster (a description, a preset or a file) that has a GPU; each GPU is a trainer.

        The feature rate is that of the remote procedure calls, or the trainer's share of the node's ports where that is less.
        """
        from armillary.cluster import find

        found = find(cluster) if isinstance(cluster, str) else cluster
        for group in found.groups:
            node = group.node
            gpus = [device for device in node.devices if device.kind in ("gpu", "npu")]
            if not gpus:
                continue
            peak = getattr(gpus[0].peak, "fp32", None)
            if peak is None:
                raise InputError(f"{found.name}: expected the fp32 peak of {gpus[0].model or 'its GPU'}")
            count = sum(device.count for device in gpus)
            ports = sum(float(nic.count) * float(nic.up) for nic in node.nics if nic.up is not None)
            rate = min(FEATURE_RATE, ports / count) if ports else FEATURE_RATE
            return Machine(found.name, bytes_per_s=rate, flops=REACHED * float(peak))
        raise InputError(f"{found.name} has no GPU", where="cluster")

    def given(self, request_s: float = 0.0, bytes_per_s: float = 0.0) -> Machine:
        """This machine with another α or β; 0 keeps a value."""
        return replace(self, request_s=request_s or self.request_s, bytes_per_s=bytes_per_s or self.bytes_per_s)

    def fetch_s(self, machines: int, size: float) -> float:
        """Seconds of one fetch of `size` bytes from this many machines: α · machines + bytes / β; nothing takes no time."""
        return self.request_s * machines + size / self.bytes_per_s

    def compute_s(self, edges: float, features: float) -> float:
        """Seconds of a minibatch: 2 operations per sampled edge and feature, and twice as many backwards."""
        return self.step_s + 6 * edges * features / self.flops
