"""IOAgent: look at one subject of a log at a time, with what is known about it, and merge the small diagnoses.

An expert does not read a log from end to end. So the log becomes at most some thirty fragments, each with one module's figures on one
subject. Each fragment is described in sentences, the sentences retrieve what is known about such figures, and a judge says what is wrong
with this fragment alone, with the numbers that show it. Then neighbours are merged in a binary tree: findings of one label are united, and
rules tell causes from effects. The judge of this technique is a set of rules, which needs no language model; `ioagent-llm` asks one.

IOAgent: Democratizing Trustworthy HPC I/O Performance Diagnosis Capability via LLMs, arXiv 2602.22017 (IPDPS 2025). Our design: the labels
and their rules, the fragments' fields, the knowledge, the rules that explain, and the rule-based judge, which stands in for the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim, Gain, Kind, Technique, parameter

from .diagnosis.diagnosing import Parts, diagnose
from .diagnosis.finding import Answer
from .diagnosis.labels import Thresholds
from .diagnosis.report import Diagnosis
from .workload import Known

RIVALS = ("drishti", "rules", "rules-weighted", "totals")
STAND_IN = "a rule-based judge; no language model took part"


@dataclass(frozen=True)
class IOAgent(Technique):
    """The published pipeline with rules as its judge."""

    merge: bool = parameter(True, "unite the findings of fragments in a tree; otherwise the first of each label counts")
    explains: bool = parameter(True, "tell causes from effects while merging")
    filter: bool = parameter(True, "recommend only entries whose condition holds")
    least_severity: float = parameter(0.05, "findings that touch a smaller share of the I/O time are not reported", range=(0.0, 1.0))

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "f1", over=RIVALS, by=Gain(difference=(0.0, None)), on=Kind("labelled"),
            says="finds issues as well as the best of state-of-the-art tools, or better", source="abstract", stand_in=STAND_IN,
        ),
        Claim(
            "root_cause", over=RIVALS, by=Gain(difference=(0.1, None)), on=Kind("labelled"),
            says="names the cause first more often than other tools", source="abstract", stand_in=STAND_IN,
        ),
        Claim(
            "f1_lost", over=("rules", "rules-weighted"), by=Gain(difference=(0.0, None)), on=Kind("misfit"),
            says="loses no more F1 than flat rules where thresholds are halved or doubled", source="our design", stand_in=STAND_IN,
        ),
    )  # fmt: skip

    def diagnose(self, known: Known, scale: float = 1.0) -> Diagnosis:
        """The diagnosis of one log, all thresholds multiplied by `scale`."""
        parts = Parts(self.merge, self.explains, self.filter, least_severity=min(1.0, self.least_severity * scale))
        return diagnose(known.log, thresholds=Thresholds().scaled(scale), parts=parts)

    def answer(self, known: Known, scale: float = 1.0) -> Answer:
        """What is wrong with one log."""
        return answer_of(self.diagnose(known, scale))


def answer_of(found: Diagnosis) -> Answer:
    """A diagnosis as an answer."""
    return Answer(found.findings, found.unsupported, found.tokens, found.notes, found.fragments)
