"""A language model that is given the whole log as text, without fragments, knowledge or merging.

This is what one gets by pasting a log into a chat: the text is cut where it becomes too long, and nothing ties the answer to the log. The
numbers of its statements are looked up in the log's totals afterwards, and statements whose numbers are not there are counted, though kept.

The comparison without a pipeline is the one of IOAgent, arXiv 2602.22017 (2025).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from armillary.arena import Technique, parameter

from .diagnosis.finding import Answer, Finding, plain
from .diagnosis.labels import LABELS, MEANING
from .ioagent_llm import given
from .logs.writing import text_lines
from .models.judging import near, numbers_in, parsed
from .models.model import ModelError
from .workload import Known


@dataclass(frozen=True)
class WholeLlm(Technique):
    """One question with the whole text."""

    url: str = parameter("", "base address of a server that speaks OpenAI's chat completions, such as http://localhost:8000/v1")
    model: str = parameter("", "the model's name at the server")
    key_in: str = parameter("", "the environment variable that holds the server's key, if it wants one")
    timeout_s: float = parameter(60.0, "seconds that one answer may take", range=(0.1, 3600.0))
    characters: int = parameter(200_000, "characters of the log's text that the model is given", range=(1_000, 10_000_000))

    def answer(self, known: Known, scale: float = 1.0) -> Answer:
        """What a model says of the text of one log."""
        model = given(self.url, self.model, self.key_in, self.timeout_s)
        text = "\n".join(itertools.islice(text_lines(known.log), self.characters // 20))[: self.characters]
        labels = ", ".join(f"{name} ({MEANING[name]})" for name in LABELS)
        asked = (
            f"This is the text of a Darshan log:\n{text}\nWhich of these issues does the job have, the most "
            f"important first: {labels}? Answer with a JSON list of {{label, text}}.\n"
        )
        try:
            said = model.complete(asked)
        except ModelError as error:
            return Answer((), notes=(f"No answer: {error}.",))
        totals = [*known.log.totals.values(), float(known.log.processes), known.log.run_time_s]
        found, unsupported = list[Finding](), 0
        for place, one in enumerate((parsed(said.text) or [])[:32], 1):
            if isinstance(one, dict) and one.get("label") in LABELS and one["label"] not in [f.label for f in found]:
                words = plain(str(one.get("text", "")))
                unsupported += not all(any(near(number, total) for total in totals) for number in numbers_in(words))
                found.append(Finding(str(one["label"]), 1.0 / place, 0.5, (), words))
        return Answer(tuple(found), unsupported, said.tokens)
