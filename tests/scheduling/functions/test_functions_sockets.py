"""DHRT by itself: allocations for real calls, Knative, the Kubernetes scheduler, and processes of this machine."""

from __future__ import annotations

import json
import math
import os
import time
import urllib.request

import numpy as np
import pytest
from local_calls import digest, fail, product, rest, touch

from armillary.errors import InputError
from armillary.scheduling.functions import (
    Allocation,
    Call,
    Dhrt,
    EdfFixed,
    EdfTuned,
    FixedLeastLoaded,
    LocalCall,
    LocalRunner,
    MaxAlloc,
    Oracle,
    Profiled,
    Worker,
    judge,
    service_patch,
)
from armillary.scheduling.functions.execution.here import drawn
from armillary.scheduling.functions.execution.here import play as here_play
from armillary.scheduling.functions.sockets import local_runner
from armillary.scheduling.functions.sockets.local_runner import Ran
from armillary.scheduling.kubernetes import Extender, Node, Pod

STANDARD = Worker("n1", "standard", cores=32, free=20, free_mb=65536)
FAST = Worker("n2", "fast", cores=16, free=16, free_mb=65536, speed=1.6, price=1.9)


def learned(parallel: float = 0.0, work_s: float = 4.0, runs: int = 30, **how) -> Dhrt:
    """A DHRT that has seen runs on both nodes."""
    dhrt = Dhrt(explore=0.0, **how)
    for i in range(runs):
        for node in (STANDARD, FAST):
            v = (1.0, 2.0, 4.0)[i % 3]
            wall = work_s / node.speed * (1 - parallel + parallel / v)
            throttled = wall * (parallel / v) / (1 - parallel + parallel / v)
            assert dhrt.observe(Call("f", 1), work_s / node.speed, wall, 300.0, node, v, throttled_s=throttled)
    return dhrt


def test_the_first_call_gets_what_its_owner_asks_for():
    dhrt = Dhrt()
    assert dhrt.allocate(Call("f", 9.0, vcpu=4, memory_mb=1000), [STANDARD, FAST]) == ("n2", 4.0, 1000)
    assert dhrt.allocate(Call("f", 9.0), [STANDARD]) == ("n1", 1.0, 512)
    assert dhrt.allocate(Call("f", 9.0, vcpu=3), [STANDARD]).vcpu == 4, "the next size of the menu"
    warm = Worker("n3", "standard", 32, 4, warm=frozenset({"f"}))
    assert dhrt.allocate(Call("f", 9.0), [STANDARD, warm]).node == "n3"
    assert dhrt.allocate(Call("f", 9.0), [Worker("full", "standard", 32, 0.0)]).node is None


def test_allocations_follow_deadlines_and_prices():
    dhrt = learned()
    node, vcpu, memory = dhrt.allocate(Call("f", 10.0), [STANDARD, FAST])
    assert (node, vcpu, memory) == ("n1", 0.5, 384), "1.2 times the peak of 300 MB, in steps of 64 MB"
    assert dhrt.allocate(Call("f", 3.0), [STANDARD, FAST]).node == "n2"
    parallel = learned(0.95, 16.0)
    assert parallel.allocate(Call("f", 7.5), [STANDARD]).vcpu == 4
    assert parallel.allocate(Call("f", 30.0), [STANDARD]).vcpu == 0.5 or parallel.allocate(Call("f", 30.0), [STANDARD]).vcpu == 1
    assert parallel.allocate(Call("f", 1.0), [STANDARD]).vcpu <= 1, "best effort takes the cheapest"


def test_a_call_waits_for_a_place_that_would_be_in_time():
    dhrt = learned(0.95, 16.0)
    full = Worker("n1", "standard", 32, 1.0, free_mb=65536)
    assert dhrt.allocate(Call("f", 7.5), [full]).node is None
    assert dhrt.allocate(Call("f", 7.5), [full, Worker("n9", "standard", 32, 8.0)]).node == "n9"


def test_a_cold_start_counts_against_the_deadline():
    dhrt = learned()
    warm = Worker("n3", "standard", 32, 20, warm=frozenset({"f"}))
    assert dhrt.allocate(Call("f", 4.8, cold_s=2.0), [STANDARD, warm, FAST]).node in ("n3", "n2")
    assert dhrt.allocate(Call("f", 4.8, cold_s=2.0), [STANDARD, FAST]).node == "n2"


