"""Pairwise ranking against exact expectations, a Markov chain, and rules as other simulators take them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.sparse import lil_array
from scipy.sparse.linalg import spsolve
from scipy.stats import kstest, nbinom

from armillary.errors import InputError
from armillary.runtime.election import Pairwise, RulesProtocol, Tradeoff, Tree, play, rules_of, run_schedule
from armillary.streams import stream


def test_the_expected_time_from_one_duplicate_is_exact() -> None:
    protocol = Pairwise().protocol(16)
    start = protocol.ranked(np.array([1, *range(1, 16)]), stream(0, "x"))
    times = [play(protocol, start, stream(seed, "pairwise")).time for seed in range(2000)]
    assert np.mean(times) == pytest.approx(112.5, rel=0.04), "(n − 1)²/2"


def expected_times(n: int) -> dict[tuple[int, ...], float]:
    """The exact mean parallel time to right ranks, by how many agents hold each rank: the Markov chain, solved as a sparse linear system."""
    states = [s for s in itertools.product(range(n + 1), repeat=n) if sum(s) == n]
    number = {s: i for i, s in enumerate(states)}
    system, right = lil_array((len(states), len(states))), np.ones(len(states))
    for s, i in number.items():
        if s == (1,) * n:
            system[i, i], right[i] = 1.0, 0.0
            continue
        for rank in range(n):
            chance = s[rank] * (s[rank] - 1) / (n * (n - 1))
            if chance:
                moved = list(s)
                moved[rank], moved[(rank + 1) % n] = moved[rank] - 1, moved[(rank + 1) % n] + 1
                system[i, number[tuple(moved)]] -= chance
                system[i, i] += chance
    return dict(zip(states, (spsolve(system.tocsr(), right) / n).tolist()))


def test_the_chain_of_one_duplicate_is_the_closed_form() -> None:
    for n in range(2, 6):
        held = (2, *(1 for _ in range(n - 2)), 0)
        assert expected_times(n)[held] == pytest.approx((n - 1) ** 2 / 2)


@pytest.mark.parametrize("n", [2, 3, 4, pytest.param(5, marks=pytest.mark.slow)])
def test_hitting_times_are_those_of_the_markov_chain_from_every_configuration(n: int) -> None:
    protocol, runs = Pairwise().protocol(n), 400
    for held, wanted in expected_times(n).items():
        start = protocol.ranked(np.repeat(np.arange(1, n + 1), held), stream(0, "x"))
        times = [play(protocol, start, stream(seed, "chain", str(held)), after=0, cycles=0).time for seed in range(runs)]
        assert np.mean(times) == pytest.approx(wanted, abs=4.5 * np.std(times) / np.sqrt(runs) + 1e-9), held


def test_times_from_one_duplicate_have_the_exact_distribution() -> None:
    """The duplicate moves on n − 1 times, each after a geometric number of meetings, so their sum is negative binomial."""
    n = 64
    protocol = Pairwise().protocol(n)
    start = protocol.ranked(np.array([1, *range(1, n)]), stream(0, "x"))
    meetings = [play(protocol, start, stream(seed, "law"), after=0, cycles=0).time * n for seed in range(400)]
    law = nbinom(n - 1, 2 / (n * (n - 1)), loc=n - 1)
    assert kstest(meetings, law.cdf).pvalue > 0.001


def test_rules_give_the_same_runs_as_the_protocol() -> None:
    protocol = Pairwise().protocol(12)
    rules, ranks = rules_of(protocol)
    assert rules[3, 3] == (3, 4)
    assert len(rules) == 12, "only equal ranks react"
    again = RulesProtocol(12, rules, ranks)
    for seed in range(20):
        ours = play(protocol, "random-ranks", stream(seed, "rules"))
        theirs = play(again, "random-ranks", stream(seed, "rules"))
        assert ours.time == theirs.time
        assert (ours.ranks == theirs.ranks).all()


def test_rules_are_refused_where_there_are_too_many_or_chance_decides() -> None:
    with pytest.raises(InputError, match="states; expected at most 1000"):
        rules_of(Tradeoff().protocol(16))
    with pytest.raises(InputError, match="states; expected at most 1000"):
        rules_of(Tree().protocol(16))
    with pytest.raises(InputError, match="found no state that shows rank 3"):
        RulesProtocol(3, {("a", "a"): ("a", "b")}, {"a": 1, "b": 2}).begin("one-duplicate", stream(3, "x"))
    with pytest.raises(InputError, match="ranks: found ranks from 0 to 9; expected 0 to 3"):
        RulesProtocol(3, {("a", "a"): ("a", "b")}, {"a": 9, "b": 0})


def test_a_schedule_is_replayed_in_its_order() -> None:
    start = Pairwise().protocol(3).ranked(np.array([1, 1, 1]), stream(0, "x"))
    found = run_schedule(Pairwise(), start, [0, 1, 0], [1, 2, 2])
    assert found.ranks.tolist() == [1, 2, 2], "0 and 1 meet, then 1 and 2 with unlike ranks, then 0 and 2"
    assert not found.success
    found = run_schedule(Pairwise(), start, [0, 0, 1, 0, 2], [1, 2, 2, 1, 1])
    assert (found.ranks.tolist(), found.success, found.time, found.leader) == ([1, 2, 3], True, 1.0, 0)
