"""A message channel that delays, loses, duplicates and reorders messages, and clocks that are wrong. Both are reproducible.

Every draw of message m on a link comes from a hash of (seed, link, m, what is drawn), so the fate of a message depends neither on other
messages nor on what a protocol does with them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from armillary.engine.events import seconds
from armillary.engine.sharing import positive
from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.engine.simulation import Simulation

_LOSS, _DELAY, _DOUBLE, _DOUBLE_DELAY, _HELD = range(5)


def draw(seed: int, link: str, message: int, what: int) -> float:
    """A number in [0, 1) that depends only on these four arguments."""
    text = f"{seed}/{message}/{what}/{link}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") / 2.0**64


def uniform(low: float, high: float) -> Callable[[float], float]:
    """Delays spread evenly from `low` to `high` seconds, for `Channel(delay=...)`."""
    return lambda u: low + u * (high - low)


def exponential(mean: float, least: float = 0.0) -> Callable[[float], float]:
    """Delays of `least` seconds plus an exponential part with mean `mean`, for `Channel(delay=...)`."""
    return lambda u: least - mean * math.log1p(-u)


@dataclass(frozen=True)
class Fate:
    """The fate of one message: when copies of it arrive (none if it is lost), and why it is lost."""

    arrivals: tuple[float, ...]
    lost: str | None = None


class Channel:
    """One direction of a link between two nodes; `send(message)` calls `receive(message)` for each copy that arrives.

    `delay` is in seconds, or a quantile function from a number in [0, 1) to seconds. `loss` and `duplicate` are probabilities. Messages
    arrive in the order of sending, except that with probability `reorder` one is held back for another `hold` seconds while later ones
    pass. In the intervals `down` the link is down, and messages that are in flight or are sent are lost.
    """

    def __init__(
        self,
        sim: Simulation,
        receive: Callable[[Any], object],
        *,
        link: str = "link",
        seed: int = 0,
        delay: float | Callable[[float], float] = 0.0,
        loss: float = 0.0,
        duplicate: float = 0.0,
        reorder: float = 0.0,
        hold: float = 0.0,
        down: Iterable[tuple[float, float]] = (),
    ) -> None:
        for name, value in (("loss", loss), ("duplicate", duplicate), ("reorder", reorder)):
            if not 0.0 <= value <= 1.0:
                raise InputError(f"{name}: found {value!r}; expected a probability", where=link)
        self.sim = sim
        self.receive = receive
        self.link = link
        self.seed = seed
        self.loss, self.duplicate, self.reorder = loss, duplicate, reorder
        self.hold = positive(hold, f"{link}: hold", zero=True)
        self._delay = delay if callable(delay) else _always(seconds(delay, f"{link}: delay"))
        self.down = sorted((seconds(a, f"{link}: down"), float(b)) for a, b in down)
        if any(not a < b for a, b in self.down):
            raise InputError("down: expected intervals (from, to) that are not empty", where=link)
        #: The messages sent, the copies that arrived or will arrive, and the messages that are lost.
        self.sent = self.delivered = self.lost = 0
        self._last = 0.0

    def send(self, message: Any) -> Fate:
        """Sends a message now. Its fate is known at once to the simulation, but not to the sender."""
        fate = self._fate(self.sent)
        self.sent += 1
        self.delivered += len(fate.arrivals)
        self.lost += fate.lost is not None
        for time in fate.arrivals:
            self.sim.at(time, self.receive, message)
        return fate

    def _fate(self, number: int) -> Fate:
        now = self.sim.now
        if draw(self.seed, self.link, number, _LOSS) < self.loss:
            return Fate((), "loss")
        arrive = now + self._drawn(number, _DELAY)
        if self.reorder and draw(self.seed, self.link, number, _HELD) < self.reorder:
            arrive += self.hold
        else:
            arrive = self._last = max(arrive, self._last)
        arrivals = [arrive]
        if self.duplicate and draw(self.seed, self.link, number, _DOUBLE) < self.duplicate:
            arrivals.append(max(arrive, now + self._drawn(number, _DOUBLE_DELAY)))
        up = tuple(t for t in arrivals if not self._is_down(now, t))
        return Fate(up, None if up else "down")

    def _drawn(self, number: int, what: int) -> float:
        return seconds(self._delay(draw(self.seed, self.link, number, what)), f"{self.link}: delay")

    def _is_down(self, sent: float, arrives: float) -> bool:
        return any(a <= arrives and sent < b for a, b in self.down)


def _always(delay: float) -> Callable[[float], float]:
    return lambda u: delay


class Clock:
    """The clock of a node, which shows `offset` + (1 + `drift`) · true seconds; a drift of 1e-5 gains ten microseconds per second."""

    def __init__(self, sim: Simulation, offset: float = 0.0, drift: float = 0.0) -> None:
        if not (math.isfinite(offset) and math.isfinite(drift) and drift > -1.0):
            raise InputError(f"clock: found offset {offset!r} and drift {drift!r}; expected numbers, drift above -1")
        self.sim = sim
        self.offset = float(offset)
        self.drift = float(drift)

    def read(self) -> float:
        """The time that the clock shows now."""
        return self.offset + (1.0 + self.drift) * self.sim.now

    def true(self, shown: float) -> float:
        """The true seconds at which the clock shows `shown`."""
        return (shown - self.offset) / (1.0 + self.drift)

    def step(self, by: float) -> None:
        """Sets the clock forward (or back) now."""
        self.offset += by

    def slew(self, drift: float) -> None:
        """Changes the drift from now on, without a jump."""
        shown = self.read()
        self.drift = drift
        self.offset = shown - (1.0 + drift) * self.sim.now

    def until(self, shown: float) -> float:
        """The seconds until the clock shows `shown`, or 0 if it already has."""
        return max(self.true(shown) - self.sim.now, 0.0)
