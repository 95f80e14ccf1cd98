"""The rivals decide as their sources say: HPA, VPA, the step rule, deepest first, and the static oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_applications import pair, single

from armillary.scheduling.microservices import (
    DeepestFirst,
    Hpa,
    Static,
    StepRule,
    Vpa,
    Window,
    built_in,
    desired_replicas,
    drawn,
    play,
    safe_allocation,
)
from armillary.scheduling.microservices.control.allocator import Fixed
from armillary.scheduling.microservices.vpa import STARTS, DecayingHistogram


def window(app: Any, **changes: Any) -> Window:
    """A window in which nothing happens, with changes."""
    n = len(app.services)
    zero, quotas = np.zeros(n), app.quotas.copy()
    facts = {
        "used": zero, "cores": quotas * app.replicas, "quotas": quotas, "replicas": app.replicas.copy(), "queue": zero, "occupancy": zero,
        "p50_s": zero, "p99_s": zero, "rate": zero, "type_p50_s": np.zeros(len(app.requests)), "type_p99_s": np.zeros(len(app.requests)),
        "p50_slo": 0.0, "p99_slo": 0.0, "arrived": 0, "answered": 0, "failed": 0,
    }  # fmt: skip
    return Window(**facts | changes)


@pytest.mark.parametrize(
    ("replicas", "use", "target", "ready", "expected"),
    [
        (4, 0.9, 0.6, None, 6),
        (4, 0.65, 0.6, None, 4),  # within the tolerance of 0.1
        (4, 0.3, 0.6, None, 2),
        (4, 0.05, 0.6, None, 1),
        (4, 0.9, 0.6, 2, 4),  # two that are not ready count as idle, so the ratio is 0.75, and it waits
        (4, 1.5, 0.6, 2, 5),  # 2.5 · 2 / 4 = 1.25 of four
        (4, 0.9, 0.6, 0, 4),  # no metric at all
    ],
)
def test_desired_replicas_as_kubernetes_computes_them(replicas, use, target, ready, expected):
    assert desired_replicas(replicas, use, target, ready) == expected


def hpa_runs(uses: list[float], target: float = 0.6) -> list[int]:
    app = single(8, 1.0)
    controller, found, ready = Hpa(target).controller(app), [], 1
    for use in uses:
        for _ in range(15):
            decision = controller.decide(window(app, used=np.array([use * ready]), cores=np.array([float(ready)]), replicas=np.array([ready])))
        ready = int(decision.replicas[0])
        found.append(ready)
    return found


def test_hpa_scales_up_at_once_and_down_after_its_stabilisation():
    assert hpa_runs([0.9, 0.9]) == [2, 3]
    assert hpa_runs([6.0]) == [5], "at most four more within 15 s, or twice as many"
    low = hpa_runs([0.9, 0.9, *[0.1] * 20])
    assert low[:21] == [2, 3] + [3] * 19, "the recommendation of three lasts for 300 s"
    assert low[21] == 1


def test_vpas_histogram_is_kubernetes_one():
    assert STARTS[:3] == pytest.approx([0.0, 0.01, 0.0205])
    assert len(STARTS) == 176
    histogram = DecayingHistogram(1)
    for value in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        histogram.add(np.array([value]), np.array([1.0]), 0.0)
    upper = float(STARTS[np.searchsorted(STARTS, 0.9, "right")])
    assert histogram.percentile(0.9) == pytest.approx([upper])
    # A day later, one sample weighs as much as two.
    histogram.add(np.array([2.0]), np.array([10.0]), 86_400.0)
    assert histogram.percentile(0.5)[0] > 1.9


def test_vpa_starts_with_its_recommendation_and_acts_only_outside_its_bounds():
    app = single(8, 1.0, cpu_ms=10.0)  # 50 requests per second: half a core on average, three quarters at the peak
    controller = Vpa().controller(app)
    day = 0.5 * (1 - 0.5 * np.cos(2 * np.pi * np.arange(1440) / 1440))
    assert controller.quotas[0] == pytest.approx(1.15 * np.quantile(day, 0.9), rel=0.06)
    low, high = controller.bounds()
    assert low[0] < controller.quotas[0] < high[0]
    before = controller.quotas.copy()
    for _ in range(180):
        decision = controller.decide(window(app, used=np.array([0.4])))
    assert decision.quotas == pytest.approx(before)
    fresh = Vpa(history=False).controller(app)
    for _ in range(60):
        decision = fresh.decide(window(app, used=np.array([0.05])))
    assert decision.quotas[0] == pytest.approx(1.0), "one sample bounds nothing: the upper bound is widened by 1/days"


def test_the_step_rule_by_hand():
    app = built_in("shop-8")
    use = np.array([0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.0, 0.71])
    factors = StepRule().factors(window(app, used=use * app.quotas * app.replicas))
    assert factors.tolist() == [1.3, 1.1, 1.0, 1.0, 1.0, 0.9, 0.9, 1.3]


def test_deepest_first_raises_the_deepest_full_service():
    app = pair()
    controller = DeepestFirst().controller(app)
    hot = {"p99_slo": 0.9, "used": np.array([1.9, 0.5])}
    assert controller.decide(window(app, **hot)).quotas == pytest.approx([2.6, 2.0]), "none is full: the busiest"
    full = window(app, **hot, occupancy=np.array([1.0, 0.95]))
    assert controller.decide(full).quotas == pytest.approx([2.0, 2.6]), "both are full: the deeper one"
    queued = window(app, **hot, queue=np.array([3.0, 0.0]))
    assert controller.decide(queued).quotas == pytest.approx([2.6, 2.0])
    assert controller.decide(window(app, p99_slo=0.5, used=np.array([1.0, 0.5]))).quotas == pytest.approx([2.0, 1.8])


def test_quotas_stop_at_their_floor_without_load():
    app = built_in("shop-8")
    for technique in (StepRule(), DeepestFirst()):
        played = play(drawn(np.random.default_rng(0), app, np.zeros(250)), technique.controller(app))
        assert played.violation == 0
        assert played.windows[-1].quotas == pytest.approx(np.full(8, 0.1))


def test_the_static_oracle_holds_the_objective_with_less_than_the_owner():
    app = built_in("shop-8")
    work = drawn(np.random.default_rng(1), app, np.full(60, 150.0))
    played = play(work, Static().foresee(work))
    assert played.violation <= 0.01
    assert played.core_s < play(work, Fixed(app.quotas)).core_s
    less = play(work, Fixed(Static().foresee(work).quotas * 0.9))  # type: ignore[attr-defined]
    assert less.violation > played.violation


def test_the_safe_allocation_has_an_interval_and_holds():
    app = single(32, 1.0, cpu_ms=10.0, slo_ms=400.0)
    found = safe_allocation(app, 100.0, draws=4, seconds=30)
    assert found.low <= found.cores <= found.high
    assert found.failed == 0
    assert 1.0 < found.cores < 3.0, "one core's worth of work, and some room for luck"
    work = drawn(np.random.default_rng(99), app, np.full(60, 100.0))
    assert play(work, Fixed(np.array([found.quotas["only"]]))).violation < 0.05
