"""Drafts for speculative decoding from what siblings said, because all responses to a prompt share one structure of their substrings.

The longest suffix of a request's tokens (at most `max_suffix`) that occurs in its group with something after it is looked up; the draft is
what most often came next, token by token, or the k most frequent first tokens and what follows each. The model verifies drafts, so output
does not change. Seer (arXiv 2511.14617, 2025), adaptive grouped speculative decoding.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

from . import suffix_automaton as sa

#: The most tokens of a draft, and the most paths.
MOST, MOST_PATHS = 64, 64


class GroupDraft:
    """Token streams of groups of requests, and drafts from them."""

    def __init__(self, max_suffix: int = 24) -> None:
        if not 1 <= max_suffix <= 1024:
            raise InputError(f"max_suffix: found {max_suffix}; expected 1 to 1024")
        self.max_suffix = max_suffix
        self._depth = max_suffix + MOST + 1
        self._tokens = 0
        self._root: dict[Hashable, int] = {}
        self._last: dict[tuple[Hashable, Hashable], int] = {}
        self._out = np.empty(MOST, np.int32)
        self._a = sa.Automaton(
            np.empty((64, 6), np.int32), np.empty((64, 4), np.int32), np.full(256, sa.NONE, np.int32), np.zeros(2, np.int64)
        )

    def __len__(self) -> int:
        """The number of tokens in all streams."""
        return self._tokens

    def add(self, group: Hashable, request: Hashable, tokens: Sequence[int] | npt.NDArray[np.int32]) -> None:
        """Appends tokens to a request's stream."""
        new = _checked(tokens)
        self._room(len(new))
        if group not in self._root:
            self._root[group] = int(sa.root(self._a))
        last = self._last.get((group, request), self._root[group])
        self._last[(group, request)] = int(sa.append(self._a, last, new, self._depth))
        self._tokens += len(new)

    def propose(self, group: Hashable, context: Sequence[int] | npt.NDArray[np.int32], n: int, paths: int = 1) -> list[list[int]]:
        """Up to `paths` drafts of up to `n` tokens after the last `max_suffix` tokens of `context`; none if nothing like it was said."""
        if not 1 <= n <= MOST or not 1 <= paths <= MOST_PATHS:
            raise InputError(f"n, paths: found {n}, {paths}; expected 1 to {MOST} tokens and 1 to {MOST_PATHS} paths")
        start = self._root.get(group)
        if start is None:
            return []
        a = self._a
        state = sa.match(a, start, _checked(context[-self.max_suffix :]))
        if state == start:
            return []
        found = []
        for skip in range(paths):
            made = sa.walk(a, state, skip, self._out[:n])
            if not made:
                break
            found.append(self._out[:made].tolist())
        return found

    def count(self, group: Hashable, tokens: Sequence[int]) -> int:
        """How often `tokens` (at most `max_suffix` and a draft) occur in the group's streams."""
        if len(tokens) >= self._depth:
            raise InputError(f"found {len(tokens)} tokens; expected fewer than {self._depth}")
        v = self._root.get(group)
        for token in _checked(tokens):
            e = sa.NONE if v is None else _edge(self._a, v, int(token))
            if e == sa.NONE:
                return 0
            v = int(self._a.edge[e, sa.TO])
        return 0 if v is None else int(self._a.state[v, sa.COUNT])

    def proposer(self, group: Hashable, n: int = 8) -> Proposer:
        """A proposer for one group, with the interface of the n-gram proposers of engines."""
        return Proposer(self, group, n)

    def replay(self, group: Hashable, request: Hashable, tokens: npt.NDArray[np.int32], draft: int, every: int = 64) -> tuple[int, int]:
        """The (tokens, iterations) of a `request` that says `tokens` with drafts of `draft`; an iteration keeps right ones and one more.

        Its own tokens join the structure every `every` tokens.
        """
        at = added = steps = 0
        said = tokens.tolist()
        while at < len(said):
            if at - added >= every:
                self.add(group, request, tokens[added:at])
                added = at
            drafts = self.propose(group, tokens[max(0, at - self.max_suffix) : at], draft) if at and draft else []
            right = 0
            if drafts:
                for guess, true in zip(drafts[0], said[at:], strict=False):
                    if guess != true:
                        break
                    right += 1
            at += min(right + 1, len(said) - at)
            steps += 1
        self.add(group, request, tokens[added:])
        return len(said), steps

    def _room(self, new: int) -> None:
        """Makes room before it is needed: n tokens make at most 2n states and 3n edges, and each group has one root."""
        a, total = self._a, self._tokens + new
        states, edges = 2 * total + len(self._root) + 8, 3 * total + 8
        if states <= len(a.state) and edges <= len(a.edge):
            return
        if edges >= 2**31:
            raise InputError("more than 700 million tokens; expected fewer")
        grown = sa.Automaton(
            np.empty((max(states, 2 * len(a.state)), 6), np.int32), np.empty((max(edges, 2 * len(a.edge)), 4), np.int32),
            np.empty(1 << (2 * max(edges, 2 * len(a.edge)) - 1).bit_length(), np.int32), a.used,
        )  # fmt: skip
        grown.state[: a.used[0]], grown.edge[: a.used[1]] = a.state[: a.used[0]], a.edge[: a.used[1]]
        sa.rehash(grown)
        self._a = grown


class Proposer:
    """Proposes draft ids from the ids of the context, for one group."""

    def __init__(self, drafts: GroupDraft, group: Hashable, n: int) -> None:
        self.drafts, self.group, self.n = drafts, group, n

    def propose(self, context_token_ids: Sequence[int] | npt.NDArray[np.int32]) -> npt.NDArray[np.int32] | None:
        """The tokens that probably come next, or None."""
        found = self.drafts.propose(self.group, context_token_ids, self.n)
        return np.array(found[0], np.int32) if found else None


def _edge(a: sa.Automaton, state: int, token: int) -> int:
    e = int(a.state[state, sa.EDGES])
    while e != sa.NONE and a.edge[e, sa.TOKEN] != token:
        e = int(a.edge[e, sa.NEXT])
    return e


def _checked(tokens: Sequence[int] | npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    if isinstance(tokens, np.ndarray) and tokens.dtype == np.int32 and tokens.flags.c_contiguous:
        return tokens
    found = np.asarray(tokens)
    if found.size and (found.dtype.kind not in "iu" or found.min() < -(2**31) or found.max() >= 2**31):
        raise InputError("tokens: expected whole numbers of 32 bits")
    return np.ascontiguousarray(found, np.int32)
