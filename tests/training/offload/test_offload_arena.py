"""The arena: the published fixture, traces of both kinds, what a bad file says, misfits, and the answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from armillary import catalogue, compare
from armillary.arena import NotForThisCase
from armillary.cluster import find, from_dict
from armillary.errors import InputError
from armillary.llm import Model
from armillary.training.offload import (
    Lru,
    Machine,
    OffloadWork,
    PrefetchTable,
    TenCache,
    ZeroInfinity,
    ablation,
    equal_work,
    model_work,
    read_trace,
    simulate,
)  # fmt: skip

V100 = Machine.of("one-gpu-workstation")
HEAD = "tensor_id,bytes,dtype,layer_id,layer_name,phase,start_ms,end_ms"
GOOD = ["a,1000,fp16,0,x,fwd,0,1", "b,2000,fp16,1,y,fwd,1,2", "b,2000,fp16,1,y,bwd,2,4", "a,1000,fp16,0,x,bwd,4,6"]


@pytest.fixture(scope="module")
def fixture() -> OffloadWork:
    """OPT-6.7B as in the artifact, on a GPU whose budget keeps as many tensors resident as there: 348 of 517."""
    return model_work(Model.preset("opt-6.7b"), V100.with_sizes(gpu_bytes=25.4e9))


# The published fixture


def test_opt_6_7b_has_the_sizes_and_the_accesses_of_the_artifact(fixture: OffloadWork) -> None:
    sizes, counts = np.unique(fixture.size, return_counts=True)
    assert dict(zip(sizes.tolist(), counts.tolist(), strict=True)) == {
        8192: 290, 16384: 1, 32768: 32, 16793600: 1, 33554432: 128, 134217728: 64, 411828224: 1,
    }  # fmt: skip
    tensor, op = fixture.rows(0)
    assert len(tensor) == 2 * 517
    assert (fixture.phase[op] == 0).sum() == 517
    assert (fixture.elements < 100_000).sum() == 323


def test_with_two_thirds_resident_little_is_waited_for(fixture: OffloadWork) -> None:
    """The goal was a fiftieth of ZeRO-Infinity's waiting, which the published 348 tensors miss (a 44th) and 352 reach."""
    theirs = simulate(fixture, ZeroInfinity().schedule(fixture)).stall_s
    made = TenCache().schedule(fixture)
    assert made.facts["resident"] == 348
    assert 40 < theirs / simulate(fixture, made).stall_s < 50
    roomier = fixture.with_machine(V100.with_sizes(gpu_bytes=25.6e9))
    made = TenCache().schedule(roomier)
    assert made.facts["resident"] == 352
    assert simulate(roomier, made).stall_s < 0.02 * theirs


def test_the_parts_come_in_the_published_order(fixture: OffloadWork) -> None:
    seconds = {name: timed.iteration_s for name, timed in ablation(fixture).items()}
    order = sorted(seconds, key=lambda name: -seconds[name])
    assert order == ["layer-to-layer", "cache", "zero-infinity", "cache + prefetch", "cache + prefetch + reused buffers"]


# Misfits


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_layers_of_other_lengths_than_planned_cost_at_most_three_percent_over_lru(fixture: OffloadWork, seed: int) -> None:
    work = model_work(Model.preset("opt-6.7b"), V100, sequences=32).misfit(np.random.default_rng(seed))
    ours, plain = (simulate(work, t.schedule(work)).iteration_s for t in (TenCache(), Lru()))
    assert ours <= 1.03 * plain


@pytest.mark.parametrize(("model", "host_bytes"), [("opt-6.7b", 0.0), ("opt-13b", 256e9)])
def test_an_order_without_a_cycle_costs_at_most_three_percent_over_lru(model: str, host_bytes: float) -> None:
    """The host holds all states, so that what differs is the order."""
    work = model_work(Model.preset(model), V100.with_sizes(host_bytes=host_bytes)).shuffled(np.random.default_rng(5))
    assert not work.cyclic
    schedules = [t.schedule(work) for t in (TenCache(), Lru())]
    assert not any(made.streamed.any() for made in schedules)
    ours, plain = (simulate(work, made).iteration_s for made in schedules)
    assert ours <= 1.03 * plain


def test_where_states_do_not_fit_the_published_budgets_lose_to_a_plain_cache_that_fills_the_host() -> None:
    """The page says so: lru once streamed all states or none, which made 10cache look 1.4 to 2.2 times as fast."""
    work = model_work(Model.preset("opt-13b"), V100)
    ours, plain, infinity = (t.schedule(work) for t in (TenCache(), Lru(), ZeroInfinity()))
    streams = [float(work.elements[made.streamed].sum()) for made in (ours, plain, infinity)]
    assert streams[1] < streams[0] < streams[2]
    seconds = [simulate(work, made).iteration_s for made in (ours, plain, infinity)]
    assert 1.2 < seconds[0] / seconds[1] < 1.4
    assert plain.host_bytes <= work.machine.host_bytes


