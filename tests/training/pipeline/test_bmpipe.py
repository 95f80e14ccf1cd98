"""BMPipe: the worked example, exhaustive plans, bounds, and what it says where nothing fits."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.training.pipeline import (
    AdaPipe,
    BmPipe,
    Costs,
    Division,
    LayeredWork,
    Layers,
    MegatronUniform,
    Merak,
    PipeDream,
    Schedule,
    bmpipe,
    interleaved,
    simulate,
)
from armillary.training.pipeline.adapipe import STEPS, knapsack
from armillary.training.pipeline.planning.in_flight import in_flight, order
from armillary.training.pipeline.planning.layers import even_cuts
from armillary.training.pipeline.planning.promise import one_f_one_b_seconds
from armillary.training.pipeline.planning.search import needed, settings
from armillary.training.pipeline.planning.symbolic import Program, efficient

ONLY = {"v": (1,), "orders": ("1f1b",)}


def example(tail: bool = True, body: int = 6) -> Layers:
    """Equal layers (f 1, b 2, parameters 2) with three options, and a tail (f 1, b 2, keeps 1)."""
    n = body + tail
    one = np.ones(n)
    extra, kept, state = np.tile([0, 0.3, 1.0], (n, 1)), np.tile([4.0, 2, 1], (n, 1)), 2 * one
    if tail:
        extra[-1], kept[-1], state[-1] = 0, 1, 0
    types = ("body",) * body + (("tail",) if tail else ())
    return Layers(tuple(map(str, range(n))), types, ("none", "selective", "full"), one, one, one, extra, kept, state, 0 * one, 0 * one)


@pytest.mark.parametrize(
    ("capacity", "seconds", "layers", "recompute"),
    [
        (14, 67.9, (2, 2, 2), ["1 selective 1 full", "2 selective", "2 none"]),
        (16, 66.9, (2, 2, 2), None),
        (30, 63.0, (2, 3, 1), ["2 none", "3 none", "1 none"]),
    ],
)
def test_the_worked_example(capacity: float, seconds: float, layers: tuple[int, ...], recompute: list[str] | None) -> None:
    found = bmpipe.plan(example(), 3, 6, capacity, fallback=False, **ONLY)  # type: ignore[arg-type]
    assert found.seconds == pytest.approx(seconds)
    assert found.plan.predicted == pytest.approx(seconds)
    assert found.layers == layers
    if recompute is not None:
        assert [row["recompute"] for row in found.stages()] == recompute


def test_uniform_must_recompute_everything() -> None:
    work = LayeredWork(example(), 3, 6, 14)
    assert work.simulate(MegatronUniform((1,), ("1f1b",)).plan(work)).makespan == pytest.approx(82.0)


def test_without_limits_it_is_uniform() -> None:
    found = bmpipe.plan(example(False), 3, 6, 1e9, fallback=False, **ONLY)  # type: ignore[arg-type]
    assert found.layers == (2, 2, 2)
    assert found.seconds == pytest.approx((6 + 3 - 1) * 6)
    assert not found.plan.division.choice.any()


def every_division(layers: Layers, p: int) -> list[Division]:
    n, options = layers.body, len(layers.options)
    tail = (0,) * (len(layers.types) - n)
    found = []
    for cuts in itertools.combinations(range(1, n), p - 1):
        whole = [0, *cuts, n]
        # Equal layers of a stage may be recomputed in any order, so only their numbers matter.
        stages = [list(itertools.combinations_with_replacement(range(options), b - a)) for a, b in itertools.pairwise(whole)]
        found += [Division(layers, np.array(whole), np.array([*itertools.chain(*choice), *tail])) for choice in itertools.product(*stages)]
    return found


@pytest.mark.parametrize(("p", "capacity"), [(2, 14), (3, 12), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((2, 18), (3, 15), (3, 24)))])  # fmt: skip
def test_no_plan_at_all_is_faster(p: int, capacity: float) -> None:
    layers = example(body=5)
    work = LayeredWork(layers, p, 6, capacity)
    schedule = order("1f1b", p, 6)
    simulated = [simulate(schedule, division.costs()) for division in every_division(layers, p)]
    best = min((found.makespan for found in simulated if work.fits(found)), default=None)
    if best is None:
        with pytest.raises(InputError, match="no plan fits"):
            bmpipe.plan(layers, p, 6, capacity, **ONLY)  # type: ignore[arg-type]
        return
    found = bmpipe.plan(layers, p, 6, capacity, fallback=False, gap=0.0, **ONLY)  # type: ignore[arg-type]
    assert found.seconds == pytest.approx(best, rel=0.02)
    assert found.plan.predicted <= best * (1 + 1e-9)


def test_the_bound_is_a_bound_and_close() -> None:
    rng = np.random.default_rng(0)
    gaps = []
    for _ in range(200):
        p, m = int(rng.integers(1, 9)), int(rng.integers(1, 20))
        f, b = rng.uniform(0.5, 2, p), rng.uniform(0.5, 4, p)
        schedule = order("1f1b", p, m)
        real = simulate(schedule, Costs(f, b / 2, b / 2)).makespan
        gaps.append(real / one_f_one_b_seconds(f, b, m))
    assert min(gaps) >= 1 - 1e-12
    assert max(gaps) <= 1.06
    assert np.mean(gaps) <= 1.006


@pytest.mark.parametrize("capacities", [(16, 31), pytest.param((12, 16, 24, 31), marks=pytest.mark.slow)])
def test_step_time_does_not_grow_with_memory(capacities: tuple[int, ...]) -> None:
    times = [bmpipe.plan(example(), 3, 6, capacity, gap=0.0, **ONLY).seconds for capacity in capacities]  # type: ignore[arg-type]
    assert all(b <= a + 1e-9 for a, b in itertools.pairwise(times))


def test_where_nothing_fits_it_names_the_stage() -> None:
    with pytest.raises(InputError, match=r"no plan fits: with everything recomputed, stage \d lacks [\d,]+ bytes"):
        bmpipe.plan(example(), 3, 6, 7, **ONLY)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="stage 0 of an even split needs 4 bytes for its parameters alone"):
        bmpipe.plan(example(False), 3, 6, 3)
    with pytest.raises(InputError, match="4 ranks for 3 body layers"):
        bmpipe.plan(example(body=3), 4, 6, 100)


def two_types() -> Layers:
    n = 10
    f = np.array([1.0] * 4 + [2.0] * 6)
    kept = np.stack([4 * f, f], axis=1)
    extra = np.stack([0 * f, f], axis=1)
    return Layers(tuple(map(str, range(n))), ("dense",) * 4 + ("moe",) * 6, ("none", "full"), f, f, f, extra, kept, f, 0 * f, 0 * f)


@pytest.mark.parametrize("chunks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_types_keep_their_order(chunks: int) -> None:
    work = LayeredWork(two_types(), 4, 8, 60)
    setting = next(iter(settings(work, (chunks,), ("1f1b", "interleaved"))))
    for solution in Program(setting).solutions(4, 0.01, 200):
        assert solution.division.cuts[-1] == 10
        assert (needed(setting, solution.division) <= 60 * (1 + 1e-9)).all()


def test_alternating_types_are_planned_in_pairs() -> None:
    n = 12
    f = np.tile([1.0, 2.0], 6)
    kept, extra = np.stack([f, 0.5 * f], 1), np.stack([0 * f, f], 1)
    layers = Layers(tuple(map(str, range(n))), ("attention", "mlp") * 6, ("none", "full"), f, f, f, extra, kept, f, 0 * f, 0 * f)
    work = LayeredWork(layers, 3, 6, 1e6)
    plan = BmPipe(fallback=False, chunks=(1,), orders=("1f1b",)).plan(work)
    assert (np.diff(plan.division.cuts) % 2 == 0).all()
    assert work.simulate(plan).makespan == pytest.approx((6 + 2) * 3 * 6)


def test_v2_memory_is_what_the_simulator_holds() -> None:
    layers = example(False, body=8)
    work = LayeredWork(layers, 4, 8, 1e6)
    setting = next(iter(settings(work, (2,))))
    division = Division.uniform(layers, even_cuts(8, 8))
    assert needed(setting, division) == pytest.approx(simulate(interleaved(4, 8, 2), division.costs()).peak)
    assert in_flight("interleaved", 4, 8, 2).tolist() == [7, 5, 4, 4, 4, 4, 3, 1]


@pytest.mark.parametrize("capacity", [80.0, *(pytest.param(each, marks=pytest.mark.slow) for each in (60.0, 120.0))])
def test_it_is_at_least_as_fast_as_every_baseline(capacity: float) -> None:
    work = LayeredWork(two_types(), 4, 8, capacity)
    best = work.simulate(BmPipe().plan(work)).makespan
    for rival in (MegatronUniform(), Merak(), PipeDream(), AdaPipe()):
        assert best <= work.simulate(rival.plan(work)).makespan * (1 + 1e-12), rival


def test_each_part_can_be_switched_off() -> None:
    layers = example()
    free, uniform, even, blind = (
        bmpipe.plan(layers, 3, 6, 14, fallback=False, **ONLY, **parts).seconds  # type: ignore[arg-type]
        for parts in ({}, {"recompute": "uniform"}, {"partition": "even"}, {"bubble": False})
    )
    assert free <= min(uniform, even, blind) + 1e-9
    assert uniform == pytest.approx(82.0)
    wide = [bmpipe.plan(layers, 3, 6, 30, fallback=False, **ONLY, **parts) for parts in ({}, {"partition": "even"})]  # type: ignore[arg-type]
    assert wide[0].seconds < wide[1].seconds
    assert wide[1].layers == (2, 2, 2)


def test_a_baselines_plan_is_named_when_it_wins() -> None:
    work = LayeredWork(two_types(), 4, 8, 1e6)
    assert BmPipe().plan(work).notes["source"] in ("bmpipe", "megatron-uniform", "merak", "pipedream", "adapipe")


def unrolled(layout: str) -> list[str]:
    """Megatron's grammar: `(x)*n` and `t*n` repeat, `|` splits, commas are cosmetic."""
    text = layout.replace(",", "")
    while found := re.search(r"\(([^()]*)\)\*(\d+)", text):
        text = text[: found.start()] + found[1] * int(found[2]) + text[found.end() :]
    text = re.sub(r"([A-Za-z])\*(\d+)", lambda m: m[1] * int(m[2]), text)
    return text.split("|")


