"""TRACE as a weigher of OpenStack's Nova, which asks for one number per host and adds it to those of other weighers.

In a module on the scheduler's path:

    from nova.scheduler import weights
    weigher = Weigher(Trace.load(), metrics=my_metrics_of_an_instance)

    class TraceWeigher(weights.BaseHostWeigher):
        def _weigh_object(self, host_state, request_spec):
            return weigher.weigh(host_state, request_spec)

Nova itself is not needed here: a host state is whatever has `host`, `vcpus_total`, `total_usable_ram_mb` and `instances`, and a request is
whatever has `instance_uuid` and `flavor` with `vcpus` and `memory_mb`.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from armillary.scheduling.vm.recommender import Host, Recommender, Vm

#: What a hardware thread is worth in Nova: one vCPU. Threads per core and sockets are not in a host state.
HARDWARE = {"sockets": 2, "threads_per_core": 2}


class Weigher:
    """`weigh(host_state, request_spec)` gives the QoS in [0, 1] that is predicted for the instance on the host."""

    def __init__(
        self, recommender: Recommender, metrics: Callable[[str], Mapping[str, float] | None], *, usual: Mapping[str, float] | None = None,
        hardware: Callable[[str], Mapping[str, float]] | None = None, hour: Callable[[], float] | None = None,
    ) -> None:  # fmt: skip
        """metrics: of an instance by its UUID, None where nothing was measured yet; `usual` is taken then, and an instance on a host of
        which nothing is known is left out. hardware: of a host by its name. hour: of the day, that of this machine by default."""
        self.recommender, self.metrics, self.usual, self.hardware = recommender, metrics, usual, hardware
        self.hour = hour or (lambda: datetime.datetime.now().hour + 0.0)

    def weigh(self, host_state: Any, request_spec: Any) -> float:
        """The predicted QoS; 0 if nothing is known about the instance."""
        return self.weigh_all([host_state], request_spec)[0]

    def weigh_all(self, host_states: Sequence[Any], request_spec: Any) -> list[float]:
        """The predicted QoS on each of several hosts, in one pass."""
        flavor = request_spec.flavor
        sizes = {"vcpu": float(flavor.vcpus), "memory_gb": flavor.memory_mb / 1000}
        known = self.metrics(str(request_spec.instance_uuid)) or self.usual
        if known is None:
            return [0.0] * len(host_states)
        vm = Vm(str(request_spec.instance_uuid), {**known, **sizes})
        hosts = [self._host(state) for state in host_states]
        return [float(q) for q in self.recommender.predict([vm], hosts, hour=self.hour())[0]]

    def _host(self, state: Any) -> Host:
        name = str(state.host)
        found = {str(uuid): self.metrics(str(uuid)) for uuid in getattr(state, "instances", None) or {}}
        vms = [Vm(uuid, metrics) for uuid, metrics in found.items() if metrics is not None]
        if self.hardware is not None:
            return Host(name, vms, self.hardware(name))
        threads, per_core, sockets = int(state.vcpus_total), HARDWARE["threads_per_core"], HARDWARE["sockets"]
        # Hosts that do not come out even are taken for one socket without hyper-threads.
        even = threads % (per_core * sockets) == 0
        cores = threads // per_core if even else threads
        memory = max(1.0, state.total_usable_ram_mb / 1000)
        return Host(name, vms, {"sockets": sockets if even else 1, "cores": cores, "threads": threads, "memory_gb": memory})
