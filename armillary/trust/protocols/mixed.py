"""Mixed choice: one side may run ahead tentatively while the other decides, and everybody comes to agree.

In mix^k(p ▷ o) the observer o decides by what it does first: it receives p's first message (left) or sends its own (right). Until p hears
of the decision it may only speak to o, and o's first message of the right side interrupts it wherever it is. What p had sent by then is
stale: o throws it away until p's acknowledgement. All others learn the side from somebody who knows it. Four conditions on the protocol's
text make sure of this (observer, commitment, awareness, staleness), so no composition of the roles is ever explored.

The conditions' wording, the projection by sets of places, the instance counters and the endpoints are our design; so are the refusals
that random protocols showed to be needed where messages carry no tags (docs/protocols.md).

Mixed Choice in Asynchronous Multiparty Session Types, arXiv 2602.23927, 2026.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim, Gain, Kind, Level, Technique, parameter

from .checking.conditions import CONDITIONS
from .checking.judgement import Judgement
from .checking.sound import examined
from .language.protocol import Protocol

_NO_FIGURES = "the abstract has theorems and no figures, so the bound is the theorem"


@dataclass(frozen=True)
class MixedChoiceTypes(Technique):
    """Accepts what keeps all conditions; its endpoints then need no further check."""

    tags: bool = parameter(False, "messages carry the instance of their mixed choices, so that acknowledgements may be absent")
    without: str = parameter("", "a condition that is not checked, to show what it is for", choices=("", *CONDITIONS))

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "accepted_broken", by=Level(at_most=0.0), on=Kind("broken"), says="accepted protocols progress and agree: no broken one passes",
            source="abstract (progress)", honest=(0.0, None), why=_NO_FIGURES,
        ),
        Claim(
            "counterexamples", by=Level(at_most=0.0), on=(Kind("sound"), Kind("family")),
            says="exploration finds nothing wrong with an accepted protocol", source="abstract (progress)",
        ),
        Claim("accepted_sound", by=Level(at_least=1.0), on=Kind("sound", "suite"), says="all sound ones are accepted", source="abstract"),
        Claim(
            "trace_differences", by=Level(at_most=0.0), on=Kind("corresponds"),
            says="the roles together do what the protocol says: equal traces of up to 8 messages", source="abstract (correspondence)",
        ),
        Claim(
            "recoveries", by=Level(at_least=1.0), on=Kind("mixed-choice"), says="every race ends in agreement",
            source="abstract (progress)", why=_NO_FIGURES,
        ),
        Claim("extra_messages", by=Level(at_most=0.0), on=Kind("mixed-choice"), says="no message beyond the specified ones", source="ours"),
        Claim(
            "extra_messages", over="token", by=Gain(difference=(1.0, None)), on=Kind("mixed-choice"),
            says="at least one message per session less than with a permission that is passed", source="ours",
        ),
        Claim(
            "messages_per_s", over="token", by=Gain(ratio=(1.0, None)), on=Kind("mixed-choice"),
            says="no slower per message that counts than with a permission", source="ours",
        ),
        Claim(
            "check_seconds", over="explore", by=Gain(ratio=(1.0, None)), on=Kind("family"),
            says="on protocols that grow, the check takes no longer than exploring them", source="ours",
        ),
        Claim("monitor_us", by=Level(at_most=3.0), on=Kind("sound"), says="a monitor costs at most 3 µs per message", source="ours"),
        Claim(
            "scenarios_passed", by=Level(at_least=1.0), on=Kind("broker"), says="the AMQP client passes all scenarios against RabbitMQ",
            source="abstract (amqp_client)",
        ),
    )  # fmt: skip

    def judge(self, protocol: Protocol) -> Judgement:
        """Checks the conditions and projects."""
        wrong, system = examined(protocol, tags=self.tags, without=(self.without,))
        if system is None:
            return Judgement(False, str(wrong[0]), faults=tuple(str(one) for one in wrong))
        return Judgement(True, system=system)
