"""Reset: a proof spreads as a counter, max − 1 at each meeting, and takes ranks, tokens and memory from everyone."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from armillary.kernels import part

from .agents import RESET, WAITING
from .detect import forget_token


@functools.cache
def resetting(tokens: bool) -> tuple[Any, Any]:
    """(what begins a reset, what spreads it), for agents with or without tokens."""

    @part
    def drop(agents, memory, u):  # type: ignore[no-untyped-def]
        a = agents[u]
        a.rank, a.last, a.carried, a.nonce = 0, 0, 0, 0
        if tokens:
            forget_token(agents, u)
            memory[u, :] = np.uint32(0)

    @part
    def begin(agents, memory, u, c):  # type: ignore[no-untyped-def]
        agents[u].mode = RESET
        agents[u].reset = c.reset
        drop(agents, memory, u)

    @part
    def spread(agents, memory, u, v, c):  # type: ignore[no-untyped-def]
        """Both count one below the larger counter; who comes to 0 waits for a rank."""
        left = 0
        for w in (u, v):
            if agents[w].mode == RESET:
                left = max(left, agents[w].reset)
        for w in (u, v):
            if left > 1:
                if agents[w].mode != RESET:
                    agents[w].mode = RESET
                    drop(agents, memory, w)
                agents[w].reset = left - 1
            elif agents[w].mode == RESET:
                agents[w].mode = WAITING
                agents[w].reset = 0
                drop(agents, memory, w)

    return begin, spread
