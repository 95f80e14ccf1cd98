"""Monitor: no check before, but each endpoint is watched, and the first event that the protocol does not permit ends the session.

Nothing wrong goes unseen where a role can see it, but it is seen in production, and a protocol that can get stuck gets stuck.

Monitoring Networks through Multiparty Session Types, FORTE 2013.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .checking.judgement import Judgement
from .checking.projection import machines_of
from .language.protocol import Protocol


@dataclass(frozen=True)
class MonitorOnly(Technique):
    """Accepts everything and watches."""

    def judge(self, protocol: Protocol) -> Judgement:
        """Projects without a check."""
        return Judgement(True, system=machines_of(protocol), monitored=True)
