"""Every configuration of a few agents: all of them lead to right ranks, and right ranks lead nowhere else.

The trade-off has too many variables for one table, so what decides over ranks is enumerated, and the clock, the messages and the suspicion
are drawn anew before every meeting: they are fallible, and nothing may rest on them. Whole random states under the true clock come after.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from armillary.kernels import loop, part
from armillary.runtime.election import Direct, Protocol, Tradeoff, play
from armillary.runtime.election.pairwise import PairwiseProtocol
from armillary.runtime.election.population.randomness import below, words
from armillary.runtime.election.subprotocols.agents import RANKED, constants
from armillary.runtime.election.subprotocols.alone import _AGENT, _Witnesses
from armillary.runtime.election.subprotocols.detect import tokens_agree, watch
from armillary.runtime.election.tree import Lengths, TreeProtocol
from armillary.streams import stream

N = 3
PAIRS = list(itertools.permutations(range(N), 2))
#: What is known of a configuration: nothing, that it is right, that it leads to a reset or to right ranks.
OPEN, RIGHT, LED = 0, 1, 2


class ShortTree(TreeProtocol):
    """The tree with the shortest lengths, so that all of its states can be listed."""

    @property
    def constants(self) -> Any:
        """Lengths."""
        return Lengths(self.n, 3, 2, 3)

    @property
    def fields(self) -> Mapping[str, int | tuple[int, int]]:
        """Domains that hold them."""
        return {"role": 3, "main": 4, "extra": 3, "candidate": 2}


def every_step(protocol: Protocol) -> tuple[np.ndarray, np.ndarray]:
    """(successors by configuration and pair, whether its ranks are right); a configuration is the number of its agents' states."""
    meet, output = type(protocol).interact, type(protocol).output
    sizes = list(protocol.scalars.values())
    states = int(np.prod(sizes))
    listed = protocol.empty().agents[:1].repeat(states)
    for name, column in zip(protocol.scalars, np.unravel_index(np.arange(states), sizes)):
        listed[name] = column
    memory, random = protocol.empty().memory, np.arange(1, 5, dtype=np.uint64)
    # The number of a state is found by looking its record up, which needs no knowledge of the variables.
    number = {record.tobytes(): i for i, record in enumerate(listed)}
    two = np.zeros((states, states, 2), np.int32)
    shown = np.zeros(states, np.int64)
    pair = listed[:N].copy()
    for a in range(states):
        pair[0] = listed[a]
        shown[a] = output(pair, 0, protocol.constants)
        for b in range(states):
            pair[0], pair[1], pair[2] = listed[a], listed[b], listed[0]
            meet(pair, memory, 0, 1, random, protocol.constants)
            two[a, b] = number[pair[0].tobytes()], number[pair[1].tobytes()]
    config = np.stack(np.unravel_index(np.arange(states**N), (states,) * N), 1)
    after = np.zeros((len(config), len(PAIRS)), np.int64)
    for k, (u, v) in enumerate(PAIRS):
        new = config.copy()
        new[:, [u, v]] = two[config[:, u], config[:, v]]
        after[:, k] = np.ravel_multi_index(tuple(new.T), (states,) * N)
    right = (np.sort(shown[config], axis=1) == np.arange(1, N + 1)).all(1)
    return after, right


@pytest.mark.parametrize("kind", [PairwiseProtocol, pytest.param(ShortTree, marks=pytest.mark.slow)])
def test_every_configuration_leads_to_right_ranks_for_good(kind: type[Protocol]) -> None:
    after, right = every_step(kind(N))
    good = right.copy()  # Those from which no meeting leads out of right ranks, now or later.
    while (left := good & ~good[after].all(1)).any():
        good &= ~left
    assert good.any()
    reached = good.copy()
    while (more := ~reached & reached[after].any(1)).any():
        reached |= more
    assert reached.all(), "some configuration never comes to right ranks"


