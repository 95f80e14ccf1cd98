"""What decides in a play: a scheduler sees a scene and gives places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from armillary.scheduling.contention import Fleet

from .packing import Packing
from .rules import Rule

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass
class Scene:
    """All that a scheduler may know: servers, instances, what monitoring reads, and who is where. It changes as time goes on.

    app: the application of each instance, [n]. readings: CPI, MPKI, memory GB/s and network MB/s per busy core, [n, 4].
    cpu: the CPU that an instance takes alone on a server of speed 1 at its present rate, in cores, [n]. rps: requests per second, [n].
    """

    fleet: Fleet
    app: Ints
    readings: Floats
    packing: Packing
    cpu: Floats
    rps: Floats
    hour: float = 0.0
    #: Where a user's file says that instances are: (server, threads), or None.
    start: tuple[tuple[int, Ints] | None, ...] = ()
    #: Counts the changes of cpu and rps, so that what was derived from them is known to be old.
    age: int = 0

    @property
    def k(self) -> Ints:
        """Threads of each instance."""
        return self.packing.k

    def at(self, hour: float, cpu: Floats, rps: Floats) -> None:
        """Moves to another time of day."""
        self.hour, self.cpu, self.rps = hour, cpu, rps
        self.age += 1

    def elsewhere(self, packing: Packing) -> Scene:
        """The same instances in other places."""
        return Scene(self.fleet, self.app, self.readings, packing, self.cpu, self.rps, self.hour, self.start, self.age)


class Scheduler(Protocol):
    """Decides in a scene. `place` answers a server and threads for an instance that has none, and changes nothing."""

    def place(self, i: int) -> tuple[int, Ints]:
        """The server and the threads of instance i."""
        ...

    def reschedule(self, measured: Floats) -> int:
        """Moves instances, given the CPU in cores that each was seen to use; returns how many were moved."""
        ...

    def predict(self, scene: Scene) -> Floats:
        """The CPU in cores that each instance of a scene is expected to use; NaN where an instance has no place."""
        ...


@dataclass
class RuleScheduler:
    """A plain rule. It moves nothing and expects no interference."""

    scene: Scene
    rule: Rule

    def place(self, i: int) -> tuple[int, Ints]:
        """As the rule says."""
        return self.rule(self.scene.packing, i)

    def reschedule(self, measured: Floats) -> int:
        """Moves nothing."""
        return 0

    def predict(self, scene: Scene) -> Floats:
        """What each takes alone on its server."""
        return undisturbed(scene)


def undisturbed(scene: Scene) -> Floats:
    """The CPU in cores of each instance if nobody slowed it down."""
    server = scene.packing.server
    found: Floats = np.minimum(scene.cpu / scene.fleet.speed[np.maximum(server, 0)], scene.k)
    return np.where(server >= 0, found, np.nan)