def test_a_running_call_that_falls_behind_gets_more():
    dhrt = learned(0.95, 16.0)
    call = Call("f", deadline_s=7.5, now_s=3.0)
    assert dhrt.allocator.raised(call, STANDARD, 4.0, elapsed_s=3.0, used=0.35) > 4
    assert dhrt.allocator.raised(call, STANDARD, 4.0, elapsed_s=3.0, used=0.6) == 4
    assert dhrt.allocator.raised(call, Worker("n", "standard", 4, 0.0), 4.0, elapsed_s=3.0, used=0.35) == 4


def test_a_kill_doubles_the_memory_for_fifty_runs():
    dhrt = learned()
    dhrt.allocator.killed(Call("f", 1), 384)
    assert dhrt.allocate(Call("f", 10.0), [STANDARD]).memory_mb == 768
    for _ in range(50):
        dhrt.observe(Call("f", 1), 4.0, 4.0, 310.0, STANDARD, 1.0)
    assert dhrt.allocate(Call("f", 10.0), [STANDARD]).memory_mb == 384


@pytest.mark.parametrize(
    ("cpu", "wall", "peak"),
    [(math.nan, 1, 1), (1, math.nan, 1), (1, math.inf, 1), (1, 0, 1), (1, -1, 1), (1, 1, math.nan), (math.inf, 1, 1), (1, 1, -2)],
)
def test_timings_that_are_no_numbers_are_dropped_and_counted(cpu, wall, peak):
    dhrt = learned(runs=1)
    before = dhrt.allocator.expect("f", STANDARD, 1.0)
    assert not dhrt.observe(Call("f", 1), cpu, wall, peak, STANDARD, 1.0)
    assert dhrt.allocator.dropped == 1
    assert dhrt.allocator.expect("f", STANDARD, 1.0) == before


def test_what_cannot_be_allocated_is_said():
    dhrt = Dhrt()
    for call, nodes, message in (
        (Call("f", 1.0, now_s=2.0), [STANDARD], "expected a later time"),
        (Call("f", math.nan), [STANDARD], "expected a later time"),
        (Call("f", 1.0, size=0.0), [STANDARD], "size: found 0"),
        (Call("f", 1.0), [], "found no nodes"),
        (Call("f", 1.0), [Worker("n", "t", 1, 1, speed=0)], "expected more than 0"),
    ):
        with pytest.raises(InputError, match=message):
            dhrt.allocate(call, nodes)
    with pytest.raises(InputError, match=r"found 3 vCPUs; expected one of 0\.5"):
        dhrt.observe(Call("f", 1), 1, 1, 1, STANDARD, 3.0)


def test_an_unknown_node_type_is_taken_to_be_like_those_of_similar_functions():
    dhrt = Dhrt(explore=0.0)
    for _ in range(12):
        for name in ("a", "b", "c"):
            dhrt.observe(Call(name, 1), 4.0, 4.0, 100, STANDARD, 1.0)
            dhrt.observe(Call(name, 1), 1.25, 4.0 / 1.6 * 0.5, 100, FAST, 1.0)  # twice as fast as its speed says
        dhrt.observe(Call("new", 1), 8.0, 8.0, 100, STANDARD, 1.0)
    assert dhrt.allocator.expect("new", FAST, 1.0)[0] == pytest.approx(8 / 1.6 * 0.5, rel=0.05)
    blind = Dhrt(explore=0.0, node_factors=False)
    blind.observe(Call("new", 1), 8.0, 8.0, 100, STANDARD, 1.0)
    assert blind.allocator.expect("new", FAST, 1.0)[0] == pytest.approx(8 / 1.6)


def test_many_functions_and_node_types_find_room():
    dhrt = Dhrt()
    for i in range(40):
        node = Worker(f"n{i}", f"t{i % 7}", 8, 8, speed=1 + i % 7)
        dhrt.observe(Call(f"f{i}", 1), 2.0 + i, 2.0 + i, 100, node, 1.0)
    assert dhrt.allocator.expect("f33", Worker("x", "t5", 8, 8, speed=6.0), 1.0)[0] == pytest.approx(35.0)


