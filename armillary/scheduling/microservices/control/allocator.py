"""What all techniques of the arena are: something that gives a controller for an application."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from armillary.arena import Technique
from armillary.scheduling.microservices.application.application import LEAST_CORES, MOST_CORES, Application
from armillary.scheduling.microservices.simulation.play import Controller
from armillary.scheduling.microservices.simulation.window import Decision, Floats, Window

if TYPE_CHECKING:
    from armillary.scheduling.microservices.workload import MicroservicesWork


class Allocator(Technique):
    """A technique that sets quotas or replicas."""

    def controller(self, app: Application) -> Controller:
        """A controller with a state of its own for one run of an application."""
        raise NotImplementedError

    def foresee(self, work: MicroservicesWork) -> Controller:
        """What an oracle does instead of `controller`: it sees the work."""
        return self.controller(work.application)


def within(quotas: Floats) -> Floats:
    """Quotas in the range that a replica may have."""
    return np.clip(quotas, LEAST_CORES, MOST_CORES)


class Fixed:
    """A controller that always gives the same quotas."""

    def __init__(self, quotas: Floats) -> None:
        self.quotas = quotas

    def decide(self, window: Window) -> Decision:
        """The same quotas."""
        return Decision(self.quotas)
