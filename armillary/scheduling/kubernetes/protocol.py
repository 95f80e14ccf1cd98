"""The scheduler extender's protocol (k8s.io/kube-scheduler/extender/v1), without the network: documents in, documents out.

The scheduler sends `ExtenderArgs`: a pod, with nodes as objects, or as names if it was told that the extender keeps nodes itself
(`nodeCacheCapable`). `/filter` answers an `ExtenderFilterResult`, `/prioritize` a `HostPriorityList`. Today's schedulers write the keys as
`Pod` and `NodeNames`, older ones as `pod` and `nodenames`. Keys are read in any case, and the answer has the case that was asked in.

A node that does not suit is listed in `FailedNodes`. `Error` says that the extender itself failed: an `ignorable` extender is then skipped
and the pod is bound without it, so a refusal never goes there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from armillary.errors import InputError, one_line

from .objects import Node, Pod, head

#: The highest score that a scheduler takes from an extender.
MOST_SCORE = 10


@dataclass(frozen=True)
class Judged:
    """What a technique says about a pod: which nodes it refuses and why, and how much it likes the others (any scale, higher is better).

    Nodes in `hopeless` are refused too, and evicting other pods would not help there. A node without a score gets the lowest.
    """

    refused: Mapping[str, str] = field(default_factory=dict)
    hopeless: Mapping[str, str] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)


Judge = Callable[[Pod, Sequence[Node]], Judged]


class TooMany(InputError):
    """More nodes than are taken."""


class Extender:
    """Answers the scheduler's questions with a technique's function from a pod and nodes to feasibility and scores.

    `remember` gives it the nodes that a scheduler with `nodeCacheCapable` only names; nodes that come as objects are remembered too.
    `metrics` gives what the technique knows in the text format of Prometheus, for the server's /metrics.
    """

    def __init__(
        self, judge: Judge, *, nodes: Iterable[Mapping[str, Any]] = (), most_nodes: int = 5000, metrics: Callable[[], str] | None = None
    ) -> None:
        self.judge, self.most_nodes, self.metrics = judge, most_nodes, metrics
        self._known: dict[str, Node] = {}
        self.remember(nodes)

    def remember(self, nodes: Iterable[Mapping[str, Any]]) -> None:
        """Keeps these Node objects (JSON), which replace those of the same names."""
        self._keep([Node.of(node) for node in nodes])

    def forget(self, name: str) -> None:
        """Drops a node that has left the cluster."""
        self._known.pop(name, None)

    def filter(self, document: object) -> dict[str, Any]:
        """An ExtenderFilterResult for ExtenderArgs; raises InputError for a document that is none.

        Nodes that suit come back as they were sent.
        """
        asked = _Asked.of(document, self.most_nodes)
        nodes = self._nodes(asked)
        try:
            judged = self.judge(asked.pod, nodes)
            bad = {name: one_line(str(why)) for name, why in {**judged.refused, **judged.hopeless}.items()}
        except Exception as problem:
            return asked.answer(nodes, set(), {}, {}, one_line(f"{type(problem).__name__}: {problem}"))
        here = {node.name for node in nodes}
        hopeless = {name: bad[name] for name in judged.hopeless if name in here}
        refused = {name: why for name, why in bad.items() if name in here and name not in hopeless}
        return asked.answer(nodes, here - bad.keys(), refused, hopeless, "")

    def prioritize(self, document: object) -> list[dict[str, Any]]:
        """A HostPriorityList for ExtenderArgs. A list has no place for an error, so what the technique raises is raised."""
        asked = _Asked.of(document, self.most_nodes)
        nodes = self._nodes(asked)
        scores = self.judge(asked.pod, nodes).scores
        whole = whole_scores([float(scores.get(node.name, -math.inf)) for node in nodes])
        host, score = ("host", "score") if asked.lower else ("Host", "Score")
        return [{host: node.name, score: value} for node, value in zip(nodes, whole)]

    def _nodes(self, asked: _Asked) -> list[Node]:
        if asked.items is not None:
            sent = [self._known_or_new(item, i) for i, item in enumerate(asked.items)]
            self._keep(sent)
            if asked.names is None:
                return sent
        return [self._known.get(name) or Node(name) for name in asked.names or ()]

    def _known_or_new(self, item: object, i: int) -> Node:
        """A node that has not changed since it was seen last, by its version, is not read again."""
        where = f"Nodes.items[{i}]"
        name, version = head(item, where)
        known = self._known.get(name)
        return known if version and known is not None and version == known.version else Node.of(item, where)

    def _keep(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self._known.pop(node.name, None)
            self._known[node.name] = node
        while len(self._known) > self.most_nodes:  # the one that was not seen for longest
            del self._known[next(iter(self._known))]


@dataclass(frozen=True)
class _Asked:
    """ExtenderArgs, and the case that their keys are in."""

    pod: Pod
    items: list[Any] | None
    names: list[str] | None
    lower: bool
    #: The NodeList around the items, which goes back with them.
    around: Mapping[str, Any]

    @staticmethod
    def of(document: object, most: int) -> _Asked:
        if not isinstance(document, dict):
            raise InputError(f"found {one_line(repr(document), 40)}; expected an object with Pod and Nodes or NodeNames")
        written = {key.lower(): key for key in document}
        values = {low: document[key] for low, key in written.items()}
        if values.get("pod") is None or (values.get("nodes") is None and values.get("nodenames") is None):
            found = one_line(", ".join(document) or "no keys", 60)
            raise InputError(f"found {found}; expected Pod and Nodes or NodeNames")
        around = values.get("nodes")
        if around is not None and not (isinstance(around, dict) and isinstance(around.get("items") or [], list)):
            raise InputError(f"found {one_line(repr(around), 40)}; expected a NodeList", where="Nodes")
        names = values.get("nodenames")
        if names is not None and not (isinstance(names, list) and all(isinstance(name, str) and name for name in names)):
            raise InputError(f"found {one_line(repr(names), 40)}; expected a list of names", where="NodeNames")
        items = None if around is None else around.get("items") or []
        many = max(len(items or ()), len(names or ()))
        if many > most:
            raise TooMany(f"found {many:,} nodes; expected at most {most:,}")
        return _Asked(Pod.of(values["pod"]), items, names, written["pod"].islower(), around or {})

    def answer(
        self, nodes: Sequence[Node], kept: Set[str], refused: Mapping[str, str], hopeless: Mapping[str, str], error: str
    ) -> dict[str, Any]:
        """An ExtenderFilterResult that gives the nodes with names in `kept` in the form in which they were asked about."""
        found: dict[str, Any] = {}
        if self.items is not None:
            found["Nodes"] = {**self.around, "items": [item for item in self.items if head(item)[0] in kept]}
        if self.names is not None:
            found["NodeNames"] = [node.name for node in nodes if node.name in kept]
        found |= {"FailedNodes": dict(refused), "FailedAndUnresolvableNodes": dict(hopeless), "Error": error}
        # The tags that the API had when it was written in lower case; nodenames is one word there.
        tag = {"Nodes": "nodes", "NodeNames": "nodenames", "FailedNodes": "failedNodes", "Error": "error"}
        tag["FailedAndUnresolvableNodes"] = "failedAndUnresolvableNodes"
        return {tag[key]: value for key, value in found.items()} if self.lower else found


def whole_scores(scores: Sequence[float]) -> list[int]:
    """Scores as whole numbers from 0 to 10: scaled and rounded, or by rank where rounding would make different scores equal.

    Go takes 7.5 for no number of a HostPriority. NaN and −∞ count as the lowest.
    """
    found = [score if not math.isnan(score) else -math.inf for score in scores]
    finite = [score for score in found if math.isfinite(score)]
    levels = sorted(set(found))
    if len(levels) < 2:
        return [0] * len(found)
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    if len(finite) == len(found) and math.isfinite(high - low):
        scaled = [round(MOST_SCORE * ((score - low) / (high - low))) for score in found]
        if len(set(scaled)) == len(levels):
            return scaled
    rank = {score: place for place, score in enumerate(levels)}
    return [(MOST_SCORE * rank[score] + (len(levels) - 1) // 2) // (len(levels) - 1) for score in found]
