"""The largest size for every call, on the least loaded node: a deadline is never missed for want of vCPUs, only for want of nodes.

Platforms give CPU in proportion to the size (Peeking behind the curtains of serverless platforms, USENIX ATC 2018), so owners take the
largest to be safe.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .planning.policy import LARGEST, Policy
from .workload import FunctionsWork


@dataclass(frozen=True)
class MaxAlloc(Technique):
    """Sixteen vCPUs, or what the largest node has."""

    def policy(self, work: FunctionsWork) -> Policy:
        """The rules that the play follows."""
        return Policy(size=LARGEST)
