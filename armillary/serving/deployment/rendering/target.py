"""A target is a technique that turns a description into the files of one platform."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Technique

from ..description.service import Service


@dataclass(frozen=True)
class Target(Technique):
    """A platform. `render` maps relative paths to texts, and the same description always gives the same bytes."""

    #: The platform's name, as `--to` takes it.
    platform: ClassVar[str] = ""

    def render(self, service: Service) -> dict[str, str]:
        """Returns the files of the platform."""
        raise NotImplementedError
