"""What every selector has in common: it names a strategy for a problem before anything is assembled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.arena import Technique

if TYPE_CHECKING:
    from ..assembling.strategy import Problem, Strategy
    from .table import Seconds


class Selector(Technique):
    """Names a strategy; a frozen dataclass."""

    def pick(self, problem: Problem, family: str, seconds: Seconds | None = None) -> Strategy:
        """Returns the strategy for this problem. What it learned from must not hold `family`; `seconds` is for an oracle alone."""
        raise NotImplementedError
