"""A scheduler that is fed from files: node power from a cluster file, sun and usage from files that are read again when they change."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from armillary.cluster import find
from armillary.errors import InputError
from armillary.scheduling.green.greenk8s import GreenK8s
from armillary.scheduling.green.readers.sun import read_sun
from armillary.scheduling.kubernetes import Judged, Node, Pod

from .prometheus import read_vector
from .scheduler import GreenScheduler, Power


class FedScheduler:
    """Answers as `GreenScheduler` does, with what its files say at that moment. A file that cannot be read keeps its last content."""

    def __init__(
        self, technique: GreenK8s, place: tuple[float, float], cluster: str, sun: Path | None, usage: Path | None, label: str = "node"
    ) -> None:
        self.scheduler = GreenScheduler(technique, place, powers_of(cluster))
        self.sun, self.usage, self.label = sun, usage, label
        self._seen: dict[Path, tuple[int, int]] = {}
        self._refresh(strict=True)

    def judge(self, pod: Pod, nodes: Sequence[Node]) -> Judged:
        """Refreshes what has changed and judges."""
        self._refresh()
        return self.scheduler.judge(pod, nodes)

    def metrics(self) -> str:
        """Refreshes what has changed, and what is known then."""
        self._refresh()
        return self.scheduler.metrics()

    def _refresh(self, strict: bool = False) -> None:
        for path in (self.sun, self.usage):
            if path is None:
                continue
            try:
                facts = os.stat(path)
                version = (facts.st_mtime_ns, facts.st_size)
                if self._seen.get(path) == version:
                    continue
                if path == self.sun:
                    series = read_sun(path)
                    if series.irradiance:
                        raise InputError("found irradiance; expected the power of your panels as timestamp,watts", where=str(path))
                    self.scheduler.observe_sun(series.times_s, series.values)
                else:
                    self.scheduler.observe_usage(read_vector(path, self.label))
                self._seen[path] = version
            except (OSError, InputError) as problem:
                if strict:
                    raise problem if isinstance(problem, InputError) else InputError("cannot be read", where=str(path)) from None


def powers_of(cluster: str) -> dict[str, Power]:
    """The power of each node type: the groups of a cluster file, by name."""
    found = {}
    for group in find(cluster).groups:
        power = group.node.power
        if power is not None and power.idle is not None and power.peak is not None:
            cores = float(sum(int(socket.count) * int(socket.cores or 0) for socket in group.node.sockets)) or 1.0
            off = float(power.off) if power.off is not None else 2.0
            found[str(group.name)] = Power(float(power.idle), float(power.peak), off, cores)
    if not found:
        raise InputError("found no group with idle and peak power", where=cluster)
    return found
