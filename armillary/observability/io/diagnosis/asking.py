"""Answers questions about a diagnosis by quoting the fragments and the entries of the knowledge that fit them best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..knowledge.entries import Entry
from ..knowledge.retrieval import Index, fitting
from .describing import described
from .finding import Finding, Fragment

FRAGMENTS, ENTRIES = 3, 3


def answered(question: str, fragments: Mapping[str, Fragment], findings: Sequence[Finding], entries: Sequence[Entry], index: Index) -> str:
    """The findings, sentences and entries that a question is about, with the fragments and entries that they come from."""
    documents = {key: " ".join(described(one)) + f" {one.category} {one.module}" for key, one in fragments.items()}
    told = {f"finding {one.label}": f"{one.label.replace('-', ' ')} {one.text} {one.cause}" for one in findings}
    best = [name for name, _ in Index({**documents, **told}).best(question, FRAGMENTS + len(told))]
    said = [
        f"{one.text} {one.cause}".strip() + f" [{one.label}: {', '.join(f'{e.fragment}:{e.field}' for e in one.evidence)}]"
        for one in findings
        if f"finding {one.label}" in best
    ]
    said += [f"{' '.join(described(fragments[key]))} [{key}]" for key in [name for name in best if name in fragments][:FRAGMENTS]]
    found = fitting(entries, index, f"{question} {' '.join(said[:2])}", fragments)[:ENTRIES]
    said += [f"{entry.title}: {entry.text} [{entry.id}]" for entry in found]
    return "\n".join(f"- {line}" for line in said) if said else "Nothing in this log or in the knowledge fits the question."
