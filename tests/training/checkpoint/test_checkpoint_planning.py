"""Chunks, spans, activation and sending: the spec's figures, closed forms, an LP, hindsight, and an independent sender."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_sending import plain_send
from scipy.optimize import linprog

from armillary.errors import InputError
from armillary.training.checkpoint import SpanModel, SpeculativeActivation, best_activations, plan_chunks, young_daly_s
from armillary.training.checkpoint.planning.activation import distance
from armillary.training.checkpoint.planning.chunks import room_of, sending_s
from armillary.training.checkpoint.simulation.sending import send

MB, MS = 1e6, 1e-3
seconds = st.floats(0, 0.05)


# The partition


@pytest.mark.parametrize(("total", "sizes", "exposed"), [(16, [9, 3, 4], 0), (25, [9, 3, 6], 7), (0, [0, 0, 0], 0), (9, [9, 0, 0], 0)])
def test_chunks_fill_spans_in_their_order(total: float, sizes: list[float], exposed: float) -> None:
    found = plan_chunks([10 * MS, 4 * MS, 7 * MS], total * MB, 1 * MS, 1e9, gamma=1.0)
    assert found.sizes / MB == pytest.approx(sizes)
    assert found.exposed / MB == pytest.approx(exposed)


def test_a_span_shorter_than_a_launch_gets_nothing() -> None:
    found = plan_chunks([0.9 * MS, 0.0, 2 * MS], 5 * MB, 1 * MS, 1e9, gamma=1.0)
    assert found.sizes / MB == pytest.approx([0, 0, 1])


def test_every_chunk_of_a_span_costs_a_launch() -> None:
    # Two whole chunks of 3 MB at 4 ms each leave 2 ms, of which one is the launch of 1 MB.
    assert room_of([10 * MS], 1 * MS, 1e9, chunk=3 * MB)[0] == pytest.approx(7 * MB)
    assert sending_s(7 * MB, 1 * MS, 1e9, 3 * MB) == pytest.approx(10 * MS)


@settings(max_examples=50)
@given(st.lists(seconds, max_size=20), st.floats(0, 1e9), st.floats(0, 2e-3), st.floats(0.1, 1.0), st.sampled_from([math.inf, 1e6, 3.3e6]))
def test_bytes_add_up_and_no_chunk_crosses_its_span(spans: list[float], total: float, alpha: float, gamma: float, chunk: float) -> None:
    beta = 1e9
    found = plan_chunks(spans, total, alpha, beta, gamma=gamma, chunk=chunk)
    assert found.sizes.sum() + found.exposed == pytest.approx(total, rel=1e-9, abs=1e-3)
    assert (found.sizes >= 0).all()
    for span, size in zip(spans, found.sizes, strict=True):
        assert sending_s(float(size), alpha, beta, chunk) <= gamma * span + 1e-9


@settings(max_examples=40)
@given(st.lists(seconds, min_size=1, max_size=12), st.floats(0, 2e8), st.floats(0, 2e-3))
def test_no_partition_hides_more_bytes_than_ours(spans: list[float], total: float, alpha: float) -> None:
    """An LP of the most hidden bytes: Σ c, c_j ≤ the room of a span, Σ c ≤ total."""
    found = plan_chunks(spans, total, alpha, 1e9, gamma=0.95)
    room = [max(0.0, (0.95 * s - alpha) * 1e9) / MB for s in spans]
    best = linprog([-1.0] * len(spans), A_ub=[[1.0] * len(spans)], b_ub=[total / MB], bounds=[(0, r) for r in room], method="highs")
    assert found.sizes.sum() / MB == pytest.approx(-best.fun, abs=1e-6)


@pytest.mark.parametrize(
    "how",
    [{"spans": [-1.0]}, {"spans": [[1.0]]}, {"spans": [math.nan]}, {"total": -1}, {"alpha": -1}, {"beta": 0}, {"gamma": 0}, {"gamma": 1.1}],
)
def test_a_partition_of_nonsense_is_refused(how: dict[str, object]) -> None:
    usual: dict[str, object] = {"spans": [1.0], "total": 1.0, "alpha": 0.0, "beta": 1.0, "gamma": 1.0}
    given_ = {**usual, **how}
    with pytest.raises(InputError):
        plan_chunks(given_["spans"], given_["total"], given_["alpha"], given_["beta"], gamma=given_["gamma"])  # type: ignore[arg-type]


# Sending


def test_a_chunk_under_way_holds_up_the_collective_and_the_rest_waits() -> None:
    # Chunks of 4 MB take 5 ms: two begin within 6 ms, the second ends 4 ms late, and 2 MB are left for the next span.
    sent, over, left = send(np.array([6 * MS, 20 * MS]), np.array([np.inf, np.inf]), 10 * MB, 4 * MB, 1 * MS, 1e9)
    assert sent / MB == pytest.approx([8, 2])
    assert over / MS == pytest.approx([4, 0])
    assert left == 0


def test_committed_chunks_cannot_be_held_back() -> None:
    sent, over, left = send(np.array([6 * MS, 20 * MS]), np.array([10 * MB, 0.0]), 10 * MB, 4 * MB, 1 * MS, 1e9, committed=True)
    assert sent / MB == pytest.approx([10, 0])
    assert over / MS == pytest.approx([7, 0])
    assert left == 0


@settings(max_examples=50)
@given(
    st.lists(st.tuples(seconds, st.floats(0, 5e7)), min_size=1, max_size=15), st.floats(1, 3e8), st.sampled_from([5e5, 4e6, 1e9]),
    st.sampled_from([0.0, 1e-4, 1e-3]),
)  # fmt: skip
def test_an_independent_sender_agrees(rows: list[tuple[float, float]], total: float, chunk: float, alpha: float) -> None:
    spans, room = [r[0] for r in rows], [float(round(r[1])) for r in rows]
    # Ties between the end of a span and the start of a chunk are left out.
    each = alpha + chunk / 1e9
    spans = [s if abs(s / each - round(s / each)) > 1e-6 else s * 1.001 + 1e-5 for s in spans]
    sent, over, left = send(np.array(spans), np.array(room), float(round(total)), chunk, alpha, 1e9)
    other = plain_send(spans, room, float(round(total)), chunk, alpha, 1e9)
    assert sent == pytest.approx(other[0], abs=1e-2)
    assert over == pytest.approx(other[1], abs=1e-9)
    assert left == pytest.approx(other[2], abs=1e-1)


@settings(max_examples=50)
@given(st.lists(seconds, min_size=1, max_size=20), st.floats(0, 1e8), st.floats(0, 1e-3))
def test_an_exact_plan_never_stalls_and_sends_what_it_planned(spans: list[float], total: float, alpha: float) -> None:
    made = plan_chunks(spans, total, alpha, 1e9, gamma=1.0, chunk=2e6)
    sent, over, left = send(np.array(spans), made.room, total, 2e6, alpha, 1e9)
    assert over.sum() <= 1e-9
    assert sent == pytest.approx(made.sizes, abs=1.0)
    assert left == pytest.approx(made.exposed, abs=20.0)


def test_sending_nonsense_is_refused() -> None:
    with pytest.raises(InputError):
        send(np.ones(2), np.ones(3), 1.0, 1.0, 0.0, 1.0)
    with pytest.raises(InputError):
        send(np.ones(2), np.ones(2), 1.0, 0.0, 0.0, 1.0)


# Spans


def test_spans_of_experts_follow_the_load_between_profiles() -> None:
    expert, backward = np.array([-1, 0, -1, 1, 1, 0]), np.array([False, False, False, False, True, True])
    model = SpanModel(expert, backward)

    def true(load: np.ndarray) -> np.ndarray:
        return np.array([5.0, 1 + 2 * load[0], 7.0, 1 + 2 * load[1], 2 + 4 * load[1], 2 + 4 * load[0]])

    model.profiled(true(np.array([10.0, 20.0])), np.array([10.0, 20.0]))
    assert model.lines == [pytest.approx((1.0, 2.0), rel=0.05), pytest.approx((2.0, 4.0), rel=0.05)]
    now = np.array([35.0, 1.0])
    assert model.predicted(now) == pytest.approx(true(now), rel=0.03)
    assert model.predicted(None) == pytest.approx(true(np.array([10.0, 20.0])))


def test_equal_loads_give_seconds_in_proportion_whatever_the_jitter() -> None:
    model = SpanModel(np.array([0, 1]), np.array([False, False]))
    model.profiled(np.array([3.0, 3.1]), np.array([500.0, 501.0]))
    assert model.predicted(np.array([250.0, 1000.0])) == pytest.approx([1.525, 6.1], rel=0.02)
    empty = SpanModel(np.array([0]), np.array([False]))
    empty.profiled(np.array([3.0]), np.array([0.0]))
    assert empty.predicted(np.array([7.0])) == pytest.approx([3.0])


# Activation


def shares(*row: float) -> np.ndarray:
    return np.array([row])


def test_the_distance_is_the_largest_over_layers() -> None:
    a, b = np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[0.5, 0.5], [0.7, 0.3]])
    assert distance(a, b) == pytest.approx(0.3)
    assert distance(np.zeros((0, 1)), np.zeros((0, 1))) == 0


def test_constant_load_never_asks_again() -> None:
    rule = SpeculativeActivation(0.1, 5.0)
    assert rule.after(shares(0.5, 0.5), 0.0), "nothing is known yet"
    rule.activated(shares(0.5, 0.5))
    assert not any(rule.after(shares(0.5, 0.5), 0.01) for _ in range(1000))


def test_a_large_jump_asks_at_once() -> None:
    rule = SpeculativeActivation(0.1, 5.0)
    rule.activated(shares(0.5, 0.5))
    assert rule.after(shares(0.9, 0.1), 2.0)


def test_stalls_that_do_not_grow_with_distance_teach_it_to_wait() -> None:
    rng = np.random.default_rng(3)
    rule, asked = SpeculativeActivation(0.1, 5.0), []
    rule.activated(shares(0.5, 0.5))
    for _ in range(300):
        one = rng.uniform(0.3, 0.7)
        asked.append(rule.after(shares(one, 1 - one), 0.0))
        if asked[-1]:
            rule.activated(shares(one, 1 - one))
    assert sum(asked[100:]) <= 10


def test_the_line_of_stall_over_distance_is_learnt() -> None:
    rule = SpeculativeActivation(1e9, 5.0)
    rule.activated(shares(0.5, 0.5))
    for d in np.linspace(0.0, 0.4, 64):
        rule.after(shares(0.5 + d, 0.5 - d), max(0.0, 2.0 * (d - 0.1)))
    a, free = rule.fit()
    assert 1.5 < a < 2.2
    assert 0.0 <= free < 0.15


def brute(stalls: np.ndarray, kappa: float) -> float:
    count, best = len(stalls), math.inf
    for mask in range(1 << (count - 1)):
        cost, s = kappa, 0
        for t in range(count):
            if t and mask >> (t - 1) & 1:
                s, cost = t, cost + kappa
            cost += stalls[s, t]
        best = min(best, cost)
    return best


@settings(max_examples=20)
@given(st.integers(1, 8), st.integers(0, 99), st.floats(0, 3))
def test_hindsight_finds_the_least_cost(count: int, seed: int, kappa: float) -> None:
    stalls = np.random.default_rng(seed).random((count, count))
    cost, chosen = best_activations(stalls, kappa)
    assert cost == pytest.approx(brute(stalls, kappa))
    assert chosen[0] == 0
    assert chosen == sorted(set(chosen))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["jumps", "drift"])
def test_the_rule_costs_at_most_twice_hindsight_and_one_profile(kind: str, seed: int) -> None:
    """Load is local in time, stall is proportional to distance, and one iteration's stall is small beside a profile, as the rule assumes."""
    rng, count, a, kappa = np.random.default_rng(seed), 300, 0.1, 0.4
    x, loads = np.zeros(8), []
    for _ in range(count):
        if kind == "drift":
            x = 0.99 * x + 0.05 * rng.standard_normal(8)
        elif rng.random() < 0.03:
            x = rng.standard_normal(8)
        loads.append(np.exp(x) / np.exp(x).sum())
    table = np.array(loads)
    stalls = a * 0.5 * np.abs(table[:, None] - table[None]).sum(axis=2)
    rule, s, cost = SpeculativeActivation(kappa, a), 0, kappa
    rule.activated(loads[0][None])
    for t in range(count):
        cost += stalls[s, t]
        if rule.after(loads[t][None], float(stalls[s, t])) and t + 1 < count:
            # The next iteration is profiled, and planned for from then on.
            s, cost = t + 1, cost + kappa
            rule.activated(loads[t + 1][None])
    least, chosen = best_activations(stalls, kappa)
    assert len(chosen) > 1 or kind == "drift"
    assert cost <= 2 * least + kappa


