"""Schedules on real processes: torch's runtime over Gloo takes our file, keeps our clock, and computes the right gradients."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.training.pipeline import (
    Costs,
    Schedule,
    dualpipe_v_order,
    interleaved,
    interleaved_zero_bubble,
    one_f_one_b_order,
    prt,
    run_real,
    simulate,
    train_real,
    zb_h1_order,
    zb_v_order,
)
from armillary.training.pipeline.execution import program
from armillary.training.pipeline.execution.real import as_torch_runs, sleeping_layers, train_alone

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Products of 16 × 16 numbers gain nothing from threads, which cost milliseconds each on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.parametrize(
    "schedule",
    [one_f_one_b_order(4, 6), interleaved(4, 8, 2), zb_h1_order(4, 6), zb_v_order(4, 8), dualpipe_v_order(4, 8)],
    ids=["1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"],
)
def test_the_clock_of_the_simulator_is_that_of_real_processes(schedule: Schedule) -> None:
    rng = np.random.default_rng(0)
    forward, inward, weight = (0.05 * rng.uniform(1, 2, schedule.stages) for _ in range(3))
    real = run_real(schedule, (forward, inward, weight), steps=3)
    expected = simulate(schedule, as_torch_runs(schedule, Costs(forward, inward, weight))).makespan
    # Other work on the machine only makes a step longer.
    assert min(real.steps) == pytest.approx(expected, rel=0.1)


def same_training(schedule: Schedule, steps: int) -> None:
    """The losses of every step and the first gradients are those of one process."""
    ours = train_real(schedule, steps=steps, rate=0.5)
    alone = train_alone(schedule.stages, schedule.micros, steps=steps, rate=0.5)
    assert len(ours.losses) == steps
    assert ours.losses == pytest.approx(alone.losses, rel=0, abs=1e-12)
    assert ours.losses[-1] < ours.losses[0] - 1e-3
    assert set(ours.gradients) == set(alone.gradients)
    for name, expected in alone.gradients.items():
        assert ours.gradients[name] == pytest.approx(expected, rel=0, abs=1e-12), name


@pytest.mark.slow
def test_two_processes_train_the_tiny_model_as_one_does() -> None:
    same_training(prt.schedule(2, 4, 2), 5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "schedule",
    [
        one_f_one_b_order(2, 4), prt.schedule(2, 4, 2, mapping="snake"), zb_h1_order(2, 3), zb_v_order(2, 4), one_f_one_b_order(4, 6),
        prt.schedule(4, 8, 2), zb_v_order(4, 8), dualpipe_v_order(4, 8),
    ],
    ids=["1f1b", "prt-snake", "zb-h1", "zb-v", "1f1b-4", "prt-4", "zb-v-4", "dualpipe-v-4"],
)  # fmt: skip
def test_processes_train_the_tiny_model_as_one_does(schedule: Schedule) -> None:
    same_training(schedule, 5)


@pytest.mark.slow
def test_the_tiny_model_learns_through_the_pipeline() -> None:
    losses = train_real(prt.schedule(2, 8, 2), steps=40, rate=0.5).losses
    assert losses[-1] < 0.5 * losses[0]


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A process group of this process alone, so that torch's runtime runs here."""
    import torch.distributed as dist

    store = dist.FileStore(str(tmp_path_factory.mktemp("group") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield SimpleNamespace(rank=0)
    dist.destroy_process_group()


@pytest.mark.parametrize(
    "schedule",
    [
        zb_v_order(1, 4),
        *(pytest.param(each, marks=pytest.mark.slow) for each in (interleaved(1, 4, 2), interleaved_zero_bubble(1, 3, 2), dualpipe_v_order(1, 4))),
    ],
    ids=["zb-v", "interleaved", "zero-bubble", "dualpipe-v"],
)  # fmt: skip
def test_torchs_runtime_takes_the_file_and_gives_the_right_gradients(one_rank: SimpleNamespace, schedule: Schedule) -> None:
    text = ",".join(str(action) for action in schedule.actions(0))
    found = program.training(one_rank, text, schedule.micros, schedule.stages, 2, 0.1, 0)
    alone = train_alone(schedule.stages, schedule.micros, steps=2)
    assert set(found["gradients"]) == set(alone.gradients)
    for name, expected in alone.gradients.items():
        assert found["gradients"][name] == pytest.approx(expected, rel=0, abs=1e-12), name
    assert found["losses"] == pytest.approx(alone.losses, rel=0, abs=1e-12)
    # Sleeping stages run through the same file; what a busy machine adds is not judged here.
    seconds = np.full((3, schedule.stages), 0.002)
    least = simulate(schedule, as_torch_runs(schedule, Costs(*seconds))).makespan
    assert min(program.sleeping(one_rank, text, schedule.micros, schedule.stages, seconds, 1)) >= least


def test_one_process_learns_what_the_pipeline_should() -> None:
    losses = train_alone(2, 4, steps=20, rate=0.5).losses
    assert losses[-1] < 0.8 * losses[0]


def test_what_torch_cannot_run_is_refused() -> None:
    with pytest.raises(InputError, match="one direction"):
        run_real(prt.schedule(2, 2, 1, direction="two"), [np.ones(4)] * 3)
    with pytest.raises(InputError, match="three rows of 2 values"):
        run_real(one_f_one_b_order(2, 2), [np.ones(3)] * 3)
    with pytest.raises(InputError, match="at most 16 processes"):
        run_real(one_f_one_b_order(17, 2), [np.ones(17)] * 3)


def test_sleeping_layers_are_as_long_as_they_say() -> None:
    layers = sleeping_layers(6, 0.0, np.random.default_rng(0))
    assert set(layers.forward) == {0.02}
    assert len(set(sleeping_layers(6, 0.4, np.random.default_rng(0)).forward)) == 6


def test_the_first_stage_has_no_gradient_of_its_input() -> None:
    costs = Costs(np.ones(2), np.ones(2), np.ones(2))
    split = as_torch_runs(zb_h1_order(2, 2), costs)
    assert np.asarray(split.backward_input).tolist() == [0, 1]
    assert np.asarray(split.backward_weight).tolist() == [2, 1]
    assert as_torch_runs(one_f_one_b_order(2, 2), costs) is costs
