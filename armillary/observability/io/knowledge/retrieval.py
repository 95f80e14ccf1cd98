"""Finds the entries that a description is about, by BM25 over their titles, texts and tags.

    score(d, q) = Σ over words of q:  ln(1 + (N − n + 0.5)/(n + 0.5)) · f·(k1 + 1) / (f + k1·(1 − b + b·|d|/mean |d|)),  k1 = 1.2, b = 0.75

f is how often the word stands in d, n in how many of the N documents it stands.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from ..diagnosis.finding import Fragment
from .entries import Entry

K1, B = 1.2, 0.75
BEST = 8
_WORD = re.compile(r"[a-z0-9]+")
_COMMON = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "has", "have", "how", "i",
    "in", "is", "it", "its", "me", "my", "no", "not", "of", "on", "or", "so", "than", "that", "the", "to", "was", "what",
    "which", "why", "with",
})  # fmt: skip


def words(text: str) -> list[str]:
    """The words of a text in lower case, without common ones and without the plural's s."""
    return [word.removesuffix("s") if len(word) > 3 else word for word in _WORD.findall(text.lower()) if word not in _COMMON]


class Index:
    """Documents by their names, made ready to be searched."""

    def __init__(self, documents: Mapping[str, str]) -> None:
        self._counts = {name: Counter(words(text)) for name, text in documents.items()}
        self._lengths = {name: sum(found.values()) for name, found in self._counts.items()}
        self._mean = sum(self._lengths.values()) / max(1, len(self._lengths)) or 1.0
        self._spread = Counter(word for found in self._counts.values() for word in found)

    def best(self, query: str, most: int = BEST) -> list[tuple[str, float]]:
        """(name, score) of the documents that fit a query best; equal scores go by name."""
        scores = []
        for name, found in self._counts.items():
            score = 0.0
            for word in dict.fromkeys(words(query)):
                f, n = found.get(word, 0), self._spread.get(word, 0)
                if f:
                    rare = math.log(1 + (len(self._counts) - n + 0.5) / (n + 0.5))
                    score += rare * f * (K1 + 1) / (f + K1 * (1 - B + B * self._lengths[name] / self._mean))
            if score > 0:
                scores.append((name, score))
        return sorted(scores, key=lambda one: (-one[1], one[0]))[:most]


def index_of(entries: Sequence[Entry]) -> Index:
    """The index over entries."""
    return Index({one.id: f"{one.title} {one.title} {one.text} {' '.join(one.tags).replace('-', ' ')}" for one in entries})


def fitting(entries: Sequence[Entry], index: Index, query: str, fragments: Mapping[str, Fragment], *, check: bool = True) -> list[Entry]:
    """The eight entries nearest to a query, of which `check` keeps those whose condition holds."""
    known = {one.id: one for one in entries}
    found = [known[name] for name, _ in index.best(query)]
    return [one for one in found if not check or one.when.holds(fragments)]
