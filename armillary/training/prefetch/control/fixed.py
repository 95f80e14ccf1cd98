"""Policies that do not look: always, never, and every so many minibatches."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.errors import InputError

from .loop import Decision, History, Static, Window


@dataclass(frozen=True)
class Always:
    """Replaces whenever it is asked."""

    def decide(self, static: Static, window: Window, history: History) -> Decision:
        """Yes."""
        return Decision(True, reason="always")


@dataclass(frozen=True)
class Never:
    """Never replaces, so that the buffer stays as it started."""

    def decide(self, static: Static, window: Window, history: History) -> Decision:
        """No."""
        return Decision(False, reason="never")


@dataclass(frozen=True)
class Every:
    """Replaces every `period` minibatches; it is due by the count alone and asks for no window."""

    period: int = 25

    def __post_init__(self) -> None:
        if self.period < 1:
            raise InputError(f"found a period of {self.period}; expected at least 1")

    def due(self, minibatch: int) -> bool:
        """Whether minibatch number `minibatch`, from 0, replaces."""
        return (minibatch + 1) % self.period == 0

    def decide(self, static: Static, window: Window, history: History) -> Decision:
        """Yes if the window's last minibatch is due."""
        return Decision(self.due(window.minibatch), reason=f"every {self.period} minibatches")
