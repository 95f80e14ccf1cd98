"""What the core of one virtual rank did: copying, handling, computing and waiting, which add up to the run."""

from __future__ import annotations


class Busy:
    """The seconds of one rank's core, by what it did. They grow while the run goes on, and add up to its length when it has ended.

    - `copying` is spent on copies of messages, and `computing` on what the program computes (a helper thread prolongs it).
    - `handling` is everything else that messages and their events cost: overheads of calls, polls, and entering, running and leaving
      handlers.
    - `waiting` is the rest: the rank waits, or has ended.

    `helper` are the seconds of handlers on a helper's core, which is not the rank's. `stolen` is the part of `handling` and `copying` that
    interrupted computing or another call. `runs` counts the runs of handlers outside calls, and `events` all events of the rank.
    """

    __slots__ = ("computing", "copying", "events", "handling", "helper", "runs", "stolen", "waiting")

    def __init__(self) -> None:
        self.copying = 0.0
        self.handling = 0.0
        self.computing = 0.0
        self.waiting = 0.0
        self.helper = 0.0
        self.stolen = 0.0
        self.runs = 0
        self.events = 0

    @property
    def total(self) -> float:
        """The seconds of the rank's core."""
        return self.copying + self.handling + self.computing + self.waiting

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}={getattr(self, name):.9g}" for name in ("copying", "handling", "computing", "waiting"))
        return f"Busy({parts})"
