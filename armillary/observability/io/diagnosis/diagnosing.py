"""From a log to a diagnosis: fragments, descriptions, knowledge, one judgement per fragment, and a tree that merges the judgements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..knowledge.entries import Entry, built_in, read_knowledge
from ..knowledge.retrieval import Index, fitting, index_of
from ..logs.log import Log
from .describing import described
from .finding import Finding, Fragment
from .fragments import fragments as fragments_of
from .judging import judged
from .labels import Thresholds
from .merging import Node, tree
from .report import Diagnosis

if TYPE_CHECKING:
    from ..models.model import Model

#: Entries that a finding recommends.
ADVICE = 3


@dataclass(frozen=True)
class Parts:
    """Which parts of the method take part; all of them unless an ablation switches one off."""

    merge: bool = True
    explains: bool = True
    filter: bool = True
    #: A model judges all fragments at once; rules read the fields of one fragment each, so nothing changes for them.
    one_fragment: bool = False
    #: Findings that touch a smaller share of the I/O time are not reported.
    least_severity: float = 0.05


def diagnose(
    log: Log, *, model: Model | None = None, thresholds: Thresholds | None = None, knowledge: str | Path | None = None,
    parts: Parts | None = None, most_s: float = 900.0,
) -> Diagnosis:  # fmt: skip
    """What is wrong with a job's I/O, with the numbers of the log behind every statement.

    Rules judge each fragment, and nothing is sent anywhere. With a `model`, it judges instead, one fragment at a time, and what it says
    without a number of the log behind it is dropped. A model that fails twice in a row, or whose answers take more than `most_s` seconds in
    all, is asked no more, and the rules judge what is left. `knowledge` is a TOML file that replaces the built-in entries.
    """
    limits, which = thresholds or Thresholds(), parts or Parts()
    entries = built_in() if knowledge is None else read_knowledge(Path(knowledge))
    index = _index(entries)
    given = model
    if model is not None:
        from ..models.patience import Patience

        model = Patience(model, most_s)
    fragments = fragments_of(log)
    context = fragments["JOB.context"]
    notes: list[str] = []
    unsupported = tokens = 0
    leaves = []
    asked = {"LOG.all": _whole(fragments)} if which.one_fragment and model is not None else fragments
    for key, fragment in asked.items():
        found = judged(fragment, context, limits)
        if model is not None:
            from ..models.judging import confirmed, judged_by_model

            near = _nearest(fragment, fragments, entries, index)
            kept = [one for one in near if not which.filter or one.when.holds(fragments)]
            asked_about, used = confirmed(model, fragment, [one for one in near if one not in kept])
            kept += asked_about
            answer = judged_by_model(model, fragment, context, kept)
            tokens += answer.tokens + used
            unsupported += answer.unsupported
            if answer.note:
                notes.append(answer.note)
            found = found if answer.findings is None else list(answer.findings)
        leaves.append(Node.leaf(fragments.get(key, fragment), [_advised(one, fragments, entries, index, which.filter) for one in found]))
    if which.merge and model is not None:
        from ..models.merging import MergedByModel

        joint = MergedByModel(model)
        root, _ = tree(leaves, joint.merge)
        tokens, unsupported = tokens + joint.tokens, unsupported + joint.unsupported
        notes += joint.notes
        root = joint.applied()(root) if which.explains else root
        everything = root.explained() if which.explains else dict(root.found)
    elif which.merge:
        root, _ = tree(leaves)
        everything = root.explained() if which.explains else dict(root.found)
    else:
        everything = _strongest(leaves)
    aside = tuple(one for one in everything.values() if one.demoted)
    said = [one for one in everything.values() if not one.demoted and one.severity >= which.least_severity]
    ranked = tuple(sorted(said, key=lambda one: (-one.weight, one.label)))
    return Diagnosis(log, ranked, fragments, entries, aside, unsupported, tokens, tuple(dict.fromkeys(notes)), index, given)


def _whole(fragments: Mapping[str, Fragment]) -> Fragment:
    from .fragments import joined

    return joined(fragments)["LOG.all"]


def _strongest(leaves: Sequence[Node]) -> dict[str, Finding]:
    """The first finding of each label, as if nobody had put the small diagnoses together."""
    found: dict[str, Finding] = {}
    for leaf in leaves:
        for label, one in leaf.found.items():
            found.setdefault(label, one)
    return found


_INDICES: dict[tuple[Entry, ...], Index] = {}


def _index(entries: tuple[Entry, ...]) -> Index:
    if entries not in _INDICES:
        _INDICES.clear()
        _INDICES[entries] = index_of(entries)
    return _INDICES[entries]


def _nearest(fragment: Fragment, fragments: Mapping[str, Fragment], entries: Sequence[Entry], index: Index) -> list[Entry]:
    """The entries nearest to a fragment's description, whether or not their conditions hold."""
    return fitting(entries, index, " ".join(described(fragment)), fragments, check=False)


def _advised(found: Finding, fragments: Mapping[str, Fragment], entries: Sequence[Entry], index: Index, check: bool) -> Finding:
    """The finding with the entries that say what to do: those of its label whose condition holds, the nearest to its text first."""
    if found.knowledge:
        return found
    query = f"{found.label.replace('-', ' ')} {found.text} {found.cause}"
    order = {name: place for place, (name, _) in enumerate(index.best(query, len(entries)))}
    mine = [one for one in entries if found.label in one.tags and (not check or one.when.holds(fragments))]
    mine.sort(key=lambda one: (order.get(one.id, len(order)), one.id))
    return replace(found, knowledge=tuple(one.id for one in mine[:ADVICE]))
