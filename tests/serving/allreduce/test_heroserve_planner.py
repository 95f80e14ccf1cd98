"""Placement of prefill and decode groups, home switches, the score with its bounds, and plans within an SLO."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.serving.allreduce import DistServe, HeroServe, InaHier, Slo, Wires
from armillary.serving.allreduce.collectives.path import Path
from armillary.serving.allreduce.planning.phase_cost import find_model, phase_cost
from armillary.serving.allreduce.planning.placement import Fleet, place, with_homes
from armillary.serving.allreduce.planning.placement import given as asked
from armillary.serving.allreduce.planning.planner import candidates, compute_bound, decode_rate, planned_seconds, prefill_rate
from armillary.serving.allreduce.workload import lengths, synthetic

WIRES = Wires.of("ina-6x2")


def work(model: str = "llama-2-70b", like: str = "chat", **how):  # type: ignore[no-untyped-def]
    return synthetic(WIRES, model, like, 200, np.random.default_rng(1), **how)


def test_wide_groups_take_whole_servers_and_narrow_ones_fill_up() -> None:
    plan = place(WIRES, Fleet(8), Fleet(2, 2, 4))
    assert plan is not None
    assert plan.prefill[0].stages[0].servers == (0, 1)
    assert plan.prefill[0].stages[0].gpus == 4
    assert all(not g.spans for one in plan.decode for g in one.stages)
    assert sorted(g.servers[0] for one in plan.decode for g in one.stages) == [2, 2, 3, 3, 4, 4, 5, 5]
    assert place(WIRES, Fleet(16), Fleet(16)) is None


@given(
    st.tuples(st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([1, 2, 4]), st.integers(1, 4)),
    st.tuples(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2]), st.integers(1, 4)),
)
def test_no_device_is_used_twice_and_groups_span_as_few_servers_as_can_be(a: tuple[int, int, int], b: tuple[int, int, int]) -> None:
    plan = place(WIRES, Fleet(*a), Fleet(*b))
    if plan is None:
        assert Fleet(*a).devices + Fleet(*b).devices > 24
        return
    used = np.zeros(6, int)
    for group in plan.groups:
        for server in group.servers:
            used[server] += group.gpus
        assert len(group.servers) == max(1, len(group.servers) * group.gpus // 4)
    assert used.max() <= 4
    assert used.sum() == Fleet(*a).devices + Fleet(*b).devices


def test_homes_go_to_the_least_loaded_switch_heaviest_first() -> None:
    plan = place(WIRES, Fleet(8, 1, 2), Fleet(8))
    assert plan is not None
    homed = with_homes(WIRES, plan, [5.0, 3.0, 4.0], reserved=7)
    assert [g.home for g in homed.groups] == [0, 1, 1]
    assert [g.reserved for g in homed.groups] == [0, 0, 7]
    assert json.loads(homed.to_json())["decode"][0]["stages"][0]["reserved_slots"] == 7


def test_reserved_slots_are_twice_the_packets_of_a_decode_and_at_most_a_nic_full() -> None:
    plan = HeroServe().plan_work(work(placed=(Fleet(16), Fleet(8))))
    assert plan.decode[0].stages[0].reserved == WIRES.window
    assert plan.prefill[0].stages[0].reserved == 0
    assert {g.home for g in plan.groups} == {0, 1}
    assert DistServe().plan_work(work(placed=(Fleet(16), Fleet(8)))).decode[0].stages[0].reserved == 0


def test_the_prefill_score_is_the_m_d_1_queue() -> None:
    of = work(placed=(Fleet(4), Fleet(4)))
    cost, shape = phase_cost("llama-2-70b", "a100-80", 4), WIRES.shape(1, 4)
    rate = prefill_rate(of, cost, Path(), shape, 1, 1)
    together = int(2048 // of.mean_prompt)
    tokens = together * of.mean_prompt
    service = cost.prefill_s(int(tokens), tokens * (of.mean_prompt + 1) / 2, together)
    service += cost.repeats * planned_seconds(Path(), WIRES, shape, tokens * cost.token_bytes)
    rho = rate / together * service
    assert 0 < rho < 1
    assert service + rho * service / (2 * (1 - rho)) == pytest.approx(of.slo.ttft_s)
    tight = dataclasses.replace(of, slo=Slo(service / 2, 1.0))
    assert prefill_rate(tight, cost, Path(), shape, 1, 1) == 0.0


def test_the_decode_score_keeps_the_iteration_within_the_bound() -> None:
    of = work()
    cost, shape = phase_cost("llama-2-70b", "a100-80", 8), WIRES.shape(2)
    free, paid = (decode_rate(of, cost, path, shape, 1, 1) for path in (None, Path()))
    assert 0 < paid < free
    narrow = dataclasses.replace(of, slo=Slo(2.5, 0.02))
    assert 0 <= decode_rate(narrow, cost, Path(), shape, 1, 1) < paid
    assert decode_rate(dataclasses.replace(of, slo=Slo(2.5, 1e-4)), cost, Path(), shape, 1, 1) == 0.0


def test_a_slow_switch_lowers_the_score_of_those_that_need_it() -> None:
    shape = WIRES.shape(4)
    few = dataclasses.replace(WIRES, slots=32)
    nbytes = 16 << 20
    assert planned_seconds(InaHier().path, few, shape, nbytes) > 5 * planned_seconds(InaHier().path, WIRES, shape, nbytes)
    ring = planned_seconds(DistServe().path, few, shape, nbytes)
    assert planned_seconds(HeroServe().path, few, shape, nbytes) < ring
    assert ring == planned_seconds(DistServe().path, WIRES, shape, nbytes)


def test_candidates_come_best_first_and_compute_alone_is_their_bound() -> None:
    of = work()
    found = [rate for rate, _, _ in candidates(of, DistServe().path)]
    assert found == sorted(found, reverse=True)
    assert found[0] <= compute_bound(of)


def test_memory_rules_layouts_out() -> None:
    assert phase_cost("opt-175b", "a100-80", 4).kv_tokens(1) == 0
    assert phase_cost("opt-175b", "a100-80", 8).kv_tokens(1) > 2048
    assert all(p.tp * p.pp > 4 and d.tp * d.pp > 4 for _, p, d in candidates(work("opt-175b"), Path()))
    assert all(16 not in (p.tp, d.tp) for _, p, d in candidates(work("opt-66b"), Path())), "72 heads do not divide by 16"


def test_a_plan_for_an_slo() -> None:
    plan = HeroServe().plan("llama-2-70b", "ina-6x2", Slo(2.5, 0.15), count=300)
    assert not plan.spans, "a model that fits into a server is not spread over several"
    assert sum(one.tp * one.pp for one in (*plan.prefill, *plan.decode)) <= 24
    assert plan.score > 10
    assert "prefill" in plan.describe()


@pytest.mark.parametrize(("model", "params"), [("opt-66b", 66e9), ("opt-175b", 175e9)])
def test_the_opt_models_have_their_size(model: str, params: float) -> None:
    assert find_model(model).params() == pytest.approx(params, rel=0.01)


def test_lengths_fit_the_context_and_summaries_are_as_long_as_published() -> None:
    for like, seed in itertools.product(("chat", "summary"), range(10)):
        prompt, output = lengths(like, 200, np.random.default_rng(seed))
        assert (prompt >= 1).all()
        assert (prompt + output <= 2048).all()
    prompt, output = lengths("summary", 20000, np.random.default_rng(1), longest=8192)
    assert prompt.mean() == pytest.approx(1738, rel=0.07)
    assert output.mean() == pytest.approx(91, rel=0.05)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Slo(0.0, 0.1), "slo: ttft_s: found 0.0"),
        (lambda: Slo(1.0, -0.1), "slo: tpot_s: found -0.1"),
        (lambda: Slo(1.0, math.nan), "slo: tpot_s: found nan"),
        (lambda: Slo(1.0, 0.1, 0.0), "slo: share: found 0.0"),
        (lambda: HeroServe().plan("llama-2-70b", "ina-6x2", cast("Slo", (1, 2))), "slo: found"),
        (lambda: HeroServe().plan("llama-2-70b", "ina-6x2", Slo(1e-5, 1e-6), count=50), "does not fit|no plan"),
        (lambda: HeroServe().plan("mixtral-8x7b", WIRES, Slo(1, 1), count=50), "does not fit|experts"),
        (lambda: asked(WIRES, Fleet(16), Fleet(16)), "32 devices in groups of 16 and 16 do not fit"),
        (lambda: asked(WIRES, Fleet(0), Fleet(8)), "prefill: found TP 0"),
        (lambda: asked(dataclasses.replace(WIRES, reach=((0,), (1,)) * 3), Fleet(16), Fleet(4)), "prefill: no 4 servers have a switch"),
        (lambda: work("no-such-model"), "no-such-model"),
        (lambda: work(like="poems"), "poems"),
        (lambda: synthetic(WIRES, "llama-2-70b", "chat", 0, np.random.default_rng(1)), "count: found 0"),
    ],
)
def test_bad_input_is_refused(call, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=says) as error:
        call()
    assert "\n" not in str(error.value)
