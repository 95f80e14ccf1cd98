"""What every target is: a technique that turns a description into files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Technique

from ..description.service import Service


@dataclass(frozen=True)
class Target(Technique):
    """A platform. `render` gives its files, relative path to text; the same description gives the same bytes."""

    #: The platform's name, as `--to` takes it.
    platform: ClassVar[str] = ""

    def render(self, service: Service) -> dict[str, str]:
        """The files of the platform."""
        raise NotImplementedError
