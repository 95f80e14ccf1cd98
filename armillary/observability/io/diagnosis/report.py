"""A diagnosis as a person reads it, as Markdown, and as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..knowledge.entries import Entry
from ..knowledge.retrieval import Index
from ..logs.log import Log
from .asking import answered
from .describing import described
from .finding import Finding, Fragment, plain
from .labels import MEANING

if TYPE_CHECKING:
    from ..models.model import Model


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a job's I/O: findings, most important first, with their evidence, and the fragments that they rest on."""

    log: Log
    findings: tuple[Finding, ...]
    fragments: Mapping[str, Fragment]
    entries: Sequence[Entry]
    #: Findings that were put aside because others explain them or a counter speaks against them.
    aside: tuple[Finding, ...] = ()
    unsupported: int = 0
    tokens: int = 0
    notes: tuple[str, ...] = ()
    index: Index | None = field(default=None, repr=False)
    model: Model | None = field(default=None, repr=False)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the findings, most important first."""
        return tuple(one.label for one in self.findings)

    def summary(self) -> str:
        """One or two sentences that a person would say."""
        if not self.findings:
            return f"Nothing in {self.log.name} points at a fault of its I/O."
        first = self.findings[0]
        said = f"{first.text} {first.cause}".strip()
        others = [MEANING[one.label] for one in self.findings[1:4]]
        return said + (f" Besides, {', and '.join(others)}." if others else "")

    def markdown(self) -> str:
        """The report: what is wrong, on which numbers that rests, where, and what to do."""
        lines = [f"# I/O of {_plain(self.log.name)}", "", *(described(self.fragments["JOB.context"])), ""]
        if not self.findings:
            lines += ["Nothing points at a fault of its I/O.", ""]
        known = {one.id: one for one in self.entries}
        for number, one in enumerate(self.findings, 1):
            lines += [f"## {number}. {one.label}: {MEANING[one.label]}", "", f"{one.text} {one.cause}".strip(), ""]
            lines.append(f"Severity {one.severity:.0%} of the I/O time, confidence {one.confidence:.0%}.")
            for piece in one.evidence:
                limit = "" if piece.threshold is None else f" (threshold {piece.threshold:g})"
                lines.append(f"- `{piece.fragment}:{piece.field}` is {piece.value:,.6g}{limit}")
            if one.explains:
                lines.append(f"- explains {', '.join(one.explains)}")
            if one.files:
                lines.append(f"- files: {', '.join(f'`{_plain(name)}`' for name in one.files)}")
            if one.ranks:
                lines.append(f"- ranks: {', '.join(map(str, one.ranks))}")
            if one.targets:
                lines.append(f"- storage targets: {', '.join(map(str, one.targets))}")
            lines.append("")
            for name in one.knowledge:
                entry = known[name]
                source = f" ({', '.join(entry.references)})" if entry.references else ""
                lines.append(f"- **{entry.title}** [{entry.id}]: {entry.text}{source}")
            lines.append("")
        if self.aside:
            lines += ["## Put aside", "", *(f"- {one.label}: {one.demoted}" for one in self.aside), ""]
        lines += [f"Note: {note}" for note in self.notes]
        return "\n".join(lines).rstrip() + "\n"

    def json(self) -> dict[str, Any]:
        """The report as plain data, with the entries that the findings cite."""
        cited = {name for one in self.findings for name in one.knowledge}
        return {
            "log": self.log.name, "findings": [one.as_json() for one in self.findings],
            "knowledge": [
                {"id": one.id, "title": one.title, "text": one.text, "references": list(one.references)}
                for one in self.entries if one.id in cited
            ],
            "aside": [{"label": one.label, "why": one.demoted} for one in self.aside],
            "fragments": [one.as_json() for one in self.fragments.values()], "unsupported": self.unsupported, "notes": list(self.notes),
        }  # fmt: skip

    def ask(self, question: str) -> str:
        """An answer from the fragments and the knowledge, with the ids that it quotes; a model, if one was given, puts it into words."""
        assert self.index is not None
        quoted = answered(question[:500], self.fragments, self.findings, self.entries, self.index)
        if self.model is None:
            return quoted
        from ..models.asking import grounded

        return grounded(self.model, question[:500], quoted)


def _plain(name: str) -> str:
    """A file's name without what Markdown or a terminal would take for more than text."""
    return plain(name).translate({ord("`"): "?", ord("\\"): "?"})
