"""Asks a model as long as it answers: one that fails twice in a row, or takes too long in all, is asked no more about this log."""

from __future__ import annotations

import time
from dataclasses import dataclass

from .model import Model, ModelError, Said

#: Failures in a row after which a model is left alone.
MOST_FAILURES = 2


@dataclass
class Patience:
    """A model that is given up after a while; `most_s` is how many seconds all of its answers together may take."""

    model: Model
    most_s: float = 900.0
    failures: int = 0
    spent_s: float = 0.0

    def complete(self, prompt: str) -> Said:
        """The model's answer, or a `ModelError` without asking."""
        if self.failures >= MOST_FAILURES:
            raise ModelError(f"the model failed {MOST_FAILURES} times in a row, and is asked no more")
        if self.spent_s > self.most_s:
            raise ModelError(f"the model took more than {self.most_s:g} seconds for this log, and is asked no more")
        begin = time.monotonic()
        try:
            said = self.model.complete(prompt)
        except ModelError:
            self.failures += 1
            raise
        finally:
            self.spent_s += time.monotonic() - begin
        self.failures = 0
        return said
