"""A lane serves one job after another at a rate, such as a compute stream, a directed link or a copy engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.engine.events import Event
from armillary.engine.sharing import positive

if TYPE_CHECKING:
    from armillary.engine.simulation import Simulation


class Job(Event):
    """Work on a lane, as an event that happens when it is done. `start` and `end` are known as soon as it is requested."""

    __slots__ = ("end", "lane", "start", "work")

    def __init__(self, lane: Lane, work: float, start: float, end: float, name: str | None) -> None:
        super().__init__(lane.sim, name)
        self.lane = lane
        self.work = work
        self.start = start
        self.end = end

    def describe(self) -> str:
        """A description for messages."""
        return f"{self.name or 'job'} on {self.lane.name} (from {self.start:g} to {self.end:g})"


class Lane:
    """Serves jobs in order of arrival: work w takes `latency` + w / `rate` seconds after all earlier work is done. O(1) per job."""

    def __init__(self, sim: Simulation, rate: float, latency: float = 0.0, name: str = "lane", process: str = "lanes") -> None:
        self.sim = sim
        self.name = name
        self.rate = positive(rate, f"{name}: rate", infinite=True)
        self.latency = positive(latency, f"{name}: latency", zero=True)
        #: When all work requested so far is done.
        self.free_at = sim.now
        #: Seconds of work requested so far.
        self.busy_s = 0.0
        self.jobs = 0
        self._process = process

    def serve(self, work: float, name: str | None = None, category: str = "", args: dict[str, Any] | None = None) -> Job:
        """Requests work; the returned job is an event that happens when it is done."""
        amount = positive(work, f"{self.name}: work", zero=True)
        took = self.latency + amount / self.rate
        start = max(self.sim.now, self.free_at)
        job = Job(self, amount, start, start + took, name)
        self.free_at = job.end
        self.busy_s += took
        self.jobs += 1
        if self.sim.timeline is not None:
            track = self.sim.timeline.track(self._process, self.name)
            self.sim.timeline.span(track, name or "job", start, job.end, category, args)
        self.sim.at(job.end, job.succeed, job)
        return job
