"""Tokens: bytes, or byte pairs that are merged again and again, the most frequent first.

Text is first divided into words (a run of letters, digits or other marks with the space before it, or a run of white space), and no
token crosses a word. Training merges the most frequent pair of neighbours in all words, and the smaller pair if two are as frequent.

A new algorithm for data compression, 1994; Neural Machine Translation of Rare Words with Subword Units, arXiv 1508.07909.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

BYTES = 256
MOST_MERGES = 4096
#: Bytes of text from which merges are learned.
TRAINED_ON = 1_000_000
_WORD = re.compile(rb" ?[A-Za-z_\x80-\xff]+| ?[0-9]{1,3}| ?[^\sA-Za-z_0-9\x80-\xff]+|\s+")

Pair = tuple[int, int]


@dataclass(frozen=True)
class Vocabulary:
    """256 bytes and a token for each merge, in the order in which they were learned."""

    merges: tuple[Pair, ...] = ()
    _ranks: dict[Pair, int] = field(init=False, repr=False, compare=False)
    _known: dict[bytes, tuple[int, ...]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ranks", {pair: BYTES + i for i, pair in enumerate(self.merges)})

    @property
    def size(self) -> int:
        """The number of tokens."""
        return BYTES + len(self.merges)

    def encode(self, text: bytes) -> npt.NDArray[np.int16]:
        """The tokens of UTF-8 text."""
        if not self.merges:
            return np.frombuffer(text, np.uint8).astype(np.int16)
        found: list[int] = []
        for word in _WORD.findall(text):
            tokens = self._known.get(word)
            if tokens is None:
                tokens = self._known[word] = self._merged(word)
            found.extend(tokens)
        return np.array(found, np.int16)

    def _merged(self, word: bytes) -> tuple[int, ...]:
        tokens = list(word)
        while len(tokens) > 1:
            best = min(itertools.pairwise(tokens), key=lambda pair: self._ranks.get(pair, MOST_MERGES + BYTES))
            if best not in self._ranks:
                break
            tokens = replaced(tokens, best, self._ranks[best])
        return tuple(tokens)

    def decode(self, tokens: Iterable[int]) -> bytes:
        """The bytes of tokens."""
        parts = [bytes([i]) for i in range(BYTES)]
        for a, b in self.merges:
            parts.append(parts[a] + parts[b])
        return b"".join(parts[token] for token in tokens)


def replaced(tokens: Sequence[int], pair: Pair, by: int) -> list[int]:
    """The tokens with every occurrence of the pair, from the left, replaced."""
    found, i = [], 0
    while i < len(tokens):
        if i + 1 < len(tokens) and (tokens[i], tokens[i + 1]) == pair:
            found.append(by)
            i += 2
        else:
            found.append(tokens[i])
            i += 1
    return found


def learned(text: bytes, merges: int) -> Vocabulary:
    """A vocabulary of at most `merges` byte pairs that stand twice or more in the first megabyte of the text."""
    if not 0 <= merges <= MOST_MERGES:
        raise InputError(f"found {merges} merges; expected 0 to {MOST_MERGES:,}", where="vocabulary")
    counts = Counter(_WORD.findall(text[:TRAINED_ON]))
    words, frequency = [list(word) for word in counts], list(counts.values())
    pairs: Counter[Pair] = Counter()
    places: dict[Pair, set[int]] = {}
    for i, tokens in enumerate(words):
        for pair in itertools.pairwise(tokens):
            pairs[pair] += frequency[i]
            places.setdefault(pair, set()).add(i)
    made: list[Pair] = []
    heap = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(heap)
    while heap and len(made) < merges:
        count, best = heapq.heappop(heap)
        # A count that has changed since was pushed again.
        if -count != pairs[best] or -count < 2:
            continue
        changed = set()
        for i in places.pop(best):
            old, new = words[i], replaced(words[i], best, BYTES + len(made))
            for sign, tokens in ((-1, old), (1, new)):
                for pair in itertools.pairwise(tokens):
                    pairs[pair] += sign * frequency[i]
                    changed.add(pair)
                    if sign > 0:
                        places.setdefault(pair, set()).add(i)
            words[i] = new
        for pair in changed:
            heapq.heappush(heap, (-pairs[pair], pair))
        made.append(best)
    return Vocabulary(tuple(made))
