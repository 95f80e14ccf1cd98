"""The path of one collective: which way its bytes go, and what it asks of the switch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .allreduce_time import Shape, nvlink_seconds, ring_factor

#: How x, the share through the switch, is chosen: always the same, by the number of free slots, or the best for what is free now.
Choice = Literal["fixed", "slots", "best"]
#: When a group may change its switch.
Rehome = Literal["never", "iteration", "collective"]
REHOMES: tuple[Rehome, ...] = ("never", "iteration", "collective")
CHOICES: tuple[Choice, ...] = ("fixed", "slots", "best")


@dataclass(frozen=True)
class Path:
    """The rule by which collectives are sent.

    If `flat`, every GPU is a rank of its own and NVLink is not used first. `choice` and `x` determine the share through the switch; the
    rest goes round a ring, or to a parameter server if `server`. A job that gets less than an eighth of the slots that it is due waits at
    most `wait_s` and then takes the ring. If `first`, collectives of decoding precede those of prompts and have reserved slots, and prompts
    release theirs after every `chunk` bytes. A new x that differs by less than `hysteresis` from the old one is ignored. `rehome` says when
    a group may change to a switch that is less busy by `rehome_margin`: before an iteration, before every collective, or never.
    """

    flat: bool = False
    choice: Choice = "fixed"
    x: float = 0.0
    server: bool = False
    wait_s: float = 500e-6
    first: bool = False
    chunk: float = 0.0
    hysteresis: float = 0.0
    rehome: Rehome = "never"
    rehome_margin: float = 0.25

    @property
    def switched(self) -> bool:
        """Whether it ever uses the switch."""
        return self.choice != "fixed" or self.x > 0


@dataclass(frozen=True)
class Uses:
    """A collective in numbers: its use of each link at x = 0 and x = 1, of the first server's link and of the chip, and fixed seconds."""

    ring: float
    switch: float
    first_ring: float
    inputs: float
    before_s: float
    ring_s: float
    switch_s: float

    def link(self, x: float, *, first: bool = False) -> float:
        """Returns the bytes on a server's link per byte reduced."""
        return x * self.switch + (1.0 - x) * (self.first_ring if first else self.ring)

    def latency_s(self, x: float) -> float:
        """Returns the seconds before bytes flow, which are those of the slower path in use."""
        return max(self.switch_s if x > 0 else 0.0, self.ring_s if x < 1 else 0.0)


def uses(path: Path, at: Shape, nbytes: float) -> Uses:
    """Returns the resources that one collective of `nbytes` over `at` uses on this path."""
    s, n = at.servers, at.ranks
    if s == 1:
        return Uses(0.0, 0.0, 0.0, 0.0, nvlink_seconds(nbytes, at), 0.0, 0.0)
    if path.flat:
        return Uses(ring_factor(n), float(at.gpus), ring_factor(n), float(n), 0.0, 2 * (n - 1) * at.nic_s, at.rtt_s)
    before = nvlink_seconds(nbytes, at)
    if path.server:
        # The parameter server is on the group's first server, whose NIC carries the other s−1 streams in both directions.
        return Uses(1.0, 1.0, float(s - 1), float(s), before, 2 * at.nic_s, at.rtt_s)
    rho = ring_factor(s)
    return Uses(rho, 1.0, rho, float(s), before, at.ring_s, at.rtt_s)