@pytest.mark.parametrize("seed", range(3))
def test_where_one_stall_exceeds_a_profile_the_rule_pays_one_such_stall_more_per_activation(seed: int) -> None:
    rng, count, a, kappa = np.random.default_rng(seed), 200, 5.0, 0.4
    x, loads = np.zeros(8), []
    for _ in range(count):
        x = rng.standard_normal(8) if rng.random() < 0.03 else x
        loads.append(np.exp(x) / np.exp(x).sum())
    table = np.array(loads)
    stalls = a * 0.5 * np.abs(table[:, None] - table[None]).sum(axis=2)
    rule, s, cost, times = SpeculativeActivation(kappa, a), 0, kappa, 1
    rule.activated(loads[0][None])
    for t in range(count):
        cost += stalls[s, t]
        if rule.after(loads[t][None], float(stalls[s, t])) and t + 1 < count:
            s, cost, times = t + 1, cost + kappa, times + 1
            rule.activated(loads[t + 1][None])
    least, _ = best_activations(stalls, kappa)
    assert least < cost <= 2 * least + kappa + times * float(stalls.max())


def test_hindsight_refuses_nonsense() -> None:
    with pytest.raises(InputError, match="square table"):
        best_activations(np.zeros((2, 3)), 1.0)


# Intervals


def test_young_and_daly() -> None:
    assert young_daly_s(1.0, 1e6) == pytest.approx(math.sqrt(2e6), rel=1e-3)
    assert young_daly_s(300.0, 100.0) == 100.0
    rate = 1 / 3600
    waste = {t: math.exp(rate * 60) * (math.exp(rate * (t + 30)) - 1) / t for t in range(50, 4000)}
    assert young_daly_s(30.0, 3600.0) == pytest.approx(min(waste, key=waste.__getitem__), rel=0.01)
    with pytest.raises(InputError):
        young_daly_s(-1.0, 5.0)