def test_shuffled_layers_keep_every_operation_and_run_back_the_way_they_came() -> None:
    work = model_work(Model.preset("opt-1.3b"), V100).shuffled(np.random.default_rng(1))
    for order in work.order:
        assert sorted(order.tolist()) == list(range(len(work.phase)))
        ahead, back = order[: len(order) // 2], order[len(order) // 2 :]
        assert work.layer[ahead[0]] == work.layer[back[-1]]
        assert (work.phase[ahead] == 0).all()


def test_misfit_changes_seconds_and_not_what_a_plan_knows() -> None:
    work = equal_work(V100, 5, 10**6, 1.0)
    other = work.misfit(np.random.default_rng(3))
    assert np.array_equal(other.planned, work.seconds)
    assert not np.array_equal(other.seconds, work.seconds)
    assert other.seconds[0] / work.seconds[0] == pytest.approx(other.seconds[-1] / work.seconds[-1]), "one factor per layer"


# Work


def test_every_model_is_touched_once_forward_and_once_backward_per_module() -> None:
    for name in ("bloom-7b1", "falcon-7b", "falcon3-10b", "llama-2-7b", "mixtral-8x7b"):
        model = Model.preset(name)
        work = model_work(model, V100, sequences=1, tokens=16)
        assert work.parameters == model.params() - model.params_by("head") + 2 * model.hidden
        tensor, op = work.rows(0)
        half = len(tensor) // 2
        assert sorted(tensor[:half].tolist()) == list(range(len(work.size)))
        assert work.order.shape[1] == 2 * (op[half - 1] + 1)
        ahead = work.live[: len(work.live) // 2]
        assert (np.diff(ahead) >= 0).all()
        assert np.array_equal(work.live, np.concatenate([ahead, ahead[::-1]]))


def test_a_tied_head_touches_the_embedding_again() -> None:
    work = model_work(Model.preset("opt-1.3b"), V100, task="generate")
    tensor, _ = work.rows(0)
    assert (tensor == 0).sum() == 4
    made = TenCache().schedule(work)
    found = simulate(work, made)
    assert found.moved[1] >= work.total_bytes, "every gradient leaves, the embedding's once"


def test_recomputation_takes_longer_and_leaves_more_of_the_gpu() -> None:
    plain, again = (model_work(Model.preset("opt-6.7b"), V100, recompute=how) for how in ("none", "full"))
    assert again.seconds.sum() > plain.seconds.sum()
    assert again.capacity > plain.capacity


def test_a_machine_needs_a_gpu_and_sizes() -> None:
    with pytest.raises(InputError, match="has no GPU"):
        Machine.of("cpu-2core")
    node = {"device": [{"kind": "gpu", "model": "h100-80"}]}
    bare = from_dict({"armillary": 1, "name": "bare", "group": [{"name": "g", "count": 1, "node": node}]})
    with pytest.raises(InputError, match="expected the sizes"):
        Machine.of(bare)


def test_the_h100_workstation_has_a_host() -> None:
    machine = Machine.of("one-gpu-workstation-h100")
    assert machine.host_bytes == 256 * 2**30
    assert machine.pcie == 55e9


# Traces


def write(folder: Path, rows: list[str], head: str = HEAD) -> Path:
    path = folder / "accesses.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


def test_a_table_that_was_written_is_read_as_the_same_work(tmp_path: Path) -> None:
    work = model_work(Model.preset("opt-1.3b"), V100)
    text = PrefetchTable.of(work).to_csv(tmp_path / "t.csv")
    assert text.splitlines()[:2] == [HEAD, "0,205914112,fp16,-1,embed_tokens,fwd,0.0,0.0"]
    again = read_trace(tmp_path / "t.csv", V100)
    assert again.total_bytes == work.total_bytes
    assert np.array_equal(again.size[again.rows(0)[0]], work.size[work.rows(0)[0]])
    assert again.seconds.sum() == pytest.approx(work.seconds.sum())
    assert np.array_equal(again.phase, work.phase)
    ours, theirs = (simulate(w, ZeroInfinity().schedule(w)).iteration_s for w in (again, work))
    assert ours == pytest.approx(theirs, rel=0.02)


def test_recorded_updates_take_their_own_seconds(tmp_path: Path) -> None:
    work = read_trace(write(tmp_path, [*GOOD, "a,1000,fp16,0,x,opt,6,9", "b,2000,fp16,1,y,opt,9,9.5"]), V100)
    assert work.update_s.tolist() == pytest.approx([3e-3, 0.5e-3])
    assert work.elements.tolist() == [500, 1000]


def test_the_artifacts_own_trace_is_read_up_to_its_second_iteration(tmp_path: Path) -> None:
    head = "Tensor_ID,Wait_Time_loading(ms),Tensor_Size,Tensor_Element,Tensor_Location,Forward,Layer_ID,Layer_Name"
    once = ["0,33.9,400000000,200000000,not-nvme,True,3,Embedding", "12,4.1,8192,4096,cpu,True,14,LayerNorm", "13,0.0,8192,4096,gpu,True,14,LayerNorm",
            "12,0,8192,4096,cpu,False,14,LayerNorm", "13,0,8192,4096,nvme,False,14,LayerNorm", "0,1,400000000,200000000,cpu,False,3,Embedding"]  # fmt: skip
    work = read_trace(write(tmp_path, once * 2, head), V100)
    assert len(work.phase) == 4
    assert work.rows(0)[0].tolist() == [0, 1, 2, 1, 2, 0]
    assert work.seconds[3] == pytest.approx(2 * work.seconds[0])
    assert work.seconds[0] > 0
    assert work.notes


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("b,2000,fp16,1,y,fwd,0.5,0.2", r":4: column .end_ms.: found 0.2 for a start at 0.5"),
        ("b,2000,fp16,1,y,fwd,0.2,0.3", None),
        ("b,2000,fp16,1,y,sideways,1,2", "phase"),
        ("b,0,fp16,1,y,fwd,1,2", "bytes"),
        ("b,-5,fp16,1,y,fwd,1,2", "bytes"),
        ("a,999,fp16,1,y,fwd,1,2", "found 999 where the same tensor has 1000 elsewhere|found 1000 where the same tensor has 999 elsewhere"),
        ("b,2000,fp12,1,y,fwd,1,2", "dtype"),
        ("b,99999999999999999,fp16,1,y,fwd,1,2", "bytes"),
        ("b,2000,fp16,1,y,fwd,nan,2", "start_ms"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: str, says: str | None) -> None:
    rows = [GOOD[0], "c,10,fp16,2,z,fwd,0.5,0.6", row, *GOOD[2:]]
    if says is None:
        with pytest.raises(InputError, match=r"found .*; expected .* that do not decrease"):
            read_trace(write(tmp_path, rows), V100)
        return
    with pytest.raises(InputError, match=says):
        read_trace(write(tmp_path, rows), V100)


def test_one_pass_only_and_a_gpu_that_is_too_small_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="forward and of the backward pass"):
        read_trace(write(tmp_path, GOOD[:2]), V100)
    huge = [row.replace("2000", "40000000000") for row in GOOD]
    with pytest.raises(InputError, match="the largest tensor has 40000000000 bytes"):
        read_trace(write(tmp_path, huge), V100)


def test_work_that_cannot_be_is_refused() -> None:
    for size, ops in (([], []), ([0], [(0, 0, [0], 1.0)]), ([5], [(0, 0, [1], 1.0)]), ([5], [(2, 0, [0], 1.0)]), ([5], [(0, 0, [0], -1.0)]),
                      ([5], [(0, 0, [], 1.0)])):  # fmt: skip
        with pytest.raises(InputError):
            OffloadWork.of("x", V100, size, ops)
    with pytest.raises(InputError, match="expected 2 to 2,500,000 iterations"):
        OffloadWork.of("x", V100, [5, 6], [(0, 0, [0, 1], 1.0), (1, 0, [1, 0], 1.0)], iterations=3_000_000)
    for how in ({"task": "sing"}, {"sequences": 0}, {"recompute": "twice"}):
        with pytest.raises(InputError):
            model_work(Model.preset("opt-1.3b"), V100, **how)


# The command


def test_a_config_can_be_compared_on_a_machine_of_ones_own(tmp_path: Path) -> None:
    source = Path(catalogue.ROOT) / "llm" / "presets" / "models" / "opt-1.3b.json"
    path = tmp_path / "config.json"
    path.write_text(source.read_text())
    how = {"machine": "one-gpu-workstation-a100", "gpu_gb": "4.6", "tokens": "64", "iterations": "3"}
    found = compare("training/offload", work=path, options=how, techniques=["zero-infinity", "10cache", "zero-offload"])
    assert "config.json" in found.answer()
    assert found.answer().startswith("10cache has the shortest iterations on config.json")


def test_all_models_run_on_another_cluster() -> None:
    found = compare(
        "training/offload", scale="tiny", cluster="one-gpu-workstation-a100", cases=["opt-13b"], techniques=["zero-infinity", "10cache"]
    )
    assert found.medians("10cache", "iteration_s")["opt-13b"] < 12
    dear, unknown = (catalogue.arena("training/offload").built_in("tiny", find(name))[0].kinds for name in ("dgx-h100", "h800-node"))
    assert "priced" in dear
    assert "priced" not in unknown


def test_a_gpu_that_holds_no_operation_is_declined() -> None:
    work = equal_work(V100.with_sizes(gpu_bytes=2**30 + 5e5), 4, 10**6, 1.0)
    for technique in (TenCache(gpu_factor=0), ZeroInfinity(), Lru()):
        with pytest.raises(NotForThisCase):
            technique.schedule(work)
