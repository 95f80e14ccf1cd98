"""Passes through the tiers agree with hand-made cases, and rates with integration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.llm import Model, Requests, chip
from armillary.serving.tiers import AllCloud, BlockCosts, GPipe, Hierarchy, Hyperion, HyperionS, Mix, Rate, Tier, TierPlan, serve
from armillary.serving.tiers.nodes.rate import background, two_states
from armillary.serving.tiers.planning.plan import plan_of
from armillary.serving.tiers.simulation.dispatch import Turns
from armillary.serving.tiers.workload import equal_tiers

MODEL = Model.find("llama-3.2-1b")


def tiers(
    *, nodes: int = 1, rate: Rate | None = None, latency_s: float = 0.01, left: Rate | None = None, device: str = "l40s"
) -> Hierarchy:
    made = [
        Tier(name, (chip(device),) * nodes, (left or Rate.constant(1.0),) * nodes, rate or Rate.constant(1e9), latency_s)
        for name in ("low", "middle", "high")
    ]
    return Hierarchy(tuple(made))


def run(hierarchy: Hierarchy, requests: Requests, cuts=(5, 11), **how):
    costs = BlockCosts(MODEL, hierarchy)
    plan = plan_of(costs, cuts)
    mix = Mix(float(requests.prompt.mean()), float(requests.output.mean()))
    return costs, serve(costs, plan, Turns(hierarchy), requests, mix, **how)


def by(how, costs, requests, mix):
    """Cuts the model and serves the requests as a technique does."""
    plan = how.cut(costs, mix)
    return serve(costs, plan, how.dispatcher(costs, plan, mix), requests, mix)


def test_one_request_by_hand():
    prompt, output = 40, 3
    costs, found = run(tiers(), Requests.of([2.0], [prompt], [output]))
    parts = [(0, 5), (5, 11), (11, 16)]
    first = sum(costs.pass_seconds(j, 0, *part, prompt, 1, prompt * (prompt + 1) / 2, 0.0) for j, part in enumerate(parts))
    wide = 2.0 * MODEL.hidden
    first += 2 * (prompt * wide / 1e9 + 0.01)
    assert found.first_token_s[0] == pytest.approx(2.0 + first + 2 * 0.01)
    rest = 0.0
    for token in range(1, output):
        rest += 2 * 0.01  # the token back to the first block
        rest += sum(costs.pass_seconds(j, 0, *part, 1, 1, 0.0, prompt + token) for j, part in enumerate(parts)) + 2 * (wide / 1e9 + 0.01)
    assert found.finish_s[0] == pytest.approx(2.0 + first + rest + 2 * 0.01)
    assert found.busy_s[0].sum() == pytest.approx(
        sum(costs.pass_seconds(0, 0, 0, 5, *x) for x in ((40, 1, 820.0, 0.0), (1, 1, 0.0, 41), (1, 1, 0.0, 42)))
    )


def test_the_whole_model_on_one_tier_takes_what_the_engine_takes():
    from armillary.llm import StepCost

    hierarchy = Hierarchy(tiers().tiers[:1])
    costs = BlockCosts(MODEL, hierarchy)
    found = serve(costs, plan_of(costs, ()), Turns(hierarchy), Requests.of([0.0], [100], [2]), Mix(100, 2))
    cost = StepCost.build(MODEL, "l40s")
    assert found.finish_s[0] == pytest.approx(cost.prefill(100, 5050) + cost.decode(1, 101))


def test_passes_wait_for_each_other_in_the_order_of_arrival():
    costs, alone = run(tiers(latency_s=0.0), Requests.of([0.0], [500], [1]))
    _, both = run(tiers(latency_s=0.0), Requests.of([0.0, 1e-6], [500, 500], [1, 1]))
    assert both.finish_s[0] == pytest.approx(alone.finish_s[0])
    stages = [costs.pass_seconds(j, 0, *part, 500, 1, 125250.0, 0.0) for j, part in enumerate(((0, 5), (5, 11), (11, 16)))]
    wire = 500 * 2.0 * MODEL.hidden / 1e9
    slowest = max(*stages, wire)
    assert both.finish_s[1] - both.finish_s[0] == pytest.approx(slowest, rel=1e-6)


def test_activations_wait_for_each_other_on_a_link():
    slow = Rate.constant(1e6)
    _, both = run(tiers(latency_s=0.0, rate=slow), Requests.of([0.0, 0.0], [500, 500], [1, 1]))
    wire = 500 * 2.0 * MODEL.hidden / 1e6
    assert both.finish_s[1] - both.finish_s[0] == pytest.approx(wire, rel=1e-6)


def test_others_on_the_device_make_it_slower():
    idle = run(tiers(latency_s=0.0, rate=Rate.constant(1e15)), Requests.of([0.0], [200], [4]))[1]
    half = run(tiers(latency_s=0.0, rate=Rate.constant(1e15), left=Rate.constant(0.5)), Requests.of([0.0], [200], [4]))[1]
    assert half.latency_s[0] == pytest.approx(2 * idle.latency_s[0], rel=1e-6)


def test_a_link_that_is_down_is_waited_for():
    down = Rate((0.0, 5.0), (0.0, 1e9), 1e6)
    _, found = run(tiers(rate=down), Requests.of([0.0], [40], [1]))
    _, up = run(tiers(), Requests.of([0.0], [40], [1]))
    assert np.isfinite(found.finish_s).all()
    assert 5.0 < found.finish_s[0] < 5.0 + up.finish_s[0]


def test_a_request_keeps_its_nodes_and_every_token_comes_out():
    rng = np.random.default_rng(SEED)
    requests = Requests.of(np.sort(rng.uniform(0, 2, 30)), rng.integers(1, 200, 30), rng.integers(1, 20, 30))
    costs, found = run(tiers(nodes=3), requests)
    assert np.isfinite(found.finish_s).all()
    assert (found.finish_s >= found.first_token_s).all()
    assert (found.first_token_s > found.arrival_s).all()
    assert set(np.unique(found.nodes)) == {0, 1, 2}
    work = 0.0
    for p, o in zip(requests.prompt.tolist(), requests.output.tolist(), strict=True):
        work += costs.pass_seconds(0, 0, 0, 5, p, 1, p * (p + 1) / 2, 0.0)
        work += sum(costs.pass_seconds(0, 0, 0, 5, 1, 1, 0.0, p + i) for i in range(1, o))
    assert found.busy_s[0].sum() == pytest.approx(work)


SEED = 3


def test_memory_lets_in_one_after_the_other():
    costs = BlockCosts(MODEL, tiers())
    room = 1000 * costs.kv_token * 6
    small = replace(chip("l40s"), memory=(float(costs.weights[:6].sum()) + room + 1e9) / 0.95)
    hierarchy = Hierarchy(tuple(replace(tier, chips=(small,)) for tier in tiers().tiers))
    _, both = run(hierarchy, Requests.of([0.0, 0.0], [380] * 2, [60] * 2), cuts=(6, 11))
    _, one_by_one = run(hierarchy, Requests.of([0.0, 0.0], [480] * 2, [60] * 2), cuts=(6, 11))
    assert both.first_token_s[1] < both.finish_s[0]
    assert one_by_one.first_token_s[1] > one_by_one.finish_s[0]
    with pytest.raises(InputError, match="too few for a request"):
        run(hierarchy, Requests.of([0.0], [1200], [1]), cuts=(6, 11))


def test_batching_serves_together_what_waits_together():
    requests = Requests.of(np.linspace(0, 0.01, 16), [64] * 16, [40] * 16)
    near = tiers(latency_s=0.0, rate=Rate.constant(1e15))
    _, single = run(near, requests)
    _, batched = run(near, requests, batching=True)
    assert batched.latency_s.mean() < 0.6 * single.latency_s.mean()
    _, alone = run(near, Requests.of([0.0], [64], [40]))
    _, alone_batched = run(near, Requests.of([0.0], [64], [40]), batching=True)
    assert alone.finish_s[0] == alone_batched.finish_s[0]


def test_in_the_cloud_alone_tokens_do_not_cross_the_links_again():
    hierarchy = tiers(latency_s=0.5)
    costs, mix = BlockCosts(MODEL, hierarchy), Mix(20, 30)
    found = by(AllCloud(), costs, Requests.of([0.0], [20], [30]), mix)
    assert found.latency_s[0] == pytest.approx(2 * 2 * 0.5, abs=0.2)
    assert found.nodes[0].tolist() == [-1, -1, 0]
    assert found.busy_s[0].sum() == found.busy_s[1].sum() == 0.0



def test_arts_avoids_the_node_that_others_use():
    hierarchy = equal_tiers(nodes=2).with_load([[Rate.constant(1.0), Rate.constant(0.1)]] * 3)
    rng = np.random.default_rng(SEED)
    requests = Requests.of(np.cumsum(rng.exponential(0.4, 60)), [64] * 60, [10] * 60)
    costs, mix = BlockCosts(MODEL, hierarchy), Mix(64, 10)
    ours, turns = (by(how, costs, requests, mix) for how in (HyperionS(), GPipe()))
    assert (turns.nodes[:, 0] == 1).sum() == 30
    assert (ours.nodes[:, 0] == 1).sum() < 20
    assert ours.latency_s.mean() < 0.8 * turns.latency_s.mean()


def test_a_tier_that_became_slow_is_relieved_by_a_new_cut():
    slow = Rate((0.0, 100.0), (1.0, 0.2), 1e9)
    base = equal_tiers(nodes=2, latency_s=0.0)
    hierarchy = base.with_load([[slow] * 2, *[[Rate.constant(1.0)] * 2] * 2])
    costs, mix = BlockCosts(MODEL, hierarchy), Mix(64, 20)
    requests = Requests.of(np.arange(0.0, 600.0, 1.0), [64] * 600, [20] * 600)
    again, never = (by(Hyperion(recut=recut), costs, requests, mix) for recut in (True, False))
    assert (again.replans, never.replans) == (1, 0)
    assert again.latency_s[400:].mean() < 0.8 * never.latency_s[400:].mean()


def test_a_new_cut_waits_for_its_weights_and_keeps_memory_in_order():
    hierarchy = tiers()
    costs = BlockCosts(MODEL, hierarchy)

    class Once(Turns):
        def __init__(self) -> None:
            super().__init__(hierarchy)
            self.said = False

        def replan(self, now: float) -> tuple[TierPlan, float] | None:
            if self.said:
                return None
            self.said = True
            return plan_of(costs, (2, 4)), 5.0

    from armillary.serving.tiers.simulation.serving import _Run

    requests = Requests.of([0.0, 4.0, 6.0], [64] * 3, [300, 300, 10])
    under_way = _Run(costs, plan_of(costs, (5, 11)), Once(), requests, Mix(64, 100), False, 0)
    found = under_way.run()
    assert found.replans == 1
    assert [p.cuts for p in under_way.plan_of] == [(5, 11), (5, 11), (2, 4)]
    for j, (lo, hi) in enumerate(plan_of(costs, (2, 4)).segments):
        room = hierarchy.tiers[j].memory - costs.weights[lo:hi].sum()
        assert under_way.nodes[j][0].free == pytest.approx(room)


steps = st.lists(st.tuples(st.floats(0.1, 5.0), st.sampled_from([0.0, 0.5, 1.0, 3.0])), min_size=1, max_size=6)


@settings(max_examples=200, deadline=None)
@given(steps, st.floats(0, 50), st.floats(0.01, 40))
def test_work_over_a_changing_rate(parts, start, work):
    if max(v for _, v in parts) == 0:
        with pytest.raises(InputError):
            Rate((0.0,), (0.0,), 1.0)
        return
    edges = np.concatenate([[0.0], np.cumsum([d for d, _ in parts])])
    rate = Rate(tuple(edges[:-1]), tuple(v for _, v in parts), float(edges[-1]))
    end = rate.finish(start, work)

    def done(until):
        """Returns the work from 0 on, period by period and step by step."""
        turns, inside = divmod(until, rate.period_s)
        each = [value * length for length, value in parts]
        return turns * sum(each) + sum(v * min(max(inside - lo, 0.0), length) for lo, (length, v) in zip(edges, parts, strict=False))

    assert end >= start
    assert done(end) - done(start) == pytest.approx(work, rel=1e-9, abs=1e-9)
    # It ends while something is done, not in an interruption.
    assert done(end) > done(max(start, end - 1e-3))


def test_drawn_rates():
    rng = np.random.default_rng(SEED)
    link = two_states(10.0, 4.0, 30.0, 60_000.0, rng)
    assert set(link.values) == {10.0, 4.0}
    assert link.mean == pytest.approx(7.0, rel=0.1)
    left = background(0.5, 60.0, 600_000.0, rng)
    assert left.mean == pytest.approx(0.75, rel=0.02)
    assert 0.5 <= min(left.values) <= max(left.values) <= 1.0


@pytest.mark.parametrize(
    "bad", [((), (), 1.0), ((0.0,), (1.0,), 0.0), ((1.0,), (1.0,), 2.0), ((0.0, 0.0), (1.0, 1.0), 2.0), ((0.0,), (-1.0,), 1.0)]
)
def test_bad_rates(bad):
    with pytest.raises(InputError):
        Rate(*bad)
