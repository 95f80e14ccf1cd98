"""Whole protocols: from every start to right ranks, the same for the same seed, and with no state but their variables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.kernels import part
from armillary.runtime.election import (
    Broadcast,
    Direct,
    Pairwise,
    Population,
    Tradeoff,
    Tree,
    choose,
    play,
    recorded,
    run_schedule,
    simulate,
)
from armillary.runtime.election.choosing import expected_time
from armillary.runtime.election.pairwise import PairwiseProtocol, meet
from armillary.runtime.election.population.play import Run
from armillary.runtime.election.population.protocol import STARTS
from armillary.runtime.election.population.randomness import below, words
from armillary.runtime.election.subprotocols.agents import WAITING
from armillary.streams import stream


@part
def forget(agents, memory, u, v, random, constants):  # type: ignore[no-untyped-def]
    """A protocol of a user's own: pairwise ranking in which one interaction in 5,000 takes the responder's rank."""
    meet(agents, memory, u, v, random, constants)
    if below(random, 5000) == 0:
        agents[v].rank = 0


class Forgetful(PairwiseProtocol):
    """Forgets."""

    interact = forget


EVERY = [Pairwise(), Tree(), Direct(), Broadcast(), Tradeoff(), Tradeoff(heal="soft"), Tradeoff(find=False)]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("technique", EVERY, ids=str)
def test_every_protocol_comes_from_every_start_to_right_ranks(technique: Any, start: str) -> None:
    for seed in range(4):
        found = simulate(technique, 24, start, seed)
        assert found.success
        assert not found.relapsed
        assert sorted(found.ranks) == list(range(1, 25))
        assert found.ranks[found.leader] == 1


@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS)
def test_a_hundred_runs_of_a_hundred_stabilise(start: str) -> None:
    found = [simulate(Tradeoff(), 256, start, seed, cycles=1) for seed in range(100)]
    assert all(one.success for one in found)


@pytest.mark.slow
def test_a_starved_rank_is_found_by_meeting_or_by_healing() -> None:
    """Where the cycle is far shorter than n/2, which takes few witnesses and many agents."""
    never = np.mean([simulate(Tradeoff(), 1024, "starved", seed, cycles=0).time for seed in range(40)])
    soft = np.mean([simulate(Tradeoff(heal="soft"), 1024, "starved", seed, cycles=0).time for seed in range(40)])
    fed = np.mean([simulate(Tradeoff(heal="soft"), 1024, "one-duplicate", seed, cycles=0).time for seed in range(40)])
    assert never >= 1024 / 4
    assert soft <= 2 * fed + 3 * Tradeoff().protocol(1024).cycle


def test_the_ranking_leaves_out_few_agents_and_the_slots_suffice() -> None:
    """From everybody waiting, at the beginning of Rank."""
    for n in (64, 400):
        protocol = Tradeoff().protocol(n)
        c = protocol.constants
        rng = stream(n, "ranking")
        population = protocol.ranked(np.ones(n, np.int64), rng)
        population.agents["mode"], population.agents["rank"], population.agents["last"] = WAITING, 0, 0
        population.agents["phase"] = c.claim - 1
        run = Run(protocol, population, words(rng))
        waiting = 0
        for first, second in recorded(n, 400 * n * c.ticks, rng):
            for at in range(0, len(first), n):
                run.advance(first[at : at + n], second[at : at + n])
                if population.agents["phase"].max() == c.serial:
                    waiting = int((population.agents["mode"] == WAITING).sum())
                if run.right:
                    break
            if run.right:
                break
        assert run.right
        assert waiting <= (c.cycle - c.serial) // 2


@pytest.mark.parametrize("technique", EVERY, ids=str)
def test_a_replayed_schedule_ends_in_the_state_of_the_run_that_recorded_it(technique: Any) -> None:
    protocol = technique.protocol(16)
    start = protocol.begin("random-state", stream(1, "start"))
    pairs = list(recorded(16, 100_000, stream(2, "meetings")))
    first, second = (np.concatenate(column) for column in zip(*pairs))
    found = [run_schedule(technique, start, first, second, seed=5) for _ in range(2)]
    assert (found[0].population.agents == found[1].population.agents).all()
    assert (found[0].population.memory == found[1].population.memory).all()
    run = Run(protocol, start.copy(), words(stream(5, "election", "own")))
    for u, v in pairs:
        run.advance(u, v)
    assert (run.population.agents == found[0].population.agents).all()


def test_the_same_seed_gives_the_same_run_and_another_seed_another_one() -> None:
    one, two, other = (simulate(Tradeoff(rho=4), 64, seed=seed) for seed in (1, 1, 2))
    assert (one.time, one.interactions, one.trajectory) == (two.time, two.interactions, two.trajectory)
    assert one.time != other.time


@pytest.mark.parametrize("technique", EVERY, ids=str)
def test_there_is_no_state_but_the_variables_and_they_keep_to_their_domains(technique: Any) -> None:
    protocol = technique.protocol(32)
    sizes = [size if isinstance(size, tuple) else (size, 1) for size in protocol.fields.values()]
    assert protocol.bits == pytest.approx(sum(many * math.log2(values) for values, many in sizes))
    rng = stream(3, "domains")
    population = protocol.random_state(rng)
    assert set(population.agents.dtype.names) == set(protocol.scalars)
    run = Run(protocol, population, words(rng))
    for first, second in recorded(32, 300_000, rng):
        for at in range(0, len(first), 5000):
            run.advance(first[at : at + 5000], second[at : at + 5000])
            for name, size in protocol.scalars.items():
                assert population.agents[name].min() >= 0
                assert population.agents[name].max() < size, name
    for size in protocol.fields.values():
        if isinstance(size, tuple):
            assert population.memory.shape[1] == size[1]
            assert population.memory.max() < size[0]


def test_right_ranks_that_hidden_tokens_undo_do_not_count() -> None:
    protocol = Tradeoff(rho=2).protocol(16)
    rng = stream(4, "hidden")
    population = protocol.ranked(np.arange(1, 17), rng)
    population.agents["token_rank"][3], population.agents["token_sign"][3] = 9, 2
    found = play(protocol, population, rng, patience=500.0)
    assert sorted(found.ranks) == list(range(1, 17)), "nobody suspects rank 9, so nobody meets the token"
    assert not found.success
    tree = Tree().protocol(8)
    spoiled = tree.ranked(np.arange(1, 9), stream(0, "x"))
    spoiled.agents["extra"][2] = 7  # more children than there are
    found = play(tree, spoiled, stream(1, "x"))
    assert found.success
    assert found.time > 0


def test_a_run_that_loses_right_ranks_is_a_failure() -> None:
    found = play(Forgetful(6), "one-duplicate", stream(1, "x"), after=1e6)
    assert found.relapsed
    assert not found.success
    assert found.time == Forgetful(6).patience, "a failure counts as all the time that it had"


def test_the_choice_keeps_the_budget_and_takes_the_least_time() -> None:
    for bits in (8, 30, 120, math.inf):
        found = choose(256, bits)
        assert found.bits <= bits
        assert found.technique.protocol(256).bits == found.bits
    assert isinstance(choose(256, 8).technique, Pairwise)
    assert isinstance(choose(4096, 40).technique, Tree)
    with pytest.raises(InputError, match="bits: found 5 bits; expected at least 8"):
        choose(256, 5)


@pytest.mark.slow
@pytest.mark.parametrize("technique", [Pairwise(), Tree(), Direct(), Broadcast(), Tradeoff(rho=4), Tradeoff()], ids=str)
def test_expected_times_are_delivered(technique: Any) -> None:
    """Also at sizes between those that the factors were fitted at."""
    for n in (96, 384):
        found = np.mean([simulate(technique, n, seed=seed, cycles=0).time for seed in range(30)])
        assert found == pytest.approx(expected_time(technique, n), rel=0.5)


@pytest.mark.parametrize(("make", "said"), [
    (lambda: Tradeoff(rho=9).protocol(64), "rho: found 9; expected 2 to √n, 8 for 64 agents"),
    (lambda: Broadcast(rho=100).protocol(64), "rho: found 100"),
    (lambda: Tree().protocol(1), "n: found 1; expected 2 to 1,048,576 agents"),
    (lambda: simulate(Tree(), 8, "nonsense"), "nonsense"),
    (lambda: run_schedule(Tree(), "all-one", [0], [1]), "needs the number of agents"),
    (lambda: run_schedule(Tree(), "all-one", [0, 3], [1, 3], n=4), "row 1: found agent 3 meeting itself"),
    (lambda: run_schedule(Tree(), "all-one", [0, 4], [1, 3], n=4), "row 1: initiator: found 4; expected an agent from 0 to 3"),
    (lambda: run_schedule(Tree(), "all-one", [0], [1, 3], n=4), "expected as many of one as of the other"),
])  # fmt: skip
def test_what_cannot_be_run_is_refused(make: Any, said: str) -> None:
    with pytest.raises(InputError, match=said.replace("(", r"\(")):
        make()


def test_two_and_three_agents_are_populations_too() -> None:
    for n in (2, 3):
        for technique in EVERY:
            for start in ("all-one", "random-state"):
                found = simulate(technique, n, start)
                assert found.success, (technique, n, start)
    assert isinstance(found.population, Population)
