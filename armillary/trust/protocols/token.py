"""Token: a mixed choice in a classic language, by a permission that is passed back and forth.

Only who holds the permission may start. The observer holds it first; it starts its own side, or hands the permission over and waits for
the other's start or for the permission to come back. No message is ever stale, and each start of the other side costs a message more.

Choice between input and output by a permission is the classic answer of Palamidessi's Comparing the Expressive Power of the Synchronous
and Asynchronous π-calculi, POPL 1997.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .checking.encoding import permission_labels, with_permission
from .checking.judgement import Judgement
from .checking.sound import examined
from .language.protocol import Protocol


@dataclass(frozen=True)
class Token(Technique):
    """Accepts what is sound once every mixed choice is encoded."""

    def judge(self, protocol: Protocol) -> Judgement:
        """Encodes, then checks as `classic` does."""
        encoded = with_permission(protocol)
        if encoded is None:
            return Judgement(False, "a side of a mixed choice does not begin with a message between its two roles")
        wrong, system = examined(encoded)
        if system is None:
            return Judgement(False, str(wrong[0]), faults=tuple(str(one) for one in wrong))
        extra = frozenset(permission_labels(protocol)) if protocol.mixes else frozenset()
        return Judgement(True, system=system, extra=extra)
