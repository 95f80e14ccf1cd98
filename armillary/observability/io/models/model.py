"""A language model as the diagnosis sees it: a text goes in, a text comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class ModelError(Exception):
    """The model cannot be reached, or what it answers cannot be read."""


@dataclass(frozen=True)
class Said:
    """What a model answered, and how many tokens it was given."""

    text: str
    tokens: int


class Model(Protocol):
    """Anything that completes a prompt; raises `ModelError` where it cannot."""

    def complete(self, prompt: str) -> Said:
        """The answer to a prompt."""
        ...
