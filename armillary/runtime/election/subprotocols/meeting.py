"""What two agents do when they meet: the clock first, then what its phase asks for."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from armillary.kernels import part
from armillary.runtime.election.population.randomness import below

from .agents import RANKED, RESET, WAITING
from .clock import behind, hear, tick
from .detect import heal, take_back, watch
from .find_target import begin_group, pass_on, spread_suspicion, suspect
from .ranking import begin_slot, claim, end_slot, halve, spread_slot
from .reset import resetting


@part
def rank_of(agents, u, constants):  # type: ignore[no-untyped-def]
    """The rank of an agent that is not being reset and does not wait."""
    return np.int64(agents[u].rank) if agents[u].mode == RANKED else np.int64(0)


@functools.cache
def meeting(find: bool, tokens: bool, soft: bool) -> Any:
    """The compiled interaction of a protocol with or without FindTarget, tokens and soft healing."""
    begin_reset, spread_reset = resetting(tokens)

    @part
    def enter(agents, memory, u, phase, random, c):  # type: ignore[no-untyped-def]
        """Agent u goes on to another phase."""
        a = agents[u]
        before = a.phase
        if before >= c.serial and (phase < c.serial or (before - c.serial) // 2 != (phase - c.serial) // 2):
            end_slot(agents, u, c)
        # The end of a cycle was passed: whoever still has no rank asks for another reset, and nobody has a rank to spare.
        if before >= c.serial and phase < c.serial:
            if a.mode == WAITING:
                begin_reset(agents, memory, u, c)
            elif a.mode == RANKED:
                a.last = a.rank
        a.phase = phase
        if phase >= c.serial:
            if before < c.serial or (before - c.serial) // 2 != (phase - c.serial) // 2:
                begin_slot(agents, u, random, c)
        elif phase >= c.claim:
            if before < c.claim:
                claim(agents, u, c)
        elif find:
            if phase < c.agree:
                begin_group(agents, u, random, c)
            elif phase < c.detect and before < c.agree:
                a.carried, a.nonce = 0, 0
                if c.guess:
                    a.suspect = 0
                    if a.leads == 1:
                        suspect(agents, u, 1 + below(random, c.n))
            if soft and phase >= c.recall and before < c.recall:
                heal(agents, memory, u)

    @part
    def meet(agents, memory, u, v, random, c):  # type: ignore[no-untyped-def]
        for w in (u, v):
            if agents[w].leads == 1 and tick(agents, w, c):
                enter(agents, memory, w, (agents[w].phase + 1) % c.cycle, random, c)
        hear(agents, u, v, random, c)
        which = behind(agents, u, v, c)
        if which == 1:
            enter(agents, memory, u, agents[v].phase, random, c)
        elif which == 2:
            enter(agents, memory, v, agents[u].phase, random, c)

        if agents[u].mode == RESET or agents[v].mode == RESET:
            spread_reset(agents, memory, u, v, c)
            return
        proved = False
        both = agents[u].mode == RANKED and agents[v].mode == RANKED
        if both and agents[u].rank == agents[v].rank:
            proved = True
        elif (agents[u].mode == RANKED and agents[u].rank == 0) or (agents[v].mode == RANKED and agents[v].rank == 0):
            proved = True  # Only a corrupted agent counts itself as ranked without a rank.
        elif tokens:
            phase = agents[u].phase
            now = phase >= c.detect and phase < c.recall
            back = phase >= c.recall and phase < c.calm
            for king, holder in ((u, v), (v, u)):
                if agents[king].mode == RANKED and not proved:
                    if c.broadcast:
                        proved = watch(agents, memory, king, holder, True, random, c)
                    elif find:  # noqa: SIM102 - without FindTarget there is no `suspect`, and the branch must not be compiled
                        if agents[king].rank == agents[king].suspect:
                            if now:
                                proved = watch(agents, memory, king, holder, True, random, c)
                            elif back:
                                proved = take_back(agents, memory, king, holder)
        if proved:
            begin_reset(agents, memory, u, c)
            begin_reset(agents, memory, v, c)
            return
        phase = agents[u].phase
        if find:
            if phase < c.agree:
                pass_on(agents, u, v, c)
            if phase < c.detect:
                spread_suspicion(agents, u, v)
        if phase >= c.serial:
            spread_slot(agents, u, v)
        elif phase >= c.claim and c.intervals:
            halve(agents, u, v)
            halve(agents, v, u)

    return meet
