"""None: no pod stays, so an arrival starts cold unless a pod ends its work at that very moment.

It is the extreme without any keep-alive. Serverless in the Wild, USENIX ATC 2020, describes why platforms keep pods at all.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import parameter

from .static_60 import Static60


@dataclass(frozen=True)
class NoKeepAlive(Static60):
    """Pods leave at once."""

    keep_s: float = parameter(0.0, "seconds that an idle pod stays", range=(0.0, 86_400.0))
