"""Placements are compared with a brute force over all partitions, have their properties, and start vLLM correctly."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.llm import Requests
from armillary.serving.adapters import (
    AdapterTable,
    AdapterWork,
    Balanced,
    Dlora,
    FirstFit,
    Gpu,
    GpuEngine,
    Placement,
    RankAware,
    Replicate,
    RoundRobin,
    TwinGreedy,
    TwinSearch,
)
from armillary.serving.adapters.engine.distilled import FEATURES, Asked, Distilled, ask_twin, features, smape, sweep
from armillary.serving.adapters.placing.trial import homes, least_gpus, trial
from armillary.serving.adapters.twin_greedy import Packer
from armillary.serving.adapters.workload import requests_for

PLACERS = [TwinSearch(window_s=60.0), RoundRobin(), FirstFit(), Balanced(), Dlora(), RankAware(), Replicate()]


@dataclass(frozen=True)
class Capacity:
    """A judge made by hand: a GPU with k adapters processes at most table[k - 1] tokens per second (concave in k)."""

    table: tuple[float, ...]

    def judge(self, table: AdapterTable, slots: list[int]) -> tuple[np.ndarray, np.ndarray]:
        load, most = float(table.token_rate.sum()), self.table[min(len(table), len(self.table)) - 1]
        return np.full(len(slots), min(load, most)), np.full(len(slots), load > most)


def fewest(rates: list[float], capacity: tuple[float, ...]) -> int:
    """Returns the least GPUs over all partitions of at most seven adapters."""
    best = len(rates) + 1
    for labels in itertools.product(range(3), repeat=len(rates)):
        groups = [[r for r, label in zip(rates, labels, strict=True) if label == g] for g in range(3)]
        if all(not g or 420.0 * sum(g) <= capacity[len(g) - 1] + 1e-9 for g in groups):
            best = min(best, sum(bool(g) for g in groups))
    return best


def test_greedy_is_within_one_gpu_of_the_best_partition_and_mostly_equal() -> None:
    rng = np.random.default_rng(0)
    equal = total = 0
    for _ in range(60):
        n = int(rng.integers(2, 8))
        gains = np.sort(rng.uniform(0.1, 1.0, n))[::-1]
        capacity = tuple(float(x) for x in 420.0 * np.cumsum(gains))
        rates = [float(r) for r in rng.choice([0.1, 0.2, 0.4, 0.8], n)]
        rates = [min(r, capacity[0] / 420.0) for r in rates]
        best = fewest(rates, capacity)
        if best > 3:
            continue
        found = Packer(AdapterTable.of([8] * n, rates, prompt=223, output=197), GpuEngine(), Capacity(capacity)).pack()
        total += 1
        assert best <= len(found) <= best + 1
        equal += len(found) == best
    assert total >= 30
    assert equal >= 0.9 * total


tables = st.builds(
    lambda seed, n: AdapterTable.of(np.random.default_rng(seed).choice([8, 16, 32], n), np.random.default_rng(seed + 1).choice([0, 0.1, 0.4, 1.6], n)),
    st.integers(0, 999), st.integers(1, 40),
)  # fmt: skip
CAPACITY = Capacity(tuple(float(x) for x in 3000 * np.sqrt(np.arange(1, 101))))


@settings(max_examples=40, deadline=None)
@given(table=tables, least=st.integers(1, 6))
def test_every_adapter_is_placed_once_and_every_engine_starts(table: AdapterTable, least: int) -> None:
    found = Packer(table, GpuEngine(), CAPACITY).pack(least)
    found.check()
    assert len(found) >= min(least, int((table.rate > 0).sum())) or least == 1
    bound = int(np.ceil(table.token_rate.sum() / max(CAPACITY.table)))
    assert len(found) >= bound


@settings(max_examples=25, deadline=None)
@given(table=tables, seed=st.integers(0, 99))
def test_order_does_not_matter_and_twice_the_rates_never_need_fewer_gpus(table: AdapterTable, seed: int) -> None:
    turned = table.take(np.random.default_rng(seed).permutation(len(table)))
    usual, other, twice = (len(Packer(t, GpuEngine(), CAPACITY).pack()) for t in (table, turned, table.scaled(2.0)))
    assert usual == other <= twice


def test_an_adapter_too_large_for_a_gpu_is_split_and_said_so() -> None:
    found = Packer(AdapterTable.of([8, 8], [30.0, 0.1]), GpuEngine(), Capacity((5000.0,) * 9)).pack()
    found.check()
    assert found.split == (0,)
    assert any("split over 3" in note for note in found.notes)
    work = Requests.of(np.arange(3000) * 0.01, 4, 4, adapter=0)
    assert np.bincount(found.homes(work), minlength=3)[:3].min() > 900


def test_repair_dissolves_a_gpu_that_the_greedy_opened_for_nothing() -> None:
    """At capacity 8, prefixes of 5,4,3,3 give {5}, {4,3} and {3}; the last can join the first."""
    capacity = Capacity((8.0 * 420,) * 4)
    table = AdapterTable.of([8] * 4, [5.0, 4.0, 3.0, 3.0], prompt=223, output=197)
    assert len(Packer(table, GpuEngine(), capacity).pack(repair=False)) == 3
    packer = Packer(table, GpuEngine(), capacity)
    parts = [p for a in range(4) for p in packer._parts_of(a)]
    gpus = [parts[:1], parts[1:3], parts[3:]]
    packer._dissolve(gpus, 1)
    assert len(gpus) == 2
    assert len(Packer(table, GpuEngine(), capacity).pack()) == 2


def test_the_even_deal_leaves_no_gpu_at_its_brim() -> None:
    table = AdapterTable.of([8] * 6, [4.0, 4.0, 1.0, 1.0, 1.0, 1.0], prompt=223, output=197)
    found = Packer(table, GpuEngine(), Capacity((8.0 * 420,) * 6)).pack()
    assert sorted(float(table.rate[list(g.adapters)].sum()) for g in found.gpus) == [6.0, 6.0]


def test_latency_uses_all_gpus_and_evens_batches_out() -> None:
    table = AdapterTable.of([8] * 12, [0.8] * 12)
    found = Packer(table, GpuEngine(), CAPACITY).spread(4)
    found.check()
    assert [len(g.adapters) for g in found.gpus] == [3, 3, 3, 3]


@pytest.mark.parametrize("technique", PLACERS, ids=lambda t: type(t).__name__)
def test_every_placer_covers_all_adapters(technique: object) -> None:
    table = AdapterTable.of([8, 16, 32] * 8, [0.1, 0.4, 0.0, 0.05] * 6)
    for least in (1, 3):
        found = technique.place(table, min_gpus=least)  # type: ignore[attr-defined]
        found.check()
        assert len(found) >= least
        assert found.table().height == sum(len(g.adapters) for g in found.gpus)


def test_rank_aware_keeps_ranks_apart_and_gains_kv() -> None:
    table = AdapterTable.of([8] * 20 + [32] * 20, [0.4] * 40)
    found = RankAware().place(table, min_gpus=2)
    assert sorted(g.max_rank for g in found.gpus) == [8, 32]


def test_dlora_places_anew_for_what_it_saw() -> None:
    table = AdapterTable.of([8] * 4, [1.0, 1.0, 1.0, 1.0])
    technique = Dlora(period_s=10.0)
    before = technique.place(table, min_gpus=2)
    after = technique.again(before, np.array([9.0, 0.1, 0.1, 9.0]))
    home = {a: g for g, gpu in enumerate(after.gpus) for a in gpu.adapters}
    assert home[0] != home[3]
    work = AdapterWork(table, requests_for(table, 30.0, np.random.default_rng(0)), 30.0)
    assert homes(technique, before, work).min() >= 0


def test_one_gpu_serves_a_small_table_in_the_ground_simulator() -> None:
    table = AdapterTable.of([8, 16] * 8, [0.1] * 16)
    work = AdapterWork(table, requests_for(table, 60.0, np.random.default_rng(1)), 60.0)
    found = least_gpus(Balanced(), work)
    assert found.holds
    assert len(found.placement) == 1


def test_an_overloaded_gpu_starves_and_the_search_goes_on() -> None:
    table = AdapterTable.of([16] * 12, [5.0] * 12)
    work = AdapterWork(table, requests_for(table, 90.0, np.random.default_rng(1)), 90.0)
    alone = Placement(table, (Gpu(tuple(range(12)), 12, 16),))
    assert trial(Balanced(), alone, work).starved > 0.5
    found = least_gpus(Balanced(), work)
    assert found.holds
    assert len(found.placement) > 1


@pytest.mark.slow
def test_the_distilled_twin_is_close_to_the_twin(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    engine = GpuEngine()
    model = Distilled.learn(engine, sweep(engine))
    rng = np.random.default_rng(5)
    truth, guess = [], []
    for _ in range(12):
        n, rate = int(rng.integers(1, 200)), float(rng.choice([0.025, 0.05, 0.1, 0.4]))
        table = AdapterTable.of([16] * n, [rate] * n)
        slots = int(rng.choice(engine.slot_choices(n, 16)))
        truth.append(ask_twin(table, slots, engine)[0])
        guess.append(model.judge(table, [slots])[0][0])
        x = features(table, slots, engine)[None]
        assert len(x[0]) == len(FEATURES)
        share = np.minimum(1.0, model.throughput.predict(x)[0]) * x[0, 6]
        assert guess[-1] == pytest.approx(share), "the flat trees are scikit-learn's"
    assert smape(truth, guess) < 12.0
    greedy, search = (placer.place(AdapterTable.of([8] * 48, [0.4] * 48)) for placer in (TwinGreedy(), TwinSearch(window_s=60.0)))
    assert abs(len(greedy) - len(search)) <= 1


def test_the_twin_asked_says_that_too_much_starves() -> None:
    judge = Asked(GpuEngine(), 60.0)
    tokens, starves = judge.judge(AdapterTable.of([16] * 64, [1.6] * 64), [16, 64])
    assert starves.all()
    assert not judge.judge(AdapterTable.of([16] * 8, [0.1] * 8), [8])[1].any()
    assert np.all(tokens > 0)


def test_vllm_is_started_with_what_was_placed() -> None:
    table = AdapterTable.of([8, 12], [0.1, 0.2], names=["fr", "de"])
    found = Placement(table, (Gpu((0, 1), 1, 12),))
    args = found.vllm_args(0)
    assert args[:7] == ["--enable-lora", "--max-loras", "1", "--max-cpu-loras", "2", "--max-lora-rank", "16"]
    assert json.loads(args[-1]) == {"name": "de", "path": "adapters/de"}
    manifest = found.kubernetes()[0]
    assert manifest["kind"] == "Deployment"
    assert "--max-loras" in manifest["spec"]["template"]["spec"]["containers"][0]["args"]
    json.dumps(manifest)
    with pytest.raises(InputError):
        found.vllm_args(1)


def test_a_placement_that_forgets_an_adapter_is_refused() -> None:
    table = AdapterTable.of([8, 16], [0.1, 0.2])
    wrong = {"served 0 times": Gpu((0,), 1, 8), "rank is above": Gpu((0, 1), 1, 8), "too little KV": Gpu((0, 1), 1000, 16)}
    for said, gpu in wrong.items():
        with pytest.raises(InputError, match=said):
            Placement(table, (gpu,)).check()


def test_no_slots_at_all_is_said_at_once() -> None:
    with pytest.raises(InputError, match="not one slot"):
        TwinSearch().place(AdapterTable.of([8], [0.1]), engine=GpuEngine("llama-3.1-8b", "a10g"))


def test_adapters_for_another_model_are_refused() -> None:
    table = AdapterTable.of([8], [0.1], base="mistralai/Mistral-7B-v0.1")
    work = AdapterWork(table, requests_for(table, 60.0, np.random.default_rng(0)), 60.0)
    with pytest.raises(InputError, match="made for"):
        least_gpus(Balanced(), work)
