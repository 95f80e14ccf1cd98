"""What a diagnosis says: findings, each with the numbers that it rests on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Value = float | int | str
#: Bytes of a fragment as JSON.
MOST_BYTES = 1024


def plain(text: str, most: int = 1_000) -> str:
    """A text out of a log without what a terminal would take for more than text, cut after `most` characters."""
    return "".join(c if c.isprintable() else "?" for c in text[:most])


@dataclass(frozen=True)
class Fragment:
    """One module's figures on one subject, small enough to be read at once.

    `fields` are the figures, `top` the five files (or targets, or ranks) that count most, `records` the numbers of their records.
    """

    module: str
    category: str
    fields: Mapping[str, Value]
    top: tuple[Mapping[str, Value], ...] = ()
    records: tuple[int, ...] = ()

    @property
    def key(self) -> str:
        """The name by which evidence refers to it, such as `POSIX.sizes`."""
        return f"{self.module}.{self.category}"

    def number(self, name: str) -> float:
        """A field as a number; 0 where it is missing or a word."""
        value = self.fields.get(name, 0)
        return float(value) if isinstance(value, int | float) else 0.0

    def as_json(self) -> dict[str, Any]:
        """The fragment as plain data of at most a KiB: of the five files, as many as there is room for, the most important first."""
        for kept in range(max(len(self.top), len(self.records)), -1, -1):
            top, records = [dict(one) for one in self.top[:kept]], list(self.records[:kept])
            made = {"id": self.key, "fields": dict(self.fields), "top": top, "records": records}
            if len(as_text(made)) <= MOST_BYTES:
                break
        return made


def as_text(value: Any) -> bytes:
    """Plain data as JSON in UTF-8, without blanks that only people need."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Evidence:
    """One number of a log: the fragment's field that holds it, and the threshold that it passed, if there is one."""

    fragment: str
    field: str
    value: float
    threshold: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The evidence as plain data."""
        found: dict[str, Any] = {"field": f"{self.fragment}:{self.field}", "value": self.value}
        return found if self.threshold is None else {**found, "threshold": self.threshold}


@dataclass(frozen=True)
class Finding:
    """One statement: what is wrong, how much of the I/O time it touches (severity), how sure that is, and where."""

    label: str
    severity: float
    confidence: float
    evidence: tuple[Evidence, ...]
    text: str = ""
    files: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    targets: tuple[int, ...] = ()
    #: What lies behind it, in words, where a rule could tell.
    cause: str = ""
    #: Labels that this finding explains, and that are therefore not findings of their own.
    explains: tuple[str, ...] = ()
    #: Why it does not count, where another finding or a direct counter speaks against it.
    demoted: str = ""
    #: Entries of the knowledge that belong to it.
    knowledge: tuple[str, ...] = ()

    @property
    def weight(self) -> float:
        """Severity times confidence, by which findings are ranked."""
        return self.severity * self.confidence

    def united(self, other: Finding) -> Finding:
        """This and another finding of the same label as one."""
        first, second = sorted((self, other), key=lambda one: (-one.severity, one.text, one.evidence[0].fragment if one.evidence else ""))
        seen = list(dict.fromkeys([*first.evidence, *second.evidence]))
        return replace(
            first, severity=max(self.severity, other.severity), confidence=1 - (1 - self.confidence) * (1 - other.confidence),
            evidence=tuple(seen), files=_united(first.files, second.files), ranks=_united(first.ranks, second.ranks),
            targets=_united(first.targets, second.targets), cause=first.cause or second.cause,
            knowledge=_united(first.knowledge, second.knowledge),
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """The finding as plain data."""
        return {
            "label": self.label, "severity": round(self.severity, 4), "confidence": round(self.confidence, 4), "text": self.text,
            "cause": self.cause, "explains": list(self.explains), "evidence": [one.as_json() for one in self.evidence],
            "files": list(self.files), "ranks": list(self.ranks), "targets": list(self.targets), "knowledge": list(self.knowledge),
        }  # fmt: skip


def _united(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys([*a, *b]))[:5]


@dataclass(frozen=True)
class Answer:
    """What a technique says of one log: findings, most important first, and what it cost."""

    findings: tuple[Finding, ...]
    #: Statements that were dropped because their number or their source is not in the log.
    unsupported: int = 0
    #: Tokens that a language model was given.
    tokens: int = 0
    notes: tuple[str, ...] = ()
    fragments: Mapping[str, Fragment] = field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the findings, in their order."""
        return tuple(one.label for one in self.findings)