def test_megatron_gets_the_layout_that_was_planned(tmp_path: Path) -> None:
    layers = example(body=14)
    found = bmpipe.plan(layers, 4, 8, 1e6, fallback=False)
    name, ranks, flag, layout = found.to_megatron_args()
    assert (name, ranks, flag) == ("--pipeline-model-parallel-size", "4", "--pipeline-model-parallel-layout")
    stages = unrolled(layout)
    assert tuple(stage.count("t") for stage in stages) == found.layers
    assert stages[-1].endswith("L")
    said = json.loads(found.to_json(tmp_path / "plan.json").read_text())
    assert said["simulated_s"] == found.seconds
    assert len(said["stages"]) == found.plan.division.stages
    assert Schedule.from_csv(found.to_csv(tmp_path / "schedule.csv")).ranks == 4
    assert unrolled("Et*3|(tt|)*29,m|L")[:3] == ["Ettt", "tt", "tt"]


def test_the_knapsack_is_the_best_choice() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        n = 4
        f = rng.uniform(1, 3, n)
        kept = np.stack([f * 8, f * 4, f], 1)
        extra = np.stack([0 * f, f * rng.uniform(0.1, 0.9, n), f], 1)
        layers = Layers(tuple("abcd"), ("body",) * n, ("none", "selective", "full"), f, f, f, extra, kept, 0 * f, 0 * f, 0 * f)
        capacity = float(kept[:, 0].sum() * rng.uniform(0.3, 0.9))
        work = LayeredWork(layers, 1, 4, capacity)
        setting = next(iter(settings(work, (1,), ("1f1b",))))
        rows = np.arange(n)
        # Memory is counted in steps, each layer's rounded up: it must be as good as any choice that leaves so much.
        tight = capacity * (1 - (n + 1) / STEPS)
        every = [np.array(c) for c in itertools.product(range(3), repeat=n)]
        best = min(extra[rows, c].sum() for c in every if kept[rows, c].sum() <= tight)
        chosen = knapsack(setting, 0, slice(0, n))
        assert kept[rows, chosen].sum() <= capacity
        assert extra[rows, chosen].sum() <= best + 1e-9


