"""The interface of every technique of this arena: it places experts by the routing that was seen, and may direct requests and tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Technique
from armillary.errors import InputError

from ..routing.trace import RoutingTrace
from .placement import ExpertPlacement


@dataclass(frozen=True)
class ExpertTechnique(Technique):
    """Learns a placement from a trace."""

    #: Whether requests and tokens are sent to where their experts are, rather than in turn.
    by_score: ClassVar[bool] = False

    def place(self, trace: RoutingTrace, devices: int) -> ExpertPlacement:
        """Places the experts by the routing in `trace`, which was seen before."""
        raise NotImplementedError


def check_devices(experts: int, devices: int) -> None:
    """Raises InputError unless every device can have equally many experts."""
    if devices < 1 or experts % devices:
        raise InputError(f"devices: found {devices} for {experts} experts; expected a divisor (or replicate=True)")
