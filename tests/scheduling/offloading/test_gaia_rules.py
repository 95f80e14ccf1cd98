"""Gaia's rules: against a plain transcription, and the published run."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from offloading_reference import BOUNDS, Rules, quantile

from armillary.errors import InputError
from armillary.scheduling.offloading import (
    KNATIVE_BOUNDS_MS,
    Gaia,
    GaiaRuntime,
    Metrics,
    Mode,
    Settings,
    bucketed,
    built_in,
    histogram_quantile,
    play,
)  # fmt: skip
from armillary.scheduling.offloading import given as work_of

# The histogram


def test_the_bounds_are_knatives() -> None:
    assert KNATIVE_BOUNDS_MS.tolist() == BOUNDS


def test_a_constant_latency_reads_as_the_end_of_its_bucket() -> None:
    assert histogram_quantile(0.95, KNATIVE_BOUNDS_MS, bucketed([2077.0] * 40)) == pytest.approx(4850.0)
    assert histogram_quantile(0.95, KNATIVE_BOUNDS_MS, bucketed([5377.0] + [2077.0] * 12)) == pytest.approx(6750.0)
    assert histogram_quantile(0.95, KNATIVE_BOUNDS_MS, bucketed([5377.0] + [2077.0] * 25)) == pytest.approx(2000 + 3000 * 24.7 / 25)
    assert histogram_quantile(0.95, KNATIVE_BOUNDS_MS, bucketed([1e6])) == 100_000, "the last bucket has no upper bound"
    assert math.isnan(histogram_quantile(0.95, KNATIVE_BOUNDS_MS, bucketed([])))


@drawn(st.lists(st.floats(0, 3e5), min_size=1, max_size=60), st.floats(0, 1))
def test_the_quantile_is_prometheus(latencies: list[float], q: float) -> None:
    assert histogram_quantile(q, KNATIVE_BOUNDS_MS, bucketed(latencies)) == pytest.approx(quantile(q, latencies))


@pytest.mark.parametrize(("bounds", "counts"), [([1, 2], [1, 1]), ([2, 1], [0, 0, 0]), ([1, 2], [1, -1, 0]), ([], [1])])
def test_a_bad_histogram_is_refused(bounds: list[float], counts: list[float]) -> None:
    with pytest.raises(InputError):
        histogram_quantile(0.95, bounds, counts)


# The rules


def stream(rng: np.random.Generator, looks: int) -> list[Metrics]:
    """Metrics of a random function, with unknown values, thresholds that are met exactly, and jumps in time."""
    found, now = [], 0.0
    marks = (200.0, 800.0, 1000.0, 1200.0, 2000.0, 100_000.0, 99_800.0)
    rates = (0.0, 0.005, 0.01, 0.05, 0.1, 0.2, 1.0)
    for step in rng.integers(0, 8, looks).tolist():
        now += (1.0, 29.0, 30.0, 30.0, 60.0, 61.0, 300.0, 700.0)[step]
        a, b, c, d = rng.random(4).tolist()
        pair = [marks[int(7 * x / 0.3)] if x < 0.3 else 4000 * (x - 0.3) / 0.7 for x in (c, d)]
        one, other = (None if x < 0.2 else rates[int(7 * (x - 0.2) / 0.8)] for x in (a, b))
        found.append(Metrics(now, one, other, None if c > 0.95 else pair[0], pair[1]))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_rules_decide_as_a_plain_transcription(seed: int) -> None:
    """2,500 random streams each: 10,000 in all."""
    rng = np.random.default_rng(seed)
    changes = 0
    for _ in range(2500):
        first = str(rng.choice(["cpu", "cpu_preferred", "gpu_preferred", "gpu"]))
        remember = str(rng.choice(["max", "last"]))
        plain = Rules(first, remember=remember)
        ours = GaiaRuntime(Mode(first), Settings(remember=remember))  # type: ignore[arg-type]
        for seen in stream(rng, 8):
            wanted = plain.decide(seen.time_s, seen.rate_1m, seen.rate_30m, seen.p95_ms)
            if wanted is not None and wanted != plain.mode:
                plain.change(wanted, seen.time_s, seen.long_p95_ms)
                changes += 1
            assert ours.step(seen) == plain.mode
            assert (ours.cpu_ms, ours.gpu_ms, ours.changed_s) == (plain.cpu, plain.gpu, plain.changed)
    assert changes > 1000, "the streams must make the rules fire"


def test_every_rule_can_fire() -> None:
    fired = set()
    rng = np.random.default_rng(5)
    for _ in range(1000):
        ours = GaiaRuntime(Mode.CPU_PREFERRED if rng.random() < 0.5 else Mode.GPU_PREFERRED)
        for seen in stream(rng, 12):
            ours.step(seen)
            fired.add(ours.rule)
    assert fired == {None, 0, 2, 3, 4, 5}


def looked(now: float, p95: float, *, rate: float = 1.0, busy: float = 1.0) -> Metrics:
    return Metrics(now, rate, busy, p95, p95)


def test_a_slow_cpu_is_promoted_and_a_useless_gpu_is_given_back() -> None:
    runtime = GaiaRuntime(Mode.CPU_PREFERRED)
    assert runtime.step(looked(30, 1000)) == Mode.CPU_PREFERRED, "the SLO itself is met"
    assert runtime.step(looked(60, 1001)) == Mode.GPU_PREFERRED
    assert runtime.step(looked(90, 900)) == Mode.GPU_PREFERRED, "two minutes have not passed"
    assert runtime.step(looked(180, 801)) == Mode.CPU_PREFERRED, "801 + 200 is not below 1,001"
    assert runtime.cpu_ms == 1001
    assert runtime.gpu_ms == 801
    assert runtime.step(looked(300, 1000)) == Mode.CPU_PREFERRED, "1,000 − 200 is below the GPU's 801"
    assert runtime.step(looked(330, 1001)) == Mode.GPU_PREFERRED
    assert runtime.rule == 2


def test_the_guard_blinds_it_to_rare_requests() -> None:
    runtime = GaiaRuntime(Mode.CPU_PREFERRED)
    for k in range(1, 100):
        assert runtime.step(looked(30 * k, 16_300, rate=0.061)) == Mode.CPU_PREFERRED


def test_a_function_deployed_on_the_gpu_is_demoted_at_the_first_look_without_traffic() -> None:
    assert GaiaRuntime(Mode.GPU_PREFERRED).step(Metrics(30.0)) == Mode.CPU_PREFERRED
    assert GaiaRuntime(Mode.GPU_PREFERRED, Settings(give_back=False)).step(Metrics(30.0)) == Mode.GPU_PREFERRED


def test_a_hopeless_cpu_makes_the_gpu_final() -> None:
    runtime = GaiaRuntime(Mode.CPU_PREFERRED)
    runtime.step(looked(60, 100_000))
    # An unused GPU is not given back, because the CPU was slow; its latency is stored when the device is lost.
    runtime.step(replace(looked(120, 300), gpu_available=False))
    assert runtime.mode == Mode.CPU_PREFERRED
    assert runtime.rule == 9
    assert runtime.step(looked(240, 100)) == Mode.GPU
    assert runtime.step(Metrics(100_000.0)) == Mode.GPU, "a hard mode is never revised"


def test_no_promotion_without_a_device() -> None:
    runtime = GaiaRuntime(Mode.CPU_PREFERRED)
    assert runtime.step(replace(looked(60, 5000), gpu_available=False)) == Mode.CPU_PREFERRED
    assert runtime.changed_s is None
    assert runtime.step(looked(90, 5000)) == Mode.GPU_PREFERRED


@pytest.mark.parametrize("bad", [{"rate_1m": -0.1}, {"p95_ms": math.inf}, {"time_s": math.nan}])
def test_bad_metrics_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Metrics(**{"time_s": 1.0} | bad)


def test_time_does_not_run_backwards() -> None:
    runtime = GaiaRuntime()
    runtime.step(Metrics(60.0))
    with pytest.raises(InputError, match="do not decrease"):
        runtime.step(Metrics(30.0))


# The published runs


def waiting(cold_s: float, phase: float, requests: int = 720) -> object:
    return work_of(np.full((2, requests), 2.077), cold_s=(cold_s, cold_s), mode=1, phase=phase)


def test_the_published_wait_is_promoted_at_59_s_and_demoted_at_179_s() -> None:
    played = play(waiting(2.64, 59 / 30), Gaia().policy())  # type: ignore[arg-type]
    assert [(one.time_s, one.backend, one.rule) for one in played.log] == [(59.0, 1, 2), (179.0, 0, 3)]
    assert played.end_s > 1490


def test_an_early_look_keeps_the_gpu_for_ever_and_exact_quantiles_cure_it() -> None:
    late, early = (waiting(3.3, first / 30) for first in (59.0, 31.0))
    assert [one.backend for one in play(late, Gaia().policy()).log] == [1, 0]  # type: ignore[arg-type]
    stuck = play(early, Gaia().policy())  # type: ignore[arg-type]
    assert [one.backend for one in stuck.log] == [1], "the stored 95th percentile reads 6,750 ms"
    cured = play(early, Gaia(quantile="exact", skip_cold=True).policy())  # type: ignore[arg-type]
    assert [one.backend for one in cured.log] == [1, 0]


def test_the_published_sweep_of_products() -> None:
    """cpu-only 521 s and 0.0198 $, gpu-only 119 s and 0.0158 $, Gaia 59 s + 97 s and 0.015 $; here on the published medians."""
    from armillary.scheduling.offloading import CpuOnly, GpuOnly

    rng = np.random.default_rng(0)
    seconds, dollars = [], []
    for phase in np.linspace(0.1, 2.0, 20):
        work = built_in(rng, "matmul", "closed", 545.0, variation=0.0, phase=float(phase))
        assert len(work) == 101
        played = play(work, Gaia().policy())
        seconds.append(played.end_s)
        dollars.append(played.cost_usd(work.prices))
    cpu, gpu = (play(work, one.policy()) for one in (CpuOnly(), GpuOnly()))
    assert cpu.end_s == pytest.approx(545, abs=5)
    assert gpu.end_s == pytest.approx(120, abs=2)
    assert 0.0195 < cpu.cost_usd(work.prices) < 0.0215
    assert 0.0155 < gpu.cost_usd(work.prices) < 0.0165
    assert min(seconds) > 120
    assert max(seconds) < 160
    assert min(dollars) > 0.0150
    assert max(dollars) < 0.0160
    published = built_in(rng, "matmul", "closed", 545.0, variation=0.0, phase=59 / 30)
    assert play(published, Gaia().policy()).pod_s == pytest.approx([59, 97], abs=5), "its first look was 59 s after the start"