def test_options_that_a_mix_beats_are_left_out() -> None:
    assert efficient(np.array([4.0, 2.0, 1.0]), np.array([0.0, 0.3, 1.0])) == [0, 1, 2]
    assert efficient(np.array([4.0, 3.9, 1.0]), np.array([0.0, 0.5, 1.0])) == [0, 2]
    assert efficient(np.array([4.0, 4.0, 1.0]), np.array([0.0, 0.5, 1.0])) == [0, 2]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kept": [[4, 5], [4, 1]]}, "keeps more than none"),
        ({"forward": [1, float("nan")]}, "finite values"),
        ({"extra": [[1, 1], [0, 1]]}, "recomputes nothing"),
        ({"types": ("tail", "body")}, "at most one tail, as the last"),
        ({"types": ("head", "tail")}, "between head and tail"),
    ],
)
def test_layers_that_cannot_be_are_refused(change: dict, says: str) -> None:
    one = np.ones(2)
    good = {
        "names": ("a", "b"), "types": ("body", "body"), "options": ("none", "full"), "forward": one, "backward_input": one,
        "backward_weight": one, "extra": [[0, 1], [0, 1]], "kept": [[4, 1], [4, 1]], "state": one, "boundary": one, "gradients": one,
    }  # fmt: skip
    with pytest.raises(InputError, match=says):
        Layers(**{**good, **change})  # type: ignore[arg-type]
