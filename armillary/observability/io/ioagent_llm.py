"""IOAgent with a language model that the user gives: the model judges each fragment and says what explains what.

The model is reached over HTTP, at an address that the user names and at no other. It is shown one fragment at a time, with what is known
about it, and every statement without a number of the fragment, or with a source that it was not shown, is dropped and counted. Where the
model cannot be reached, or answers something else, the rules of `ioagent` judge that fragment; after two failures in a row it is left
alone.

IOAgent: Democratizing Trustworthy HPC I/O Performance Diagnosis Capability via LLMs, arXiv 2602.22017 (IPDPS 2025). Our design: the
prompts and the check of numbers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim, Kind, NotForThisCase, Parity, Technique, parameter

from .diagnosis.diagnosing import Parts, diagnose
from .diagnosis.finding import Answer
from .diagnosis.labels import Thresholds
from .diagnosis.report import Diagnosis
from .ioagent import answer_of
from .models.http import HttpModel
from .workload import Known


@dataclass(frozen=True)
class IOAgentLlm(Technique):
    """The published pipeline with a language model as its judge."""

    url: str = parameter("", "base address of a server that speaks OpenAI's chat completions, such as http://localhost:8000/v1")
    model: str = parameter("", "the model's name at the server")
    key_in: str = parameter("", "the environment variable that holds the server's key, if it wants one")
    timeout_s: float = parameter(60.0, "seconds that one answer may take", range=(0.1, 3600.0))
    most_s: float = parameter(900.0, "seconds that all answers about one log may take", range=(0.1, 86_400.0))
    filter: bool = parameter(True, "show the model only entries whose condition holds or that it confirms")
    one_fragment: bool = parameter(False, "ask about all fragments at once")

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "f1", over="ioagent", by=Parity(0.1), on=Kind("labelled"), says="is not tied to one model", source="abstract",
            needs="two language models",
        ),
    )  # fmt: skip

    def diagnose(self, known: Known, scale: float = 1.0) -> Diagnosis:
        """The diagnosis of one log."""
        model = given(self.url, self.model, self.key_in, self.timeout_s)
        parts = Parts(filter=self.filter, one_fragment=self.one_fragment)
        return diagnose(known.log, model=model, thresholds=Thresholds().scaled(scale), parts=parts, most_s=self.most_s)

    def answer(self, known: Known, scale: float = 1.0) -> Answer:
        """What is wrong with one log, as the model sees it."""
        return answer_of(self.diagnose(known, scale))


def given(url: str, name: str, key_in: str, timeout_s: float) -> HttpModel:
    """The model that the user named, or a refusal."""
    if not url or not name:
        raise NotForThisCase("needs a language model: set url and model")
    return HttpModel(url, name, os.environ.get(key_in, "") if key_in else "", timeout_s)