def test_no_meeting_of_unlike_ranks_is_ever_taken_for_a_collision() -> None:
    """Every state of Detect that three agents of unlike ranks with two witnesses each can come to, whatever is drawn."""
    agents, memory = np.zeros(N, _AGENT), np.zeros((N, 2), np.uint32)
    agents["rank"] = np.arange(1, N + 1)
    random = words(stream(0, "exhaustive"))
    check = loop(_watched)
    seen, front = {(agents.tobytes(), memory.tobytes())}, [(agents, memory)]
    while front:
        old, kept = front.pop()
        for u, v in PAIRS:
            for _ in range(8):  # signatures are drawn
                agents, memory = old.copy(), kept.copy()
                assert not check(agents, memory, u, v, random, _Witnesses(2))
                assert tokens_agree(agents, memory, _Witnesses(2))
                key = (agents.tobytes(), memory.tobytes())
                if key not in seen:
                    seen.add(key)
                    front.append((agents, memory))
    assert len(seen) > 1000, "all of them, but for draws that never came up"


def _watched(agents, memory, u, v, random, c):  # type: ignore[no-untyped-def]
    return watch(agents, memory, u, v, True, random, c)


def short(technique: Any, n: int, signatures: int) -> Any:
    """The protocol with phases of one interaction of the leader, of which a cycle has eight; `signatures` is ρ as the signatures know it."""
    protocol = technique.protocol(n)
    c = constants(n, 2)._replace(
        rho=signatures, ttl=3, ticks=1, group=n, agree=1, detect=2, recall=3, calm=4, claim=5, serial=6, cycle=8, reset=2, leaders=4,
    )  # fmt: skip
    return type(protocol)(c)


