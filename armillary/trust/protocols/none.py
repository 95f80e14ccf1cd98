"""None: endpoints follow the text as they understand it, and nobody checks anything, before or at run time.

How most protocols are written: a state machine per party, by hand, tested together. The machines here are at least projected from one
text; by hand they would be worse. TCP's own state diagram (RFC 793, 1981) is of this kind.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .checking.judgement import Judgement
from .checking.projection import machines_of
from .language.protocol import Protocol


@dataclass(frozen=True)
class Unchecked(Technique):
    """Accepts everything."""

    def judge(self, protocol: Protocol) -> Judgement:
        """Projects without a check."""
        return Judgement(True, system=machines_of(protocol))
