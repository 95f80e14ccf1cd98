"""Classic multiparty session types: every choice is made by one role and told to the others, so no two can start at once.

Projection merges what a role cannot distinguish and refuses what it would have to know. A protocol with a mixed choice cannot be written
down in this language, so it is refused.

Multiparty Asynchronous Session Types, POPL 2008.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .checking.judgement import Judgement
from .checking.sound import examined
from .language.protocol import Protocol


@dataclass(frozen=True)
class Classic(Technique):
    """Accepts directed protocols whose projections merge."""

    def judge(self, protocol: Protocol) -> Judgement:
        """Refuses mixed choices, then merges."""
        if protocol.mixes:
            first = next(iter(protocol.mixes.values()))
            return Judgement(False, f"line {first.place.line}: two roles may start at once, which a directed choice cannot say")
        wrong, system = examined(protocol)
        if system is None:
            return Judgement(False, str(wrong[0]), faults=tuple(str(one) for one in wrong))
        return Judgement(True, system=system)