@functools.cache
def sweeper(interact: Any, tokens: bool) -> Any:
    """One pass over all configurations, whose agents have ranks and tokens, or modes, ranks, intervals and counters of resets."""

    @part
    def put(agents, memory, u, state, c):  # type: ignore[no-untyped-def]
        n, witnesses, signs = len(agents), memory.shape[1], c.rho * c.rho
        if tokens:
            for i in range(witnesses):
                memory[u, i] = state % (signs + 1)
                state //= signs + 1
            token = state % (1 + n * witnesses * signs)
            state //= 1 + n * witnesses * signs
            agents[u].token_rank, agents[u].token_index, agents[u].token_sign = 0, 0, 0
            if token > 0:
                agents[u].token_sign = (token - 1) % signs
                agents[u].token_index = (token - 1) // signs % witnesses
                agents[u].token_rank = 1 + (token - 1) // signs // witnesses
            agents[u].mode, agents[u].rank, agents[u].last, agents[u].reset = RANKED, state, state, 0
        else:
            agents[u].reset = state % (c.reset + 1)
            state //= c.reset + 1
            agents[u].last = state % (n + 1)
            state //= n + 1
            agents[u].rank = state % (n + 1)
            agents[u].mode = state // (n + 1)

    @part
    def number(agents, memory, u, c):  # type: ignore[no-untyped-def]
        a, n, witnesses, signs = agents[u], len(agents), memory.shape[1], c.rho * c.rho
        if tokens:
            if a.mode != RANKED:
                return -1
            token = 0 if a.token_rank == 0 else 1 + ((a.token_rank - 1) * witnesses + a.token_index) * signs + a.token_sign
            state = a.rank * (1 + n * witnesses * signs) + token
            for i in range(witnesses - 1, -1, -1):
                state = state * (signs + 1) + memory[u, i]
            return state
        return ((a.mode * (n + 1) + a.rank) * (n + 1) + a.last) * (c.reset + 1) + a.reset

    @part
    def draw(agents, u, random, c):  # type: ignore[no-untyped-def]
        a = agents[u]
        a.best, a.ttl, a.leads, a.count = below(random, c.leaders), below(random, c.ttl + 1), below(random, 2), 0
        a.phase, a.carried, a.nonce = below(random, c.cycle), below(random, c.n + 1), below(random, c.nonces)
        if tokens:
            a.suspect = below(random, c.n + 1)

    @part
    def is_right(agents, u):  # type: ignore[no-untyped-def]
        """Whether agent u alone has its rank."""
        if agents[u].mode != RANKED or agents[u].rank == 0:
            return False
        same = 0
        for v in range(len(agents)):
            same += agents[v].rank == agents[u].rank
        return same == 1

    @loop
    def begin(agents, memory, states, verdict, c):  # type: ignore[no-untyped-def]
        """Marks right ranks whose tokens agree."""
        for k in range(len(verdict)):
            left, right = k, True
            for u in range(len(agents)):
                put(agents, memory, u, left % states, c)
                left //= states
            for u in range(len(agents)):
                right = right and is_right(agents, u)
            if right and tokens:
                right = tokens_agree(agents, memory, c)
            verdict[k] = RIGHT if right else OPEN

    @loop
    def sweep(agents, memory, states, verdict, random, c, trials):  # type: ignore[no-untyped-def]
        """(configurations newly found to lead to a reset or to right ranks, meetings that led out of right ranks)."""
        n, more, lost = len(agents), 0, 0
        for k in range(len(verdict)):
            if verdict[k] == LED:
                continue
            for trial in range(trials * n * (n - 1)):
                u = trial % n
                v = (u + 1 + trial // n % (n - 1)) % n
                left = k
                for w in range(n):
                    put(agents, memory, w, left % states, c)
                    draw(agents, w, random, c)
                    left //= states
                interact(agents, memory, u, v, random, c)
                after, reset = 0, False
                for w in range(n - 1, -1, -1):
                    one = number(agents, memory, w, c)
                    reset = reset or one < 0
                    after = after * states + one
                if verdict[k] == RIGHT:
                    lost += reset or verdict[after] != RIGHT
                elif reset or verdict[after] == LED or (verdict[after] == RIGHT and not tokens):
                    verdict[k] = LED
                    more += 1
                    break
        return more, lost

    return begin, sweep


def verdicts(technique: Any, n: int, signatures: int, tokens: bool, trials: int) -> tuple[np.ndarray, int]:
    """(the verdict on each configuration when nothing more is found, meetings that led out of right ranks)."""
    protocol = short(technique, n, signatures)
    c, made = protocol.constants, protocol.empty()
    memory = np.zeros((n, 2), np.uint32)
    signs = c.rho**2
    states = (n + 1) * (1 + n * 2 * signs) * (signs + 1) ** 2 if tokens else 3 * (n + 1) ** 2 * (c.reset + 1)
    verdict = np.zeros(states**n, np.int8)
    begin, sweep = sweeper(type(protocol).interact, tokens)
    begin(made.agents, memory, states, verdict, c)
    random, lost, idle = words(stream(n, "verdicts")), 0, 0
    while idle < 3 and (verdict == OPEN).any():
        more, out = sweep(made.agents, memory, states, verdict, random, c, trials)
        lost, idle = lost + out, 0 if more else idle + 1
    return verdict, lost


@pytest.mark.parametrize("n", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_whatever_modes_intervals_and_resets_there_are_ranks_become_right(n: int) -> None:
    found, lost = verdicts(Direct(), n, 2, tokens=False, trials=4)
    assert lost == 0
    assert (found == RIGHT).sum() > 0
    assert not (found == OPEN).any(), "some configuration never comes to right ranks"


@pytest.mark.parametrize(
    ("n", "signatures"), [(2, 1), pytest.param(2, 2, marks=pytest.mark.slow), pytest.param(3, 1, marks=pytest.mark.slow)]
)
def test_tokens_and_memories_can_be_reset_exactly_where_ranks_are_wrong_or_tokens_disagree(n: int, signatures: int) -> None:
    """Two witnesses, and one or four signatures: every configuration is either right for good or can be proved to be wrong."""
    found, lost = verdicts(Tradeoff(rho=2), n, signatures, tokens=True, trials=4)
    assert lost == 0, "a collision was proved where there is none"
    assert (found == RIGHT).sum() > 0
    assert not (found == OPEN).any(), "some wrong configuration can never be proved to be wrong"


@pytest.mark.parametrize("runs", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_whole_random_states_of_three_agents_come_to_right_ranks_under_their_own_clock(runs: int) -> None:
    """Ranks may come out right while a token disagrees whose rank nobody suspects: under a right clock nobody looks at it any more."""
    protocol = short(Tradeoff(rho=2), N, 2)
    rng, hidden = stream(0, "whole"), 0
    for _ in range(runs):
        found = play(protocol, "random-state", rng, patience=2000, after=0, cycles=0)
        assert sorted(found.ranks) == [1, 2, 3]
        assert not found.relapsed
        hidden += not found.success
    assert hidden < 0.15 * runs
