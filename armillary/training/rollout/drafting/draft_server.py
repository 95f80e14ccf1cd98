"""Drafts among many instances: a server collects what requests say, in batches, and each instance fetches what is new.

Appending every token at once would cost one message per token, and drafts that lag by some hundred tokens are as good. Requests report as
they decode; what a request said becomes visible when `batch` tokens of it have gathered (64 to 512 in the paper), or when it is over. A
client holds its own `GroupDraft` and fetches only what it has not seen. Seer (arXiv 2511.14617, 2025).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from armillary.errors import InputError

from .group_draft import GroupDraft

Delta = tuple[Hashable, tuple[int, ...]]


class DraftServer:
    """A log of batches per group of what all its requests have said."""

    def __init__(self, batch: int = 128) -> None:
        if batch < 1:
            raise InputError(f"batch: found {batch}; expected at least 1 token")
        self.batch = batch
        self._log: dict[Hashable, list[Delta]] = {}
        self._open: dict[tuple[Hashable, Hashable], list[int]] = {}

    def report(self, group: Hashable, request: Hashable, tokens: Sequence[int], *, over: bool = False) -> None:
        """Records that a request has said `tokens` more, and whether it is `over`."""
        gathered = self._open.setdefault((group, request), [])
        gathered.extend(tokens)
        if gathered and (over or len(gathered) >= self.batch):
            self._log.setdefault(group, []).append((request, tuple(gathered)))
            gathered.clear()

    def deltas(self, group: Hashable, since: int = 0) -> list[Delta]:
        """The batches of a group from number `since` on."""
        return self._log.get(group, [])[since:]


class DraftClient:
    """An instance's own drafts, kept up to date from a server."""

    def __init__(self, server: DraftServer, max_suffix: int = 24) -> None:
        self.server, self.drafts = server, GroupDraft(max_suffix)
        self._seen: dict[Hashable, int] = {}

    def fetch(self, group: Hashable) -> int:
        """Fetches what is new in a group; returns the number of tokens."""
        new = self.server.deltas(group, self._seen.get(group, 0))
        for request, tokens in new:
            self.drafts.add(group, request, tokens)
        self._seen[group] = self._seen.get(group, 0) + len(new)
        return sum(len(tokens) for _, tokens in new)

    def propose(self, group: Hashable, context: Sequence[int], n: int, paths: int = 1) -> list[list[int]]:
        """Proposes drafts from what was fetched."""
        return self.drafts.propose(group, context, n, paths)
