"""A response in pieces, each of which is an ordinary request with a smaller `max_tokens` and may run on another instance.

Seer (arXiv 2511.14617, 2025), divided rollout.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from armillary.errors import InputError


@dataclass
class DividedRequest:
    """One request of at most `max_tokens`, cut into chunks of `chunk` tokens."""

    request: Hashable
    group: Hashable
    prompt_tokens: int
    max_tokens: int
    chunk: int = 8192
    generated: int = field(default=0, init=False)
    finished: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.chunk < 1 or self.prompt_tokens < 1 or self.max_tokens < 1:
            raise InputError(
                f"chunk, prompt_tokens, max_tokens: found {self.chunk}, {self.prompt_tokens}, {self.max_tokens}; expected at least 1 each"
            )

    @property
    def next_max_tokens(self) -> int:
        """The `max_tokens` of the next piece, or 0 when the request is over."""
        return 0 if self.finished else min(self.chunk, self.max_tokens - self.generated)

    @property
    def kv_tokens(self) -> int:
        """The most tokens of KV that the next piece needs; a piece that is admitted only where they fit is never preempted."""
        return self.prompt_tokens + self.generated + self.next_max_tokens

    def made(self, tokens: int, *, stopped: bool) -> bool:
        """Records that a piece ended after `tokens`, and whether the model `stopped` there; returns whether the whole request is over."""
        if not 0 <= tokens <= self.next_max_tokens:
            raise InputError(f"tokens: found {tokens}; expected at most {self.next_max_tokens}, what the piece was given")
        self.generated += tokens
        self.finished = stopped or self.generated >= self.max_tokens
        return self.finished
