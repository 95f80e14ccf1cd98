"""Merges small diagnoses pairwise, as a binary tree over the fragments, so that nothing is lost on the way up.

A node holds every finding of its leaves, one per label. What findings explain is decided at each node anew from all that it holds, so that
the root says the same in whatever order the leaves stood.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .explaining import explained
from .finding import Finding, Fragment


@dataclass(frozen=True)
class Node:
    """What is known of some fragments: the fragments, and the findings by their labels as they were made."""

    fragments: Mapping[str, Fragment]
    found: Mapping[str, Finding]

    @classmethod
    def leaf(cls, fragment: Fragment, findings: Sequence[Finding]) -> Node:
        """The diagnosis of one fragment."""
        return cls({fragment.key: fragment}, _by_label(findings))

    def merged(self, other: Node) -> Node:
        """This and another diagnosis as one."""
        return Node({**self.fragments, **other.fragments}, _by_label([*self.found.values(), *other.found.values()]))

    def explained(self) -> dict[str, Finding]:
        """The findings after the rules about causes and effects."""
        return explained(self.found, self.fragments)


def _by_label(findings: Sequence[Finding]) -> dict[str, Finding]:
    found: dict[str, Finding] = {}
    for one in sorted(findings, key=lambda one: (one.label, -one.severity, one.text)):
        found[one.label] = found[one.label].united(one) if one.label in found else one
    return found


def tree(leaves: Sequence[Node], merge: Callable[[Node, Node], Node] | None = None) -> tuple[Node, int]:
    """(the root, how many levels it took) of merging neighbours until one is left."""
    nodes, levels = list(leaves) or [Node({}, {})], 0
    join = merge or Node.merged
    while len(nodes) > 1:
        pairs = [join(nodes[i], nodes[i + 1]) for i in range(0, len(nodes) - 1, 2)]
        nodes = pairs + ([nodes[-1]] if len(nodes) % 2 else [])
        levels += 1
    return nodes[0], levels
