"""Requests pass prefill and decode instances with the times computed by hand; the highest rate is found; bad options are refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path as FilePath

import numpy as np
import pytest

from armillary import catalogue
from armillary.arena import Outcome
from armillary.errors import InputError
from armillary.serving.allreduce import DistServe, HeroServe, Served, Slo, Wires, max_rate, serve, slots_worth
from armillary.serving.allreduce.collectives.path import Path
from armillary.serving.allreduce.planning.phase_cost import phase_cost
from armillary.serving.allreduce.planning.placement import Fleet, given
from armillary.serving.allreduce.planning.planner import planned_seconds
from armillary.serving.allreduce.workload import synthetic

WIRES = Wires.of("ina-6x2")
ARENA = catalogue.arena("serving/allreduce")
MODEL = "llama-2-70b"


def served(placed: tuple[Fleet, Fleet], arrival: list[float], prompt: list[int], output: list[int], path: Path | None = None) -> Served:
    plan = given(WIRES, *placed)
    return serve(WIRES, plan, path or Path(), MODEL, np.array(arrival), np.array(prompt), np.array(output))


def iteration(tp: int, tokens: int, compute: float) -> float:
    cost, shape = phase_cost(MODEL, "a100-80", tp), WIRES.shape(max(1, tp // 4), min(tp, 4))
    return compute + cost.repeats * planned_seconds(Path(), WIRES, shape, tokens * cost.token_bytes)


@pytest.mark.parametrize("tp", [4, 8])
def test_one_request_by_hand(tp: int) -> None:
    cost = phase_cost(MODEL, "a100-80", tp)
    found = served((Fleet(tp), Fleet(tp)), [1.0], [500], [4])
    first = iteration(tp, 500, cost.prefill_s(500, 500 * 501 / 2, 1))
    assert found.ttft_s[0] == pytest.approx(first)
    move = 500 * cost.kv_bytes / (12.5e9 * max(1, tp // 4)) + 10e-6
    steps = [iteration(tp, 1, cost.decode_s(1, 501 + k)) for k in range(3)]
    assert found.tpot_s[0] == pytest.approx((move + sum(steps)) / 3)
    assert found.iterations == 4
    compute = cost.prefill_s(500, 500 * 501 / 2, 1) + sum(cost.decode_s(1, 501 + k) for k in range(3))
    assert found.sync_s == pytest.approx(first + sum(steps) - compute)


def test_a_pipeline_overlaps_batches_and_not_a_single_one() -> None:
    one = served((Fleet(4, 2), Fleet(4)), [0.0], [2000], [1])
    two = served((Fleet(4, 2), Fleet(4)), [0.0, 0.0], [2000, 2000], [1, 1])
    assert one.ttft_s[0] == pytest.approx(two.ttft_s[0])
    assert two.ttft_s[1] == pytest.approx(1.5 * two.ttft_s[0], rel=0.02), "the second follows one stage behind"


def test_prompts_share_an_iteration_up_to_the_budget() -> None:
    found = served((Fleet(4), Fleet(4)), [0.0, 0.001, 0.001, 0.001], [100, 1000, 1000, 1000], [1, 1, 1, 1])
    assert found.ttft_s[1] == pytest.approx(found.ttft_s[2])
    assert found.ttft_s[3] > 1.3 * found.ttft_s[2]


def test_a_request_waits_for_kv_that_is_taken() -> None:
    plan = given(WIRES, Fleet(4, 2), Fleet(4, 2))
    room = phase_cost("opt-175b", "a100-80", 4).kv_tokens(2)
    need = 2000
    count = room // need + 1
    found = serve(WIRES, plan, Path(), "opt-175b", np.zeros(count), np.full(count, need - 512), np.full(count, 512))
    assert np.isfinite(found.tpot_s).all()
    assert found.tpot_s[-1] > 1.5 * np.median(found.tpot_s)
    with pytest.raises(InputError, match="tokens of KV fit; expected"):
        serve(WIRES, plan, Path(), "opt-175b", np.zeros(1), np.array([room]), np.array([5]))


def test_nobody_is_served_faster_than_alone_and_all_are_served() -> None:
    work = synthetic(WIRES, MODEL, "chat", 150, np.random.default_rng(2), placed=(Fleet(16), Fleet(8)))
    for technique in (DistServe(), HeroServe()):
        found = technique.serve(work, technique.plan_work(work), 5.0)
        assert np.isfinite([found.ttft_s, found.tpot_s]).all()
        assert 0.4 < found.sync_share < 0.9
        assert found.most_slots <= WIRES.slots
        compute = phase_cost(MODEL, "a100-80", 16)
        least = [compute.prefill_s(int(p), p * (p + 1) / 2, 1) for p in work.prompt]
        assert (found.ttft_s >= np.array(least) * (1 - 1e-9)).all()


def test_the_highest_rate_is_found_within_seven_runs() -> None:
    tried: list[float] = []

    def attempt(rate: float, whole: bool) -> Served:
        tried.append(rate)
        late = np.zeros(100)
        late[: round(rate * 2)] = 9.0  # A tenth is late at 5 per second.
        return Served(late, np.zeros(100), 0, 1, 1, 1, 0, 0, 0)

    for guess in (1.0, 4.0, 6.0, 30.0):
        tried.clear()
        found = max_rate(attempt, Slo(1.0, 1.0), 1.5, guess, 20.0)
        assert len(tried) <= 7
        assert 0.75 * 5 < found.rate <= 5.25
        assert max(r for r, share in found.probes if share >= 0.9) == found.rate
    assert max_rate(attempt, Slo(1.0, 1.0), 50.0, 60.0, 20.0).rate == pytest.approx(5, rel=0.25)


def test_shares_count_what_never_came_as_late() -> None:
    some = Served(np.array([1.0, np.nan, 1.0, 3.0]), np.array([0.1, np.nan, 0.3, 0.1]), 1, 4, 1, 1, 0, 0, 0)
    assert some.attained(Slo(2.0, 0.2)) == 0.25
    assert some.sync_share == 0.25
    assert some.p90() == (np.inf, np.inf)


@pytest.mark.parametrize("name", ARENA.techniques)
def test_undisturbed_collectives_take_what_the_formula_says(name: str) -> None:
    case = next(c for c in ARENA.built_in("tiny") if c.name == "allreduce-16MiB-calm")
    found = ARENA.execute(ARENA.make(name), case)
    assert isinstance(found, Outcome)
    assert found.values["allreduce_us"] == pytest.approx(found.values["allreduce_model_us"], rel=0.05)


def test_more_slots_are_worth_something_until_the_nic_is_full() -> None:
    work = synthetic(WIRES, MODEL, "chat", 60, np.random.default_rng(4), placed=(Fleet(16), Fleet(8)))
    found = slots_worth(work, HeroServe(), (0, 64, 512, 1024))
    seconds = [f.allreduce_s for f in found]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] > 1.3 * seconds[2]
    assert seconds[2] == seconds[3]
    assert all(f.max_rate > 0 for f in found)
    with pytest.raises(InputError, match="slots: expected"):
        slots_worth(work, HeroServe(), (-1,))


def trace(tmp_path: FilePath) -> FilePath:
    path = tmp_path / "trace.csv"
    rows = [f"{0.4 * k},{100 + k},{20 + k % 7}" for k in range(30)]
    path.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + "\n".join(rows) + "\n")
    return path


def test_a_trace_of_requests_is_served(tmp_path: FilePath) -> None:
    (case,) = ARENA.from_file(trace(tmp_path), {"prefill": "8x1x1", "decode": "8x1x1", "traffic": "calm"})
    assert case.workload.rate == pytest.approx(30 / (29 * 0.4))
    found = ARENA.execute(HeroServe(), case)
    assert isinstance(found, Outcome)
    assert found.values["max_rate"] >= case.workload.rate


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"prefill": "8x1x1"}, "expected both or neither"),
        ({"prefill": "8by1", "decode": "8x1x1"}, "expected TPxPPxinstances"),
        ({"prefill": "16x1x1", "decode": "16x1x1"}, "do not fit"),
    ],
)
def test_bad_options(tmp_path: FilePath, options: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        ARENA.from_file(trace(tmp_path), options)


def test_switches_that_do_not_aggregate_leave_the_rings() -> None:
    from armillary.arena import NotForThisCase

    case = next(c for c in ARENA.built_in("tiny") if c.name == "llama-2-70b-chat-spanning-tenants")
    bare = dataclasses.replace(case.workload, wires=dataclasses.replace(WIRES, slots=0))
    quiet = dataclasses.replace(case, make=lambda *_: bare)
    assert isinstance(ARENA.execute(HeroServe(), quiet), NotForThisCase)
    assert isinstance(ARENA.execute(DistServe(), quiet), Outcome)
