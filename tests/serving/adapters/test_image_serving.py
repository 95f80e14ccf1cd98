"""ROCK and the plain dispatchers are tested on hand-made cases and against Belady and libCacheSim; readers are strict."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.serving.adapters.arena import adapters
from armillary.serving.adapters.images.policy import CachingPolicy, Store, Task, Worker, genai_64
from armillary.serving.adapters.images.service import serve
from armillary.serving.adapters.images.workload import of, synthetic
from armillary.serving.adapters.readers.image_traces import parse_loras, read_gentd26, read_public
from armillary.serving.adapters.rock import Rock, Worth, WorthStore, transport

ONE = (Worker(0, "a100", 0, 1.0, 1, 4),)
ROUTES = (("random", "fifo"), ("round-robin", "lru"), ("affinity", "lru"), ("least-loaded", "lfu"))
POLICIES = [*(CachingPolicy(route, rule) for route, rule in ROUTES), Rock().policy()]  # type: ignore[arg-type]
GENTD26 = "gmt_create,predict_status,num_images_per_prompt,num_inference_steps,checkpoint_model_version_id,num_lora\n"


def equal_workers(n: int, loras: int = 4) -> tuple[Worker, ...]:
    return tuple(Worker(i, "a100", i // 8, 1.0, 1, loras) for i in range(n))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: getattr(p, "route", "rock"))
def test_every_request_is_served_once(policy: object) -> None:
    trace = synthetic(1.5, 900.0, np.random.default_rng(3), bursts=True)
    found = serve(trace, policy, genai_64())  # type: ignore[arg-type]
    assert np.all(np.isfinite(found.finish_s))
    assert np.all(found.start_s >= trace.arrival_s)
    assert 0 <= found.hit_ratio <= 1
    for w in range(64):
        mine = np.flatnonzero(found.worker == w)
        order = mine[np.argsort(found.start_s[mine])]
        assert np.all(found.start_s[order][1:] >= found.finish_s[order][:-1] - 1e-9), "one task at a time"


def test_a_queue_never_mixes_base_models() -> None:
    policy = Rock().policy()
    policy.start(genai_64())
    trace = synthetic(3.0, 300.0, np.random.default_rng(0))
    for i in range(len(trace)):
        task = Task(i, float(trace.arrival_s[i]), int(trace.base[i]), trace.loras_of(i), int(trace.steps[i]), int(trace.images[i]))
        policy.submit(task, 0.0)
        if i % 50 == 0:
            policy.tick(float(trace.arrival_s[i]))
    for base, queues in policy.queues.items():
        assert 1 <= len(queues) <= 4
        assert all(t.base == base for q in queues for t in q.tasks)
    assert sum(len(q.tasks) for q in policy.filled.values()) == len(trace)


@settings(max_examples=20, deadline=None)
@given(gaps=st.lists(st.floats(0, 20), min_size=1, max_size=40), workers=st.integers(1, 4))
def test_equal_tasks_on_equal_workers_finish_as_first_come_first_served(gaps: list[float], workers: int) -> None:
    arrivals = np.cumsum(gaps)
    trace = of([(float(t), 0, 10, 1, 0, ()) for t in arrivals], 1, 1)
    trace = type(trace)(**{**trace.__dict__, "base_load_s": np.array([0.0])})
    found = serve(trace, Rock().policy(), equal_workers(workers))
    free = [0.0] * workers
    expected = []
    for t in trace.arrival_s:
        at = min(range(workers), key=lambda w: free[w])
        free[at] = max(free[at], float(t)) + 10.0
        expected.append(free[at])
    assert np.sort(found.finish_s) == pytest.approx(np.sort(expected))


def test_two_alternating_adapters_are_not_swapped_forever() -> None:
    trace = of([(30.0 * i, 0, 5, 1, 0, (i % 2,)) for i in range(60)], 1, 2)
    policy = Rock().policy()
    found = serve(trace, policy, (Worker(0, "a100", 0, 1.0, 1, 1),))
    assert policy.loras[0].swaps == 0
    plain = serve(trace, CachingPolicy("least-loaded", "lru"), (Worker(0, "a100", 0, 1.0, 1, 1),))
    assert plain.loads == 1 + 60
    assert found.loads == 1 + 1 + 30


def test_a_task_past_its_slo_is_next() -> None:
    policy = Rock(slo_s=50.0).policy()
    policy.start(ONE)
    policy.submit(Task(0, 0.0, base=0), 0.0)
    assert policy.next(0, 0.0).task.number == 0  # type: ignore[union-attr]
    policy.submit(Task(1, 1.0, base=7), 1.0)
    for i in range(2, 12):
        policy.submit(Task(i, 15.0, base=0), 15.0)
    policy.done(0, Task(0, 0.0, 0), 20.0, 20.0)
    assert policy.next(0, 20.0).task.base == 0, "not late yet: its base model stays"  # type: ignore[union-attr]
    assert policy.next(0, 60.0).task.number == 1  # type: ignore[union-attr]


def test_the_transport_problem_gives_each_queue_its_best_device() -> None:
    y = transport(np.array([[2.0, 1.0], [1.0, 1.0]]), np.ones(2), np.ones(2))
    assert y == pytest.approx(np.eye(2))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999))
def test_the_transport_problem_is_no_worse_than_a_greedy_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mu, capacity, demand = rng.uniform(0.1, 3, (4, 3)), rng.uniform(0, 3, 3), rng.uniform(0, 3, 4)
    y = transport(mu, capacity, demand)
    assert np.all(y.sum(0) <= capacity + 1e-9)
    assert np.all(y.sum(1) <= demand + 1e-9)
    assert y.min() >= -1e-12
    left, need, total = capacity.copy(), demand.copy(), 0.0
    for q, g in sorted(np.ndindex(4, 3), key=lambda p: -float(mu[p])):
        part: Any = min(left[g], need[q])
        left[g] -= part
        need[q] -= part
        total += part * mu[q, g]
    assert (y * mu).sum() >= total - 1e-9


def test_copies_of_a_bursting_adapter_grow_and_others_do_not_suffer() -> None:
    rng = np.random.default_rng(0)
    times, which = np.sort(rng.uniform(0, 1800, 700)).tolist(), rng.integers(0, 20, 700).tolist()
    calm = [(t, 0, 10, 1, a % 2, (a,)) for t, a in zip(times, which, strict=True)]
    burst = [(float(t), 0, 10, 1, 0, (0,)) for t in np.sort(rng.uniform(900, 1080, 315))]
    workers = equal_workers(32)

    def run(rows: list[Any]) -> tuple[Any, Any]:
        trace, policy = of(rows, 2, 20), Rock().policy()
        found = serve(trace, policy, workers)
        others = np.array([trace.loras_of(i) != (0,) for i in range(len(trace))])
        return found.latency_s[others], policy

    before, quiet = run(calm)
    after, bursting = run(calm + burst)
    assert bursting.most_copies(0, 1100.0) > quiet.most_copies(0, 1100.0)
    assert np.percentile(after, 99) < 2 * np.percentile(before, 99)


def test_without_lora_slots_only_base_models_hit() -> None:
    trace = synthetic(1.0, 900.0, np.random.default_rng(1))
    for policy in (Rock().policy(), CachingPolicy("least-loaded", "lru")):
        found = serve(trace, policy, genai_64(loras=0))
        lookups = len(trace) + len(trace.lora)
        assert found.lookups == lookups
        assert found.hits <= len(trace)
        assert found.loads >= len(trace.lora)


@pytest.mark.parametrize("rule", ["lru", "lfu", "fifo"])
def test_stores_hit_as_libcachesim_does(rule: str) -> None:
    lcs = pytest.importorskip("libcachesim")
    rng = np.random.default_rng(4)
    ids = np.minimum(rng.zipf(1.3, 4000), 200).astype(int)
    store = Store(20, rule)  # type: ignore[arg-type]
    ours = [store.use(int(i))[0] for i in ids]
    cache = {"lru": lcs.LRU, "lfu": lcs.LFU, "fifo": lcs.FIFO}[rule](cache_size=20)
    theirs = []
    for i in ids:
        request = lcs.Request()
        request.obj_id, request.obj_size = int(i), 1
        theirs.append(bool(cache.get(request)))
    if rule == "lfu":
        # Ties among the least often used are broken differently, so the counts must only agree closely.
        assert abs(sum(ours) - sum(theirs)) <= 0.02 * len(ids)
    else:
        assert ours == theirs


def belady(ids: list[int], capacity: int) -> int:
    held: set[int] = set()
    hits = 0
    for at, i in enumerate(ids):
        if i in held:
            hits += 1
            continue
        if len(held) >= capacity:
            after = {k: next((j for j in range(at + 1, len(ids)) if ids[j] == k), len(ids)) for k in (*held, i)}
            out = max(after, key=lambda k: after[k])
            if out == i:
                continue
            held.discard(out)
        held.add(i)
    return hits


@settings(max_examples=30, deadline=None)
@given(ids=st.lists(st.integers(0, 9), min_size=1, max_size=80), capacity=st.integers(1, 5))
def test_the_adapter_layer_is_lfu_with_aging_and_no_better_than_belady(ids: list[int], capacity: int) -> None:
    worth, store, hits = Worth(100.0), WorthStore(capacity, 0.0), 0
    held: set[int] = set()
    times: dict[int, list[float]] = {}
    for at, i in enumerate(ids):
        now = 10.0 * at
        worth.count(i, now)
        times.setdefault(i, []).append(now)
        hits += i in store
        assert (i in store) == (i in held)
        store.offer(i, worth)
        # The brute force keeps exact aged counts; the least leaves if the newcomer's is larger.
        age = {k: sum(2.0 ** (-(now - t) / 100.0) for t in times[k]) for k in times}
        if i not in held:
            if len(held) < capacity:
                held.add(i)
            else:
                least = min(held, key=lambda k: (age[k], k))
                if age[i] > age[least] * (1 + 1e-9):
                    held.discard(least)
                    held.add(i)
        if store.held != held:
            gap = abs(age[i] - min(age[k] for k in held | store.held))
            assert gap < 1e-6 * max(age.values()), "they differ only where worths tie"
            held = set(store.held)
    assert hits <= belady(ids, capacity)


def test_gentd26_is_read_strictly(tmp_path: Path) -> None:
    head = "gmt_create,predict_type,predict_status,exec_time_seconds,num_images_per_prompt,num_inference_steps,checkpoint_model_version_id,lora_args\n"
    good = tmp_path / "trace.csv"
    good.write_text(
        head
        + "2026-01-01 00:00:00,TXT_2_IMG,SUCCEED,9,1,30,12,\"[{'modelVersionId': 5, 'scale': 0.8}, {'modelVersionId': 6, 'scale': 1}]\"\n"
        "2026-01-01 00:00:05,IMG_2_IMG,FAILED,9,0,30,12,[]\n2026-01-01 00:00:09,INPAINTING,SUCCEED,9,4,50,13,[]\n"
    )
    (tmp_path / "lora_load_1.csv").write_text("timestamp_anon,value,container_ip\n0,4400,a\n1,8200,b\n")
    trace = read_gentd26(good)
    assert (len(trace), trace.dropped, trace.bases, trace.loras) == (2, 1, 2, 2)
    assert trace.loras_of(0) == (0, 1)
    assert trace.arrival_s.tolist() == [0.0, 9.0]
    assert trace.lora_load_s.tolist() == [4.4, 8.2]
    serve(trace, Rock().policy(), genai_64())
    for bad in ("0,30,12,[]", "1,1001,12,[]", "1,30,,[]", "1,30,1,__import__('os')"):
        good.write_text(f"{head}2026-01-01 00:00:00,TXT_2_IMG,SUCCEED,9,{bad}\n")
        with pytest.raises(InputError) as caught:
            read_gentd26(good)
        assert "\n" not in str(caught.value)
        assert "csv:2" in str(caught.value)
    good.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="expected checkpoint_model_version_id"):
        read_gentd26(good)


def test_gentd26s_second_file_has_neither_times_nor_statuses(tmp_path: Path) -> None:
    path = tmp_path / "data_trace_processed.csv"
    path.write_text(
        "predict_type,exec_time_seconds,style_type,prompt_length,negative_prompt_length,num_images_per_prompt,num_inference_steps,"
        "checkpoint_model_version_id,lora_args\n"
        "TXT_2_IMG,15.2,BASE,120,30,1,30,80,\"[{'modelVersionId': 5, 'scale': 0.8}]\"\nTXT_2_IMG,9.0,BASE,4,0,4,30,80,[]\nINPAINTING,9,BASE,4,0,1,20,81,\n"
    )
    trace = read_gentd26(path)
    assert (len(trace), trace.dropped, trace.bases, trace.loras) == (3, 0, 2, 1)
    assert [trace.loras_of(i) for i in range(3)] == [(0,), (), ()]
    assert trace.images.tolist() == [1, 4, 1]
    assert trace.arrival_s[0] == 0.0
    assert np.all(np.diff(trace.arrival_s) > 0)
    (case,), (fast,) = adapters.from_file(path), adapters.from_file(path, {"speed": "20"})
    assert "no times" in case.parameters["notes"][0]
    assert fast.workload.arrival_s == pytest.approx(case.workload.arrival_s / 20)
    serve(trace, Rock().policy(), genai_64())


def test_rock_prefers_fast_devices_while_the_fleet_is_idle() -> None:
    """At a tenth of the load nobody waits for long, the slowest class gets next to nothing, and ROCK is faster than affinity."""
    trace = synthetic(0.3, 1800.0, np.random.default_rng(1), bursts=True)
    classes = np.array([w.group for w in genai_64()])
    rock, affinity = (serve(trace, policy, genai_64()) for policy in (Rock().policy(), CachingPolicy("affinity", "lru")))
    assert np.mean(classes[rock.worker] == "a10g") < 0.05
    assert rock.latency_s.mean() < affinity.latency_s.mean()
    assert (rock.start_s - trace.arrival_s).max() < 60


def test_measured_load_times_are_part_of_a_case(tmp_path: Path) -> None:
    trace = tmp_path / "lora_request_trace.csv"
    trace.write_text(f"{GENTD26}0,SUCCEED,1,30,7,2\n")
    loads = tmp_path / "base_load_1.csv"
    loads.write_text("timestamp_anon,value,container_ip\n0,4400,a\n")
    (plain,), (told,) = adapters.from_file(trace), adapters.from_file(trace, {"loads": str(loads)})
    assert plain.workload.base_load_s.tolist() == []
    assert told.workload.base_load_s.tolist() == [4.4]
    loads.write_text("timestamp_anon,value,container_ip\n0,8800,a\n")
    assert adapters.from_file(trace, {"loads": str(loads)})[0].digest != told.digest
    with pytest.raises(InputError, match="lora_load"):
        adapters.from_file(trace, {"loads": str(trace)})


def test_counts_of_loras_alone_are_enough(tmp_path: Path) -> None:
    path = tmp_path / "lora_request_trace.csv"
    path.write_text(f"{GENTD26}0,SUCCEED,1,30,7,2\n1,SUCCEED,1,30,7,0\n2,what,1,30,7,0\n")
    trace = read_gentd26(path)
    assert (len(trace), trace.dropped) == (2, 1)
    assert 1 <= len(trace.loras_of(0)) <= 2


NO_LISTS = ["[{'modelVersionId': 1}]", "[] x", "[1]", "{}", "[{'modelVersionId': 1, 'scale': x}]", "[{'modelVersionId': 1, 'scale': 1}"]


@pytest.mark.parametrize("text", [*NO_LISTS, '[{"modelVersionId": 1, "scale": 1}]'])
def test_lists_that_are_not_the_grammar_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected"):
        parse_loras(text)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        assert all(len(name) <= 64 for name in parse_loras(text))


@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(-2, 2)), max_size=5))
def test_what_the_trace_writes_is_read_back(pairs: list[tuple[int, float]]) -> None:
    text = str([{"modelVersionId": i, "scale": s} for i, s in pairs])
    assert parse_loras(text) == tuple(str(i) for i, _ in pairs)


def test_the_public_trace_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    good = {"timestamp": 1e12, "ip": "x", "scene_id": 1, "base_model_id": "sd", "controlnets": [], "loras": ["a", "b"]}
    path.write_text(json.dumps([good]))
    assert read_public(path).loras_of(0) == (0, 1)
    bads: tuple[Any, ...] = ({}, [{"timestamp": 1}], [{**good, "base_model_id": None}], [{"timestamp": "x", "base_model_id": "b"}])
    for bad in bads:
        path.write_text(json.dumps(bad))
        with pytest.raises(InputError):
            read_public(path)


def test_synthetic_images_look_like_the_trace() -> None:
    trace = synthetic(4.0, 3600.0, np.random.default_rng(0))
    count = np.diff(trace.off)
    assert np.mean(count == 0) == pytest.approx(0.777, abs=0.02)
    share = np.bincount(trace.base, minlength=105) / len(trace)
    assert np.sort(share)[-1] == pytest.approx(0.27, abs=0.06)
    asked = np.sort(np.bincount(trace.lora, minlength=874))[::-1] / len(trace.lora)
    assert asked[:10].sum() == pytest.approx(0.28, abs=0.08)
    assert asked[:100].sum() == pytest.approx(0.69, abs=0.12)
    assert np.median(trace.images) == 1
    assert np.percentile(trace.images, 75) == 4
    assert np.percentile(trace.images, 90) >= 6


def test_a_bursting_adapter_may_be_on_twice_as_many_devices() -> None:
    policy = Rock().policy()
    policy.start(genai_64())
    for i in range(100):
        policy.submit(Task(i, float(i), base=0, loras=(0 if i % 2 else i,)), float(i))
    calm = policy.most_copies(0, 100.0)
    policy.burst = True
    assert policy.most_copies(0, 100.0) == 2 * calm
    assert calm == 1 + int((50 / (100 / 51)) ** 0.5) or calm >= 5
