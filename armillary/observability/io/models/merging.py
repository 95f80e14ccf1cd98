"""Lets a language model say which findings of two small diagnoses explain each other; it is shown the two, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..diagnosis.merging import Node
from .judging import parsed
from .model import Model, ModelError


@dataclass
class MergedByModel:
    """Merges nodes, and keeps what the model said of effects: pairs of labels that both were there."""

    model: Model
    tokens: int = 0
    unsupported: int = 0
    effects: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def merge(self, a: Node, b: Node) -> Node:
        """Two diagnoses as one; every finding of both is kept."""
        both = a.merged(b)
        if a.found and b.found:
            self._ask(a, b)
        return both

    def _ask(self, a: Node, b: Node) -> None:
        first, second = (json.dumps([one.as_json() for one in node.found.values()]) for node in (a, b))
        asked = (
            f"Two diagnoses of one job's I/O:\nA: {first}\nB: {second}\n"
            "Answer with a JSON list only, of {effect, cause} with labels from A and B, "
            "where the cause explains the effect. Answer [] if none does.\n"
        )
        try:
            said = self.model.complete(asked)
        except ModelError as error:
            self.notes.append(f"The rules merged instead: {error}.")
            return
        self.tokens += said.tokens
        known = {*a.found, *b.found}
        for one in parsed(said.text) or []:
            effect, cause = (one.get("effect"), one.get("cause")) if isinstance(one, dict) else (None, None)
            if effect in known and cause in known and effect != cause and self.effects.get(str(cause)) != effect:
                self.effects[str(effect)] = str(cause)
            else:
                self.unsupported += 1

    def applied(self) -> Callable[[Node], Node]:
        """Marks the effects in a node."""

        def mark(node: Node) -> Node:
            found = dict(node.found)
            for effect, cause in self.effects.items():
                if effect in found and cause in found and cause not in self.effects:
                    found[effect] = replace(found[effect], demoted=f"an effect of {cause}")
                    found[cause] = replace(found[cause], explains=tuple(dict.fromkeys([*found[cause].explains, effect])))
            return Node(node.fragments, found)

        return mark