# Knative and Kubernetes


def test_a_knative_patch_has_requests_limits_and_a_node_type():
    patch = service_patch(Allocation("n1", 0.5, 384), "c6i.4xlarge")
    spec = patch["spec"]["template"]["spec"]
    assert spec["containers"][0]["resources"] == {
        "requests": {"cpu": "500m", "memory": "384Mi"},
        "limits": {"cpu": "500m", "memory": "384Mi"},
    }
    assert spec["nodeSelector"] == {"node.kubernetes.io/instance-type": "c6i.4xlarge"}
    assert "nodeSelector" not in service_patch(Allocation(None, 1, 64))["spec"]["template"]["spec"]
    with pytest.raises(InputError, match="label"):
        service_patch(Allocation(None, 1, 64), "a b")
    with pytest.raises(InputError, match="more than 0"):
        service_patch(Allocation(None, 0, 64))


def pod(within: object = "3", cpu: str = "1", function: str = "f") -> dict:
    notes = {"armillary.dev/function": function, "armillary.dev/deadline-seconds": str(within)}
    return {"metadata": {"name": "p", "annotations": notes}, "spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}}


def node(name: str, kind: str) -> dict:
    return {
        "metadata": {"name": name, "labels": {"node.kubernetes.io/instance-type": kind}},
        "status": {"allocatable": {"cpu": "16", "memory": "64Gi"}},
    }


def test_the_scheduler_is_told_which_nodes_are_in_time_and_which_cost_least():
    decide = judge(learned(), speeds={"fast": 1.6}, prices={"fast": 1.9})
    nodes = [Node.of(node("a", "standard")), Node.of(node("b", "fast"))]
    tight = decide(Pod.of(pod(3.2)), nodes)
    assert set(tight.refused) == {"a"}
    assert "needs" in tight.refused["a"]
    loose = decide(Pod.of(pod(20)), nodes)
    assert not loose.refused
    assert loose.scores["a"] > loose.scores["b"]
    late = decide(Pod.of(pod(0.1)), nodes)
    assert not late.refused, "a pod that is late everywhere is not refused everywhere"
    assert late.scores["b"] > late.scores["a"]
    assert decide(Pod.of(pod(3, function="never-seen")), nodes).refused == {}
    with pytest.raises(InputError, match="deadline-seconds"):
        decide(Pod.of(pod("soon")), nodes)


def test_the_extender_serves_it_over_http():
    pytest.importorskip("uvicorn")
    from armillary.scheduling.kubernetes import ExtenderServer

    with ExtenderServer(Extender(judge(learned(), speeds={"fast": 1.6}, prices={"fast": 1.9}))) as server:
        body = json.dumps({"Pod": pod(3.2), "Nodes": {"items": [node("a", "standard"), node("b", "fast")]}}).encode()
        asked = urllib.request.Request(f"{server.url}/filter", body, {"content-type": "application/json"})
        with urllib.request.urlopen(asked, timeout=20) as reply:
            answer = json.load(reply)
    assert [item["metadata"]["name"] for item in answer["Nodes"]["items"]] == ["b"]
    assert list(answer["FailedNodes"]) == ["a"]


# Processes of this machine


def test_callables_really_run_and_are_measured():
    core = min(os.sched_getaffinity(0))
    with LocalRunner(Dhrt(explore=0.0), cores=(core,)) as runner:
        ran = runner.run([
            LocalCall("digest", digest, (1500,), within_s=60), LocalCall("rest", rest, (0.2,), within_s=50),
            LocalCall("touch", touch, (64,), within_s=40), LocalCall("fail", fail, within_s=30),
        ])  # fmt: skip
        assert ran[0].value == digest(1500)
        assert ran[0].cpu_s > 0.01
        assert ran[1].cpu_s < 0.1 <= ran[1].wall_s
        assert ran[2].peak_mb > 64
        assert ran[3].error == "ValueError: no"
        assert not ran[3].in_time
        assert [one.vcpu for one in ran] == [1, 1, 1, 1]
        assert runner.allocator.expect("rest", Worker("here", "here", 1, 1), 1.0)[0] >= 0.2
        assert math.isinf(runner.allocator.expect("fail", Worker("here", "here", 1, 1), 1.0)[0]), "a failed run says nothing"
        with pytest.raises(InputError, match="more than 0"):
            runner.run([LocalCall("x", rest, (0.1,), within_s=0)])
    with pytest.raises(InputError, match="expected some of"):
        LocalRunner(Dhrt(), cores=(100_000,))


def order_of(ran: list[Ran]) -> list[str]:
    """Names by the end of the run; all arrived together."""
    return [one.name for one in sorted(ran, key=lambda one: one.end_s)]


def test_each_technique_has_its_order_and_sizes_on_a_real_core():
    core = min(os.sched_getaffinity(0))
    calls = [
        LocalCall("lost", rest, (0.1,), within_s=0.2, alone_s=1.0), LocalCall("first", rest, (0.1,), within_s=30),
        LocalCall("second", rest, (0.1,), within_s=20), LocalCall("third", rest, (0.1,), within_s=10, at_s=0.05),
    ]  # fmt: skip
    found = {}
    for technique in (FixedLeastLoaded(), EdfFixed(), EdfTuned(), MaxAlloc()):
        with LocalRunner(technique, cores=(core,)) as runner:
            ran = runner.run(calls)
            found[type(technique)] = order_of(ran)
            assert all(one.vcpu == 1 and one.core_s >= 0.1 for one in ran)
    assert found[FixedLeastLoaded] == found[MaxAlloc] == ["lost", "first", "second", "third"]
    assert found[EdfFixed] == ["lost", "third", "second", "first"]
    assert found[EdfTuned] == ["second", "third", "first", "lost"], "what cannot be in time runs last"
    for technique in (Profiled(), Oracle()):
        with pytest.raises(InputError, match="before a call has run"):
            LocalRunner(technique, cores=(core,))


def test_a_call_that_falls_behind_gets_another_core(monkeypatch):
    monkeypatch.setattr(local_runner, "_cpu_s", lambda pid: 0.8 * time.perf_counter())  # a core of which others take a fifth
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        pytest.skip("needs two cores")
    with LocalRunner(Dhrt(explore=0.0, z=0.0), cores=cores) as runner:
        here = Worker("here", "here", 2, 2)
        for _ in range(20):  # it believes that a run takes 0.5 s on one core and half as long on two
            for v in (1.0, 2.0):
                runner.allocator.observe(Call("spin", 1.0), 0.5, 0.5 / v, 10.0, here, v)
        runner.cpu_s["spin", 1.0] = 0.7  # so that too little is done at the first look
        (ran,) = runner.run([LocalCall("spin", rest, (0.5,), within_s=0.6)])
        assert ran.vcpu == 2
        assert ran.core_s > 1.1 * ran.wall_s
        assert runner.allocator.expect("spin", here, 1.0)[0] == pytest.approx(0.5, rel=0.05), "a run with two sizes is not learned from"


def test_calls_that_really_run_have_measured_metrics():
    work = drawn(np.random.default_rng(0), calls=6, load=0.8, cores=(min(os.sched_getaffinity(0)),))
    assert (work.alone_s > 0).all()
    values, ran = here_play(Dhrt(), work)
    assert [one.name for one in ran] == [call.name for call in work.calls]
    assert values["deadline_missed"] == pytest.approx(1 - values["deadline_met"])
    assert values["core_s_allocated"] >= sum(one.wall_s for one in ran) - 1e-6


@pytest.mark.slow
def test_a_matrix_product_converges_to_the_cores_that_its_deadline_needs():
    """Two cores where the deadline is 0.7 times its time on one core, one core where it is twice."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        pytest.skip("needs two cores")
    for share, expected in ((0.7, 2.0), (2.0, 1.0)):
        with LocalRunner(Dhrt(explore=0.0), cores=cores) as runner:
            runner.run([LocalCall("warm", product, (1200, 2), within_s=60)])
            one, both = (
                min(runner.run([LocalCall(f"{v}-{i}", product, (1200, 6), within_s=600, vcpu=v)])[0].wall_s for i in range(3))
                for v in (1, 2)
            )
            if both > 0.6 * one:
                pytest.skip("two cores are not free here")
            given = [runner.run([LocalCall("product", product, (1200, 6), within_s=share * one)])[0].vcpu for _ in range(10)]
        assert given[-5:].count(expected) >= 4, (share, given)
