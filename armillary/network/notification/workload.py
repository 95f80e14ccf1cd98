"""Scenarios: programs of virtual ranks that need to be notified while they compute."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    from armillary.network.notification.readers.traces import Trace

RENDEZVOUS, CHUNKS, COLLECTIVE, STENCIL, BURST, TRACE = SCENARIOS = ("rendezvous", "chunks", "collective", "stencil", "burst", "trace")
#: The bytes of a piece and the pieces under way in `chunks`; the messages per second to each receiver in `burst`; and the seconds that
#: a receiver computes there per iteration.
CHUNK, WINDOW = 65536, 2
BURST_RATE = 1e5
BURST_S = 1e-3
#: The most ranks, iterations, bytes of a message, and events that a file may ask for.
MOST_RANKS, MOST_ITERATIONS, MOST_BYTES, MOST_EVENTS = 4096, 1_000_000, 1 << 40, 50_000_000


@dataclass(frozen=True)
class Nic:
    """The constants of a network, if they are not those of `bxi2-100`."""

    latency_us: float = 1.3
    send_overhead_us: float = 0.25
    receive_overhead_us: float = 0.25
    bandwidth_gb_s: float = 12.5


@dataclass(frozen=True)
class Scenario:
    """A scenario and its sizes.

    `compute` is how long each rank computes per iteration, as a multiple of the time that the communication of an iteration takes alone;
    in `burst` it is a multiple of one millisecond. `cores` are those of each rank. `protocol` is `rput` or `rget`, for long messages.
    """

    scenario: str = RENDEZVOUS
    nbytes: int = 1 << 20
    compute: float = 1.5
    ranks: int = 2
    cores: int = 4
    iterations: int = 20
    protocol: str = "rput"
    nic: Nic | None = None
    #: The operations of a user's program, for the scenario `trace`.
    trace: Trace | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.scenario not in SCENARIOS:
            raise unknown("scenario", str(self.scenario), SCENARIOS)
        whole = (("nbytes", 1, MOST_BYTES), ("ranks", 2, MOST_RANKS), ("cores", 1, 1 << 16), ("iterations", 1, MOST_ITERATIONS))
        for name, least, most in whole:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise InputError(f"{name}: found {value!r}; expected a whole number from {least} to {most}")
        if isinstance(self.compute, bool) or not isinstance(self.compute, int | float) or not 0.0 <= self.compute <= 1e6:
            raise InputError(f"compute: found {self.compute!r}; expected 0 to 1000000 times the communication")
        if self.protocol not in ("rput", "rget"):
            raise unknown("protocol", str(self.protocol), ("rput", "rget"))
        if self.scenario == TRACE and self.trace is None:
            raise InputError("scenario: found trace; expected a CSV file with the trace")
        if self.events() > MOST_EVENTS:
            raise InputError(
                f"found about {self.events():.3g} events to simulate; expected at most {MOST_EVENTS}: take fewer ranks, iterations or bytes"
            )

    def events(self) -> float:
        """About how many events a run takes."""
        per_rank = {
            RENDEZVOUS: 12.0,
            CHUNKS: 12.0 + 4.0 * self.nbytes / CHUNK,
            COLLECTIVE: 30.0 * math.log2(self.ranks),
            STENCIL: 100.0,
            BURST: 8.0 * BURST_RATE * BURST_S * max(1.0, self.compute),
            TRACE: 0.0 if self.trace is None else 12.0 * self.trace.operations / self.ranks,
        }[self.scenario]
        return per_rank * self.ranks * (1 if self.scenario == TRACE else self.iterations)
