"""Services live through losses, repairs and slow GPUs with the times computed by hand, and lose no delivered token."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.llm import Requests
from armillary.llm.serving import state as st
from armillary.serving.resilience import (
    FailSafe,
    Fault,
    FaultTrace,
    Layout,
    ResilienceWork,
    RestartKeep,
    RestoreRecompute,
    make_node,
    plan_recovery,
    price,
    random_faults,
    scripted,
    traffic,
)
from armillary.serving.resilience.arena import resilience
from armillary.serving.resilience.simulation.service import Service

NODE = make_node("llama-3.1-70b")
TECHNIQUES = list(resilience.techniques)


def work(faults: list[Fault], requests: Requests, window_s: float = 40.0) -> ResilienceWork:
    return ResilienceWork(NODE, requests, FaultTrace.of(faults, 8), window_s)


def one(output: int = 2000, prompt: int = 1000) -> Requests:
    return Requests.of([0.0], [prompt], [output])


def chat(rate: float = 3.0, window_s: float = 40.0, seed: int = 1) -> Requests:
    return traffic("azure-conv", rate, window_s, seed)


def prompt_seconds(layout: Layout, new: int, before: int = 0) -> float:
    """Returns the seconds of an iteration that computes `new` tokens of a prompt after `before` cached ones."""
    p = price(NODE, layout).arrays()
    pairs = new * before + new * (new + 1) / 2
    return float(np.interp(new, p.tokens, p.body_s)) + float(np.interp(1, p.tokens, p.head_s)) + p.pair_s * pairs


def all_blocks_are_free(service: Service) -> bool:
    free = service.serving.state.eng[:, [st.FREE, st.CAPACITY]]
    return bool((free[:, 0] == free[:, 1]).all())


def to(service: Service, time_s: float) -> None:
    """Lets time pass as `run` does."""
    step = service.tick_s or time_s
    for k in range(1, int(time_s / step) + 1):
        if k * step > service.now:
            service.serving.run(k * step)
            service.tick()
    service.serving.run(time_s)


def test_a_restart_takes_what_the_formula_says() -> None:
    service = RestoreRecompute().service(work([Fault(5.0, 0, "down")], one()))
    service.serving.run(4.9999999)
    seq = service.serving.state.seq
    service.serving.run(5.0)
    known = int(seq[0, st.KNOWN])
    served = service.run()
    four = NODE.layout(4)
    weights_s = float(NODE.weight_bytes(four).max()) / NODE.pcie
    assert served.recovery_s.tolist() == [pytest.approx(0.1 + 20.0 + weights_s + prompt_seconds(four, known), rel=1e-9)]
    assert served.metrics()["lost_tokens"] == known - 1
    assert served.metrics()["kv_capacity"] == NODE.kv_blocks(four) * 16


def test_a_recovery_takes_detection_copies_and_the_tail() -> None:
    service = FailSafe().service(work([Fault(5.0, 0, "down")], one()))
    to(service, 5.0)
    known = int(service.serving.state.seq[0, st.KNOWN])
    served = service.run()
    kept = (known - 1) // 16 * 16
    plan = plan_recovery(NODE.layout(8), 0, [known - 1], [kept], node=NODE)
    assert known - kept > 1
    tail_s = prompt_seconds(plan.layout, known - kept, kept)
    assert served.recovery_s.tolist() == [pytest.approx(0.15 + plan.seconds + tail_s, rel=1e-9)]
    assert served.metrics()["lost_tokens"] == known - 1 - kept
    standard = RestoreRecompute().service(work([Fault(5.0, 0, "down")], one())).run()
    assert served.metrics()["recovery_s"] < standard.metrics()["recovery_s"] / 50


def test_nothing_runs_before_the_weights_are_there() -> None:
    late = Requests.of([5.16], [100], [5])
    served = FailSafe().service(work([Fault(5.0, 0, "down")], late)).run()
    plan = plan_recovery(NODE.layout(8), 0, [1], [0], node=NODE)
    assert served.result.first_token[0] == pytest.approx(5.15 + plan.weights_s + prompt_seconds(plan.layout, 100), rel=1e-9)


def test_without_a_mirror_everything_is_computed_again() -> None:
    requests, faults = chat(), [Fault(20.0, 3, "down")]
    with_mirror, without = (FailSafe(backup_share=s).service(work(faults, requests)).run().metrics() for s in (0.5, 0.0))
    assert without["lost_tokens"] > 50 * with_mirror["lost_tokens"] > 0
    assert without["host_bw"] == 0.0 < with_mirror["host_bw"]
    assert without["recovery_s"] > with_mirror["recovery_s"]
    slow_link = FailSafe(backup_share=0.001).service(work(faults, requests)).run().metrics()
    assert with_mirror["lost_tokens"] < slow_link["lost_tokens"] < without["lost_tokens"]
    assert slow_link["host_bw"] <= 0.001 * 55 * 8 * 1.01


def test_no_delivered_token_is_lost_or_changed() -> None:
    service = FailSafe().service(work([Fault(10.0, 3, "down"), Fault(10.2, 5, "down"), Fault(18.0, 0, "down")], chat(6.0)))
    seq, times = service.serving.state.seq, service.serving.measures.token_time
    before, known = times.copy(), seq[:, st.KNOWN].copy()
    for now in (9.9, 10.05, 10.16, 10.19, 10.25, 10.5, 17.9, 18.05, 18.3, 39.0):
        to(service, now)
        assert (seq[:, st.KNOWN] >= known).all()
        there = np.isfinite(before)
        assert (times[there] == before[there]).all()
        before, known = times.copy(), seq[:, st.KNOWN].copy()
    assert not service.limbo
    assert not service.queue
    assert service.layout.devices == (1, 2, 4, 6, 7)  # type: ignore[attr-defined]


def test_a_loss_during_recovery_begins_from_what_is_there() -> None:
    words = []
    # Weights take from 10.15 to 10.196 s; the second loss comes before, during and after that.
    for second in (10.14, 10.18, 11.0):
        service = FailSafe().service(work([Fault(10.0, 3, "down"), Fault(second, 5, "down")], chat()))
        service.run()
        words.append(service.story[1][1])
    fetched = [float(w.split(": ")[1].split(" GB of weights")[0]) for w in words]
    assert fetched[0] == pytest.approx(35.3, abs=0.1)
    assert fetched[0] > fetched[1] > fetched[2]


def test_too_few_survivors_stop_the_service_until_a_repair() -> None:
    lost = [Fault(4.0 + k, k, "down") for k in range(6)]
    service = FailSafe().service(work([*lost, Fault(20.0, 0, "up")], chat(2.0, 15.0), 60.0))
    served = service.run()
    words = [w for _, w in served.story]
    assert any("the 2 left do not hold the model: stopped" in w for w in words)
    assert "3 GPUs go on" in words[-1]
    quiet = served.result.token_time
    back = next(t for t, w in served.story if "joins" in w)
    assert 40.0 < back < 42.0
    assert not ((quiet > 9.1) & (quiet < back)).any()
    service.serving.run(2000.0)
    assert np.isfinite(service.serving.result().finish).all()


def test_a_repaired_gpu_joins_without_a_hole() -> None:
    service = FailSafe().service(work([Fault(2.0, 3, "down"), Fault(5.0, 3, "up")], one(4000)))
    served = service.run()
    joined = next(t for t, w in served.story if "8 GPUs serve" in w)
    assert joined == pytest.approx(25.0 + float(NODE.weight_bytes(NODE.layout(8)).max()) / NODE.pcie, abs=0.05)
    gaps = np.diff(served.result.token_time[np.isfinite(served.result.token_time)])
    after = np.flatnonzero(served.result.token_time > joined)[0]
    assert gaps[after - 5 : after + 5].max() < 1.2 * np.median(gaps)
    assert np.median(gaps[after + 1 : after + 50]) < np.median(gaps[after - 50 : after - 1])
    assert served.metrics()["lost_tokens"] < 16


def test_old_requests_keep_their_place_after_a_repair_or_move_at_once() -> None:
    faults = [Fault(2.0, 3, "down"), Fault(5.0, 3, "up")]
    requests = Requests.of(np.zeros(40), np.full(40, 20_000), np.full(40, 1500))
    gaps = []
    for lazy in (True, False):
        service = FailSafe(lazy_rebalance=lazy).service(work(faults, requests))
        served = service.run()
        joined = next(t for t, w in served.story if "8 GPUs serve" in w)
        times = np.sort(served.result.token_time[:1500])
        gaps.append(float(np.median(np.diff(times[(times > joined + 0.5) & (times < joined + 3)]))))
    assert gaps[0] > 1.02 * gaps[1]


def test_a_gpu_lost_again_before_it_joins_does_not() -> None:
    service = FailSafe().service(work([Fault(2.0, 3, "down"), Fault(5.0, 3, "up"), Fault(15.0, 3, "down")], one(500)))
    words = [w for _, w in service.run().story]
    assert not any("joins" in w for w in words)
    assert service.alive == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.parametrize("technique", [FailSafe(), RestoreRecompute()])
def test_a_slow_gpu_slows_all(technique: FailSafe | RestoreRecompute) -> None:
    served = technique.service(work([Fault(10.0, 6, "slow", 2.0), Fault(20.0, 6, "slow", 1.0)], one(4000))).run()
    times = served.result.token_time
    pace = [float(np.median(np.diff(times[(times > a) & (times < a + 9)]))) for a in (1.0, 11.0, 21.0)]
    assert 1.5 * pace[0] < pace[1] < 2.0 * pace[0]
    assert pace[2] == pytest.approx(pace[0], rel=0.02)


def test_an_idle_gpu_is_not_missed() -> None:
    found = RestoreRecompute().service(work([Fault(5.0, 0, "down"), Fault(30.0, 7, "down")], one(4000)))
    served = found.run()
    assert len(served.recovery_s) == 1
    assert found.group == [1, 2, 3, 4]


def test_a_retry_begins_anew_and_counts_what_came_first() -> None:
    service = RestartKeep().service(work([Fault(5.0, 0, "down")], one(500), 60.0))
    service.serving.run(4.9999)
    first = service.serving.measures.token_time.copy()
    served = service.run()
    out = np.isfinite(first)
    assert out.sum() > 100
    assert (served.result.token_time[out] == first[out]).all()
    again = RestoreRecompute().service(work([Fault(5.0, 0, "down")], one(500), 60.0)).run()
    assert served.result.finish[0] > again.result.finish[0] + 1.0
    assert served.recovery_s[0] > again.recovery_s[0]


@pytest.mark.parametrize("name", TECHNIQUES)
def test_every_technique_serves_everything_once(name: str) -> None:
    requests = chat(4.0, 60.0)
    found = work([Fault(10.0, 2, "down"), Fault(30.0, 5, "down"), Fault(35.0, 2, "up")], requests, 60.0)
    service = resilience.make(name).service(found)  # type: ignore[attr-defined]
    served = service.run()
    metrics = served.metrics()
    assert metrics["token_throughput"] > 0
    service.serving.run(3000.0)
    end = service.serving.result()
    assert (end.generated == requests.output).all()
    assert np.isfinite(end.finish).all()
    for q in range(len(requests)):
        times = end.token_time[end.token_at[q] : end.token_at[q + 1]]
        assert np.isfinite(times).all()
        assert (np.diff(times) >= 0).all()
        assert times[0] >= requests.arrival_s[q]
    assert all_blocks_are_free(service)
    if name != "no-fault":
        assert len(served.recovery_s) > 0
        assert metrics["token_throughput"] <= resilience.make("no-fault").service(found).run().metrics()["token_throughput"] * 1.001  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 6))])
@pytest.mark.parametrize("technique", [FailSafe(), RestoreRecompute(), FailSafe(lazy_rebalance=False, backup_share=0.0)])
def test_storms_of_faults_break_nothing(seed: int, technique: FailSafe | RestoreRecompute) -> None:
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    storm = random_faults(300.0, rng, acceleration=3e6, repair_median_s=40.0)
    assert len(storm.faults) > 20
    service = technique.service(ResilienceWork(NODE, chat(1.0, 100.0, seed), storm, 300.0))
    service.run()
    last = {fault.device: fault.event for fault in storm.faults}
    for device in sorted(d for d, event in last.items() if event == "down"):
        service.up(device)
    service.serving.run(4000.0)
    end = service.serving.result()
    assert np.isfinite(end.finish).all()
    assert (end.generated == service.work.requests.output).all()
    assert all_blocks_are_free(service)


def test_a_model_that_half_the_node_does_not_hold() -> None:
    node = make_node("mixtral-8x22b")
    case = ResilienceWork(node, chat(2.0), scripted(1, 40.0), 40.0)
    with pytest.raises(NotForThisCase, match="does not fit on 4"):
        resilience.make("replicate-2").service(case)  # type: ignore[attr-defined]
    stopped = RestoreRecompute().service(case).run()
    assert "stopped" in stopped.story[0][1]
    assert FailSafe().service(case).run().metrics()["throughput_degraded"] > 100 * stopped.metrics()["throughput_degraded"]


def test_balanced_at_seven_six_and_five() -> None:
    losses = [Fault(5.0, 1, "down"), Fault(10.0, 4, "down"), Fault(15.0, 6, "down")]
    found = FailSafe().service(work(losses, chat(6.0))).run()
    assert [layout.gpus for layout in found.service.used.values()] == [8, 7, 6, 5]
    assert found.metrics()["imbalance"] <= 1.05
    assert found.metrics()["rank_imbalance"] < 1.1


def test_a_request_that_never_fits_is_refused() -> None:
    with pytest.raises(InputError, match="needs the KV"):
        FailSafe().service(work([], Requests.of([0.0], [2_000_000], [5])))


def test_a_host_too_small_for_the_mirror_is_refused() -> None:
    little = ResilienceWork(dataclasses.replace(NODE, host_bytes=3e11), one(), FaultTrace(), 40.0)
    with pytest.raises(InputError, match="do not hold the weights and a mirror"):
        FailSafe().service(little)
    assert FailSafe(backup_share=0.0).service(little).run().metrics()["host_bw"] == 0.0


def test_cases_have_what_they_say() -> None:
    cases = {c.name: dataclasses.replace(c, parameters={**c.parameters, "window_s": 40.0}) for c in resilience.built_in("small")}
    assert len(cases["chat-3-losses"].at(0, 0).workload.faults.faults) == 3
    long = cases["long-context"].at(0, 0).workload.requests
    assert long.prompt.mean() > 5000
    repair = cases["chat-repair"].at(0, 0).workload.faults
    assert [f.event for f in repair.faults] == ["down", "up"]


def test_own_faults_get_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "faults.csv"
    path.write_text("time_s,device,event\n4,3,down\n")
    options = {"window": "12", "rate": "2"}
    found = armillary.compare("serving/resilience", work=path, options=options, techniques=["failsafe", "restore-recompute"])
    assert "while a GPU is gone" in found.answer()
    with pytest.raises(InputError, match="no room"):
        resilience.from_file(path, {"gpus": "2"})


def test_own_requests_and_named_faults(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.0,374,44\n2023-11-16 18:17:04.0,396,109\n")
    case = resilience.from_file(path, {"faults": "one", "window": "30"})[0]
    assert len(case.workload.requests) == 2
    assert "loss" in case.kinds
    with pytest.raises(InputError, match="unknown faults"):
        resilience.from_file(path, {"faults": "five"})
    named = tmp_path / "f.csv"
    named.write_text("time_s,device,event\n1,0,down\n")
    with pytest.raises(InputError, match="no such file"):
        resilience.from_file(named, {"requests": str(tmp_path / "none.csv")})
