"""Detect: proves, without error, that two agents hold the target's rank.

An agent of that rank, a *king*, hands out ρ tokens with random signatures and remembers each; a token it meets again gets a new one on both
sides. A second king knows other signatures, so its first meeting with a token that is not its own is a proof, ρ times sooner than the
kings meet. A single king and its tokens always agree, whatever clocks and targets do.
"""

from __future__ import annotations

import numpy as np

from armillary.kernels import loop, part
from armillary.runtime.election.population.randomness import below

from .agents import PATIENCE, RANKED


@part
def watch(agents, memory, u, v, issue, random, c):  # type: ignore[no-untyped-def]
    """King u meets v; returns whether a collision is proved.

    A king remembers the signature plus one, because 0 stands for an index that it has not issued.
    """
    king, holder = agents[u], agents[v]
    if holder.token_rank == 0:
        if issue:
            for i in range(memory.shape[1]):
                if memory[u, i] == 0:
                    sign = below(random, c.rho * c.rho)
                    memory[u, i] = sign + 1
                    holder.token_rank, holder.token_index, holder.token_sign = king.rank, i, sign
                    break
    elif holder.token_rank == king.rank:
        if memory[u, holder.token_index] != holder.token_sign + 1:
            return True
        sign = below(random, c.rho * c.rho)
        memory[u, holder.token_index] = sign + 1
        holder.token_sign = sign
    return False


@part
def take_back(agents, memory, u, v):  # type: ignore[no-untyped-def]
    """In recall, king u takes a token of its own from v; returns whether a collision is proved."""
    king, holder = agents[u], agents[v]
    if holder.token_rank != king.rank:
        return False
    if memory[u, holder.token_index] != holder.token_sign + 1:
        return True
    memory[u, holder.token_index] = 0
    forget_token(agents, v)
    return False


@part
def forget_token(agents, u):  # type: ignore[no-untyped-def]
    """Agent u holds no token."""
    agents[u].token_rank, agents[u].token_index, agents[u].token_sign = 0, 0, 0


@part
def heal(agents, memory, u):  # type: ignore[no-untyped-def]
    """After Detect without a proof, with soft healing: a target of several cycles in a row is freed of all tokens."""
    a = agents[u]
    if a.suspect == 0 or a.suspect != a.former:
        a.streak = 0
    a.former = a.suspect
    if a.suspect != 0:
        a.streak += 1
        if a.streak == PATIENCE:
            a.streak = 0
            if a.token_rank == a.suspect:
                forget_token(agents, u)
            if a.mode == RANKED and a.rank == a.suspect:
                memory[u, :] = np.uint32(0)


@loop
def tokens_agree(agents, memory, constants):  # type: ignore[no-untyped-def]
    """Whether every token agrees with the only agent of its rank, and no two tokens are the same one; ranks are all different.

    A token in the hands of its own king does not count, because nobody meets itself.
    """
    n = len(agents)
    king = np.zeros(n + 1, np.int64)
    for u in range(n):
        king[agents[u].rank] = u
    seen = np.zeros((n, memory.shape[1]), np.bool_)
    for v in range(n):
        if agents[v].token_rank != 0:
            u, i = king[agents[v].token_rank], agents[v].token_index
            if u == v:
                continue
            if memory[u, i] != agents[v].token_sign + 1 or seen[u, i]:
                return False
            seen[u, i] = True
    return True
