"""Static-600: every idle pod stays for ten minutes, as OpenWhisk does by default.

Fixed keep-alives of this kind are the baseline of Serverless in the Wild, USENIX ATC 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import parameter

from .static_60 import Static60


@dataclass(frozen=True)
class Static600(Static60):
    """Ten minutes for all pods."""

    keep_s: float = parameter(600.0, "seconds that an idle pod stays", range=(0.0, 86_400.0))
