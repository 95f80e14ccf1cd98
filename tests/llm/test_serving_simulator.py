"""The serving simulator: schedules worked out by hand, a plain re-implementation, queueing theory, and what must not change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_vllm import One, serve

from armillary.errors import InputError
from armillary.llm.cost.iteration import AffineCost
from armillary.llm.serving import state as columns
from armillary.llm.serving.fleet import Fleet, failures
from armillary.llm.serving.replica import Adapters, Replica
from armillary.llm.serving.requests import Requests, chained

MS = 1e-3
STEPS = pytest.mark.parametrize("step", ["iteration", "segment"])


def _ms(times):
    return np.round(np.asarray(times) / MS, 6).tolist()


@STEPS
def test_a_prompt_is_cut_to_the_budget(step):
    replica = Replica(cost=AffineCost(10 * MS, 0.1 * MS), blocks=100, max_batched_tokens=64)
    got = replica.run(Requests.of([0, 5 * MS], [100, 20], [3, 2]), step=step)
    assert _ms(got.first_token) == [32.0, 32.0]
    assert _ms(got.finish) == [52.3, 42.2]


@STEPS
def test_without_blocks_the_last_goes_back_and_computes_again(step):
    got = Replica(cost=AffineCost(10 * MS), blocks=6, block=4).run(Requests.of([0, 0], [8, 8], [8, 8]), step=step)
    assert _ms(got.finish) == [80.0, 110.0]
    assert got.preemptions.tolist() == [0, 1]
    if step == "iteration":
        assert got.iterations.tolist() == [11]


@STEPS
def test_a_request_without_a_slot_is_passed_over(step):
    replica = Replica(cost=AffineCost(10 * MS), blocks=60, slots=1)
    got = replica.run(Requests.of([0, 0, 0], [10] * 3, [3] * 3, adapter=[0, 1, 0]), adapters=Adapters([8, 8], 7 * MS, 7 * MS), step=step)
    assert _ms(got.finish) == [37.0, 74.0, 37.0]
    assert _ms(got.first_token)[1] == 54.0
    assert got.loads.tolist() == [2]


@STEPS
def test_context_has_its_price(step):
    replica = Replica(cost=AffineCost(5 * MS, 0.05 * MS, 0.001 * MS), blocks=100, max_batched_tokens=128)
    got = replica.run(Requests.of([0, 0, 12 * MS], [300, 10, 50], [4, 6, 2]), step=step)
    assert _ms(got.first_token) == [33.384] * 3
    assert _ms(got.finish) == [49.72, 59.847, 38.894]


requests_lists = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 40), st.integers(1, 24), st.integers(-1, 3)), min_size=1, max_size=14
)


@settings(max_examples=150, deadline=None)
@given(requests_lists, st.integers(1, 40), st.integers(1, 5), st.integers(1, 8), st.integers(0, 30), st.integers(1, 3))
def test_as_a_plain_scheduler_does(rows, budget, seqs, block, spare, slots):
    blocks = max(-(-(p + o) // block) for _, p, o, _ in rows) + spare
    plain, iterations = serve(
        [One(i, t / 16, p, o, x) for i, (t, p, o, x) in enumerate(rows)], a=1 / 32, b=1 / 256, c=1 / 4096, budget=budget, seqs=seqs,
        block=block, blocks=blocks, slots=slots, load=1 / 8,
    )  # fmt: skip
    replica = Replica(
        cost=AffineCost(1 / 32, 1 / 256, 1 / 4096), blocks=blocks, block=block, max_batched_tokens=budget, max_seqs=seqs, slots=slots
    )
    t, p, o, x = (np.array(column) for column in zip(*rows, strict=True))
    order = np.argsort(t, kind="stable")
    work = Requests.of(t / 16, p, o, adapter=x)
    adapters = Adapters([8] * 4, 1 / 8, 1 / 8)
    for step in ("iteration", "segment"):
        got = replica.run(work, adapters=adapters, token_times=True, step=step)
        close = pytest.approx if step == "segment" else (lambda v, **_: v)
        assert got.finish.tolist() == close([plain[i].done for i in order], rel=1e-9)
        assert got.first_token.tolist() == close([plain[i].first for i in order], rel=1e-9)
        assert got.token_time.tolist() == close([t for i in order for t in plain[i].times], rel=1e-9)
        assert got.preemptions.tolist() == [plain[i].preemptions for i in order]
    assert replica.run(work, adapters=adapters).iterations.tolist() == [iterations]


@pytest.mark.parametrize("policy", ["vllm", "sarathi", "orca", "static", "sglang", "sjf-oracle", "priority"])
@settings(max_examples=25, deadline=None)
@given(rows=requests_lists, seed=st.integers(0, 9))
def test_blocks_are_conserved_and_everything_is_served(policy, rows, seed):
    t, p, o, x = (np.array(column) for column in zip(*rows, strict=True))
    longest = int(o.max())
    blocks = max(-(-(int(a) + longest) // 4) for a in p) + 6
    rng = np.random.default_rng(seed)
    prefixes = [chained(np.full(int(a) // 4, rng.integers(2), np.uint64)) for a in p]
    replica = Replica(
        cost=AffineCost(0.01), blocks=blocks, block=4, max_batched_tokens=16, max_seqs=4, slots=2, policy=policy, draft=seed % 3
    )
    work = Requests.of(t / 16, p, o, adapter=x, priority=rng.integers(0, 3, len(p)), prefixes=prefixes, block=4)
    serving = Fleet([replica]).start(work, adapters=Adapters([8] * 4))
    eng, seq = serving.state.eng, serving.state.seq
    for until in np.arange(0.0, 3.0, 0.05):
        serving.run(float(until))
        held = sum(int(seq[q, columns.HELD]) for q in range(len(work)))
        distinct = int((serving.state.blocks[0, :-1, columns.USERS] > 0).sum())
        assert eng[0, columns.FREE] + distinct == blocks
        assert held == int(serving.state.blocks[0, :-1, columns.USERS].sum())
        assert not set(serving.running(0)) & set(serving.waiting(0))
        assert np.all(seq[:, columns.KNOWN] <= seq[:, columns.PROMPT] + seq[:, columns.OUTPUT])
        assert len(serving.running(0)) == eng[0, columns.RUNS] <= 4
    serving.run()
    got = serving.result()
    assert np.all(np.isfinite(got.finish))
    assert got.generated.tolist() == work.output.tolist()
    if policy != "static":
        assert eng[0, columns.FREE] == blocks
    assert np.all(got.arrived <= got.first_scheduled)
    assert np.all(got.first_scheduled < got.first_token)
    assert np.all(got.first_token <= got.finish)


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_one_at_a_time_waits_as_pollaczek_and_khinchine_say(spread):
    rng = np.random.default_rng(3)
    n, load = 100_000, 0.7
    prompt = np.full(n, 100) if not spread else rng.integers(1, 200, n)
    service = prompt * MS
    rate = load / service.mean()
    work = Requests.of(np.cumsum(rng.exponential(1 / rate, n)), prompt, 1)
    got = Replica(cost=AffineCost(0.0, MS), blocks=100, max_seqs=1).run(work)
    wait = (got.first_token - got.arrived - service).mean()
    theory = rate * (service**2).mean() / (2 * (1 - load))
    assert wait == pytest.approx(theory, rel=0.02)


def _some(n=60, seed=0, rate=30.0, **more):
    rng = np.random.default_rng(seed)
    return Requests.of(np.cumsum(rng.exponential(1 / rate, n)), rng.integers(1, 120, n), rng.integers(1, 60, n), **more)


def test_all_times_scale_together():
    work = _some()
    slow = Requests.of(work.arrival_s * 4, work.prompt, work.output)
    one = Replica(cost=AffineCost(8 * MS, MS / 16, MS / 1024), blocks=40).run(work)
    four = Replica(cost=AffineCost(32 * MS, MS / 4, MS / 256), blocks=40).run(slow)
    assert one.preemptions.sum() > 0
    assert (one.finish * 4).tolist() == four.finish.tolist()


def test_enough_memory_means_no_preemption():
    assert Replica(cost=AffineCost(8 * MS), blocks=10**4).run(_some()).preemptions.sum() == 0


def test_a_replica_more_never_lowers_throughput():
    work = Requests.of(np.arange(200) * 5 * MS, 50, 20)
    served = [
        Fleet([Replica(cost=AffineCost(10 * MS, MS), blocks=400)] * n, "least-tokens").run(work).summary()["token_per_s"] for n in (1, 2, 3)
    ]
    assert served == sorted(served)


def test_distinct_prefixes_change_nothing_and_shared_ones_are_computed_once():
    cost = AffineCost(1 * MS, 1 * MS)
    prompt = 64
    work = lambda names: Requests.of([0.0, 1.0], [prompt] * 2, [2, 2], prefixes=names)  # noqa: E731
    apart = [chained(np.arange(4, dtype=np.uint64), start=k) for k in (1, 2)]
    on, off = (Replica(cost=cost, blocks=50, prefix_cache=x).run(work(apart)) for x in (True, False))
    assert on.finish.tolist() == off.finish.tolist()
    same = Replica(cost=cost, blocks=50).run(work([apart[0]] * 2))
    assert same.cached_tokens.tolist() == [0, 48]
    assert _ms(same.first_token) == [65.0, 1017.0]


def test_samples_of_one_prompt_share_its_blocks():
    names = [chained(np.arange(4, dtype=np.uint64))] * 8
    serving = Fleet([Replica(cost=AffineCost(MS), blocks=50)]).start(Requests.of([0.0] * 8, [65] * 8, [20] * 8, prefixes=names))
    serving.run(1.5 * MS)
    assert int((serving.state.blocks[0, :-1, columns.USERS] == 8).sum()) == 4
    assert serving.snapshot(0).free_blocks == 50 - 4 - 8
    serving.run()
    assert serving.snapshot(0).free_blocks == 50


def test_a_run_may_be_cut_into_pieces():
    work = _some(200, rate=60)
    fleet = Fleet([Replica(cost=AffineCost(8 * MS, MS / 16), blocks=40)] * 2, "least-requests")
    whole = fleet.run(work)
    serving = fleet.start(work)
    for until in np.arange(0.0, 12.0, 0.013):
        serving.run(float(until))
    serving.run()
    assert serving.result().finish.tolist() == whole.finish.tolist()


def test_swapped_sequences_come_back_with_their_kv():
    work = Requests.of([0, 0], [8, 8], [8, 8])
    lost = Replica(cost=AffineCost(10 * MS), blocks=6, block=4).run(work)
    kept = Replica(cost=AffineCost(10 * MS), blocks=6, block=4, preemption="swap", swap_tokens=100, swap_token_s=0.1 * MS).run(work)
    assert kept.preemptions.tolist() == [0, 1]
    # 12 tokens out in the iteration of the preemption and in again in the one that lets it run
    assert _ms(kept.finish) == [81.2, 112.4]
    assert _ms(lost.finish) == [80.0, 110.0]


def test_right_drafts_save_iterations():
    work = Requests.of([0.0], [10], [41])
    one = Replica(cost=AffineCost(10 * MS), blocks=50).run(work)
    all_right = Replica(cost=AffineCost(10 * MS), blocks=50, draft=3, acceptance=[1.0]).run(work)
    all_wrong = Replica(cost=AffineCost(10 * MS), blocks=50, draft=3, acceptance=[0.0]).run(work)
    assert _ms([one.finish[0], all_right.finish[0], all_wrong.finish[0]]) == [410.0, 110.0, 410.0]


def test_drafts_are_accepted_as_often_as_their_chance_says():
    work = Requests.of(np.zeros(50), 10, 400)
    got = Replica(cost=AffineCost(10 * MS), blocks=5000, draft=2, acceptance=[0.6, 0.6], max_seqs=64).run(work)
    per_step = 399 / (got.tpot * 399 / (10 * MS))
    assert per_step.mean() == pytest.approx(1 + 0.6 + 0.36, rel=0.03)


def test_loads_beside_the_work_delay_only_those_who_need_them():
    adapters = Adapters([8, 8], 25 * MS, 25 * MS)
    work = Requests.of([0, 0], [10, 10], [4, 4], adapter=[-1, 1])
    blocking = Replica(cost=AffineCost(10 * MS), blocks=50, slots=1).run(work, adapters=adapters)
    beside = Replica(cost=AffineCost(10 * MS), blocks=50, slots=1, async_load=True).run(work, adapters=adapters)
    assert _ms(blocking.finish) == [65.0, 65.0]
    assert _ms(beside.finish) == [40.0, 70.0]


def test_the_host_holds_the_adapters_used_last():
    adapters = Adapters([8] * 3, 1 * MS, 100 * MS)
    work = Requests.of(np.arange(4.0), 10, 1, adapter=[0, 1, 0, 1])
    got = Replica(cost=AffineCost(10 * MS), blocks=50, slots=1, host_adapters=2).run(work, adapters=adapters)
    assert _ms(got.e2e) == [110.0, 110.0, 11.0, 11.0]
    got = Replica(cost=AffineCost(10 * MS), blocks=50, slots=1, host_adapters=1).run(work, adapters=adapters)
    assert _ms(got.e2e) == [110.0] * 4


def test_static_batches_end_together_and_orca_reserves():
    work = Requests.of([0, 0, 0], [10] * 3, [2, 6, 2])
    static = Replica(cost=AffineCost(10 * MS), blocks=50, max_seqs=2, policy="static").run(work)
    assert _ms(static.finish) == [20.0, 60.0, 80.0]
    orca = Replica(cost=AffineCost(10 * MS), blocks=50, max_seqs=2, policy="orca").run(work)
    assert _ms(orca.finish) == [20.0, 60.0, 40.0]
    narrow = Replica(cost=AffineCost(10 * MS), blocks=3, block=8, policy="orca", max_output=6).run(work)
    assert _ms(narrow.finish) == [20.0, 80.0, 100.0]


def test_the_short_and_the_important_go_first():
    work = Requests.of([0, 0, 0], [10] * 3, [9, 5, 1], priority=[1, 0, 2])
    one = {"cost": AffineCost(10 * MS), "blocks": 50, "max_seqs": 1}
    assert np.argsort(Replica(**one, policy="sjf-oracle").run(work).finish).tolist() == [2, 1, 0]
    assert np.argsort(Replica(**one, policy="priority").run(work).finish).tolist() == [1, 0, 2]
    assert np.argsort(Replica(**one).run(work).finish).tolist() == [0, 1, 2]


def test_when_all_had_to_go_back_someone_is_let_in_again():
    work = Requests.of([0, 0, 0], [3, 3, 6], [9, 9, 4], priority=[2, 1, 0])
    got = Replica(cost=AffineCost(10 * MS), blocks=3, block=4, policy="priority", max_batched_tokens=5).run(work)
    assert np.all(np.isfinite(got.finish))
    assert got.preemptions.sum() > 0
    assert int(np.argmin(got.finish)) == 2


def test_sglang_runs_prompts_before_decodes_and_known_prefixes_first():
    names = [chained(np.full(4, k, np.uint64)) for k in (1, 2, 1)]
    work = Requests.of([0.0, 15 * MS, 15 * MS], [65] * 3, [3, 3, 3], prefixes=names)
    got = Replica(cost=AffineCost(10 * MS), blocks=50, policy="sglang", max_batched_tokens=65).run(work)
    # the third, whose prefix is there, goes before the second; the first one's decodes wait for both prompts
    assert got.cached_tokens.tolist() == [0, 0, 64]
    assert _ms(got.first_token) == [10.0, 40.0, 30.0]


@pytest.mark.parametrize(
    "router", ["round-robin", "random", "least-requests", "least-tokens", "power-of-two", "session", "prefix", "adapter", "weighted"]
)
def test_routers_lose_nobody(router):
    work = _some(300, rate=200)
    got = Fleet([Replica(cost=AffineCost(8 * MS, MS / 16), blocks=60)] * 4, router).run(work)
    assert np.all(np.isfinite(got.finish))
    if router not in ("session",):
        assert len(set(got.replica.tolist())) == 4
    again = Fleet([Replica(cost=AffineCost(8 * MS, MS / 16), blocks=60)] * 4, router).run(work)
    assert again.finish.tolist() == got.finish.tolist()


def test_routers_do_what_they_are_called():
    pair = [Replica(cost=AffineCost(10 * MS), blocks=100)] * 2
    work = Requests.of([0, 1 * MS, 2 * MS, 3 * MS], [400, 10, 10, 10], [20] * 4)
    assert Fleet(pair, "round-robin").run(work).replica.tolist() == [0, 1, 0, 1]
    assert Fleet(pair, "least-tokens").run(work).replica.tolist() == [0, 1, 1, 1]
    assert Fleet(pair, "least-requests").run(work).replica.tolist() == [0, 1, 0, 1]
    assert Fleet(pair, "weighted", weights=[0, 1]).run(work).replica.tolist() == [1] * 4
    assert Fleet(pair, lambda serving, q: q % 2).run(work).replica.tolist() == [0, 1, 0, 1]
    same = Requests.of([0, 1, 2, 3], [65] * 4, [2] * 4, prefixes=[chained(np.full(4, k, np.uint64)) for k in (1, 2, 2, 1)])
    assert Fleet(pair, "prefix").run(same).replica.tolist() == [0, 0, 0, 0]
    loaded = Fleet(pair, "prefix").run(
        Requests.of([0, 1 * MS, 1, 2], [65] * 4, [2] * 4, prefixes=[chained(np.full(4, k, np.uint64)) for k in (1, 2, 2, 1)])
    )
    assert loaded.replica.tolist() == [0, 1, 1, 0]
    given = Fleet(pair).run(work, home=np.array([1, 1, 0, -1]))
    assert given.replica.tolist()[:3] == [1, 1, 0]


def test_a_router_sees_old_loads_where_they_are_stale():
    pair = [Replica(cost=AffineCost(10 * MS), blocks=100)] * 2
    work = Requests.of(np.arange(6) * MS, [100] * 6, [20] * 6)
    assert Fleet(pair, "least-tokens", staleness_s=1.0).run(work).replica.tolist() == [0] * 6


def test_prefill_hands_over_to_decode():
    fleet = Fleet(
        [Replica(cost=AffineCost(10 * MS), blocks=100, role="prefill"), Replica(cost=AffineCost(5 * MS), blocks=100, role="decode")],
        handover=lambda serving, q, a, b: 3 * MS,
    )
    got = fleet.run(Requests.of([0.0], [20], [4]), token_times=True)
    assert _ms(got.token_time) == [10.0, 18.0, 23.0, 28.0]
    assert got.replica.tolist() == [1]
    many = fleet.run(_some(200))
    assert np.all(np.isfinite(many.finish))


def test_requests_of_a_lost_replica_are_served_elsewhere():
    fleet = Fleet([Replica(cost=AffineCost(10 * MS), blocks=100)] * 2, "round-robin")
    work = Requests.of([0.0, 0.0], [10, 10], [10, 10])
    serving = fleet.start(work)
    failures(serving, [(0.035, 0, "down"), (0.2, 0, "up")])
    serving.run()
    got = serving.result()
    assert got.replica.tolist() == [1, 1]
    # three tokens were out; the fourth was in flight, and its prompt and tokens are computed again
    assert _ms(got.finish) == [110.0, 100.0]
    alone = Fleet([Replica(cost=AffineCost(10 * MS), blocks=100)]).start(Requests.of([0.0], [10], [10]))
    failures(alone, [(0.035, 0, "down"), (0.2, 0, "up")])
    alone.run()
    assert _ms(alone.result().finish) == [270.0]


def test_a_request_can_be_ended_sent_again_and_moved():
    serving = Fleet([Replica(cost=AffineCost(10 * MS), blocks=100)] * 2).start(Requests.of([0.0], [10], [10]))
    serving.run(0.035)
    serving.abort(0)
    assert serving.snapshot(0).free_blocks == 100
    serving.resubmit(0, kept_tokens=2)
    serving.run()
    # the other replica idles and takes it at 35 ms; eight tokens are left, and the iteration that ends at 40 ms adds none
    assert _ms(serving.result().finish) == [115.0]
    serving = Fleet([Replica(cost=AffineCost(10 * MS), blocks=100)] * 2).start(Requests.of([0.0], [10], [10]))
    serving.run(0.035)
    serving.migrate(0, 1, seconds=5 * MS)
    serving.run()
    assert _ms(serving.result().finish) == [110.0]
    assert serving.result().replica.tolist() == [1]


def test_a_closed_loop_keeps_its_concurrency():
    work = Requests.of(np.zeros(6), 10, 2, follows=[-1, -1, 0, 1, 2, 3], think_s=[0, 0, 0.1, 0.1, 0.1, 0.1])
    got = Replica(cost=AffineCost(10 * MS), blocks=50).run(work)
    assert _ms(got.arrived) == [0, 0, 120, 120, 240, 240]


def test_a_paused_and_a_drained_replica():
    serving = Fleet([Replica(cost=AffineCost(10 * MS), blocks=100, max_seqs=1)] * 2).start(Requests.of([0.0] * 4, 10, 5))
    serving.run(0.0)
    sent = serving.drain(0)
    serving.run()
    got = serving.result()
    assert len(sent) == 1
    assert got.replica.tolist().count(0) == 1
    assert np.all(np.isfinite(got.finish))


def test_when_the_last_replica_is_drained_what_comes_waits_for_ever():
    serving = Fleet([Replica(cost=AffineCost(10 * MS), blocks=100, max_seqs=1)]).start(Requests.of([0.0, 0.0, 1.0], 10, 5))
    serving.run(0.02)
    assert serving.drain(0) == [1]
    serving.run()
    assert np.isfinite(serving.result().finish).tolist() == [True, False, False]


def test_a_request_that_waits_with_its_kv_keeps_it_when_it_moves():
    serving = Fleet([Replica(cost=AffineCost(10 * MS, token=1 * MS), blocks=100)] * 3).start(Requests.of([0.0], [100], [10]))
    serving.run(0.15)
    serving.pause(1)
    serving.migrate(0, 1)
    serving.run(0.2)
    assert serving.waiting(1) == [0]
    serving.migrate(0, 2)
    serving.run()
    twice = serving.result().finish[0]
    serving = Fleet([Replica(cost=AffineCost(10 * MS, token=1 * MS), blocks=100)] * 3).start(Requests.of([0.0], [100], [10]))
    serving.run(0.2)
    serving.migrate(0, 2)
    serving.run()
    # Nothing is computed again: between the two moves only the time of the pause is lost.
    assert twice - serving.result().finish[0] < 0.1


def test_the_summary_counts_what_happened_in_the_window(tmp_path):
    got = Replica(cost=AffineCost(10 * MS), blocks=100).run(Requests.of([0.0, 0.5], [10, 20], [10, 10]), token_times=True)
    s = got.summary()
    assert s["finished"] == 2
    assert s["mean_tpot_s"] == pytest.approx(0.01)
    assert s["p50_itl_s"] == pytest.approx(0.01, rel=0.02)
    assert s["token_per_s"] == pytest.approx(50 / 0.6)
    assert s["starved"] == 0.0
    assert got.summary(warm_up_s=0.4)["output_token_per_s"] == pytest.approx(10 / 0.2)
    assert got.goodput(0.05, 0.02) == pytest.approx(2 / 0.6)
    got.write(tmp_path / "run.json")
    assert (tmp_path / "run.json").stat().st_size > 100
    with pytest.raises(InputError, match=r"expected \.json or \.parquet"):
        got.write(tmp_path / "run.txt")
    assert len(got.perfetto()["traceEvents"]) == 1 + len(got.log)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Replica(cost=AffineCost(1.0), blocks=10, policy="fifo"),
        lambda: Replica(cost=AffineCost(1.0)),
        lambda: Replica(blocks=3),
        lambda: Replica(cost=AffineCost(1.0), blocks=0).run(_some()),
        lambda: Replica(cost=AffineCost(1.0), blocks=1).run(_some()),
        lambda: Replica(cost=AffineCost(1.0), blocks=90).run(_some(adapter=0)),
        lambda: Replica(cost=AffineCost(1.0), blocks=90).run(_some(adapter=0), adapters=Adapters([8])),
        lambda: Requests.of([0, np.nan], 1, 1),
        lambda: Requests.of([0.0], 0, 1),
        lambda: Requests.of([0.0, 1.0], [1, 2, 3], 1),
        lambda: Requests.of([0.0], 1, 1, follows=0),
        lambda: Fleet([]),
        lambda: Fleet([Replica(cost=AffineCost(1.0), blocks=9)], "best"),
        lambda: Fleet([Replica(cost=AffineCost(1.0), blocks=9, role="decode")]),
        lambda: Fleet([Replica(cost=AffineCost(1.0), blocks=90)]).run(_some(), home=np.full(60, 3)),
        lambda: Replica(cost=AffineCost(1.0), blocks=90, block=8).run(Requests.of([0.0], 33, 1, prefixes=[np.ones(2, np.uint64)])),
        lambda: Adapters([0]),
    ],
)
def test_bad_input_is_refused_in_a_line(make):
    with pytest.raises(InputError) as caught:
        make()
    assert "\n" not in str(caught.value)
