"""Static-60: every idle pod stays for one minute, as on Huawei's public cloud.

The platform is described in Serverless Cold Starts and Where to Find Them, EuroSys 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique, parameter

from .simulation.decisions import FIXED
from .simulation.play import Policy
from .workload import KeepAliveWork


@dataclass(frozen=True)
class Static60(Technique):
    """One keep-alive for all pods at all times."""

    keep_s: float = parameter(60.0, "seconds that an idle pod stays", range=(0.0, 86_400.0))
    #: Whether decisions depend on λ.
    weighs = False

    def policy(self, work: KeepAliveWork) -> Policy:
        """The same keep-alive for every pod."""
        return Policy(FIXED, keep_s=self.keep_s)
