"""The stream model by hand, the ladder on simulated GPUs, and what is said where there is no GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from armillary import comm
from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.network.halo import DECKS, Access, StreamModel, ViewGraphs, ViewStreams
from armillary.network.halo.arena import halo
from armillary.network.halo.views.costs import SOURCES, STORED, longer
from armillary.network.halo.views.gpus import device_bound, simulate
from armillary.network.halo.views.model import Group, Host, Kernel, Meeting, Order, Sync

MODEL = StreamModel.stored("h100-80")
US = 1e-6
CASES = {case.name: case for case in halo.built_in("small")}


def kernel(name="k", host=5, device=50, stream="compute"):
    return Kernel(name, host * US, device * US, stream)


def test_three_kernels_run_ahead_or_wait_by_hand():
    assert MODEL.play([[kernel()] * 3]).seconds == pytest.approx(155 * US)
    waited = MODEL.play([[kernel(), Sync(7 * US)] * 3])
    # A synchronisation costs the host 7 us, in which the kernel runs on.
    assert waited.seconds == pytest.approx(3 * 55 * US)
    longer_sync = MODEL.play([[kernel(device=50), Sync(60 * US)] * 3])
    assert longer_sync.seconds == pytest.approx(3 * 65 * US)
    assert MODEL.play([[kernel(host=60)] * 3]).seconds == pytest.approx((180 + 50) * US), "the host is the limit"
    assert MODEL.play([[Host(1e-3), kernel()]]).host_s == pytest.approx(1e-3 + 5 * US)


def test_streams_run_beside_each_other_and_events_order_them():
    two = [kernel("a", 1, 50), kernel("b", 1, 50, "communication")]
    assert MODEL.play([two]).seconds == pytest.approx(52 * US)
    ordered = [two[0], Order("compute", "communication", 1 * US), two[1]]
    assert MODEL.play([ordered]).seconds == pytest.approx(101 * US)
    later = [*ordered, Order("communication", "compute", 0.0), kernel("c", 1, 10)]
    assert MODEL.play([later]).seconds == pytest.approx(111 * US)


def test_a_transfer_is_a_flow_that_begins_when_both_ends_have_come():
    nbytes, rate, latency = 45_000_000, 450e9, 0.5 * US

    def program(other, late=0.0):
        return [Host(late), Group("x", ((other, nbytes),), 0.0)]

    played = MODEL.play([program(1), program(0)])
    assert played.seconds == pytest.approx(nbytes / rate + latency)
    assert MODEL.play([program(1), program(0, 1e-3)]).seconds == pytest.approx(1e-3 + nbytes / rate + latency)
    three = [[Group("x", ((1, nbytes), (2, nbytes)), 0.0)], [Group("x", (), 0.0)], [Group("x", (), 0.0)]]
    assert MODEL.play(three).seconds == pytest.approx(2 * nbytes / rate + latency), "one port for both"


def test_overlap_is_the_share_of_the_transfer_beside_kernels():
    nbytes = 45_000_000
    transfer = nbytes / 450e9 + 0.5 * US
    beside = [[Group("x", ((1 - rank, nbytes),), 0.0), kernel("k", 0, 40)] for rank in (0, 1)]
    played = MODEL.play(beside)
    assert played.overlap == pytest.approx(40 * US / transfer)
    assert played.transfer_s == pytest.approx(2 * transfer)
    waiting = [[Group("x", ((1 - rank, nbytes),), 0.0, stream=None), kernel("k", 0, 40)] for rank in (0, 1)]
    assert MODEL.play(waiting).overlap == 0.0


def test_a_reduction_begins_when_the_last_rank_has_come():
    programs = [[Host(late), Meeting("m", 1 * US, 8 * US)] for late in (0.0, 100 * US)]
    assert MODEL.play(programs).seconds == pytest.approx(109 * US)


def test_costs_of_one_gpu_never_stand_for_another():
    with pytest.raises(InputError, match="found a100-80; expected h100-80, whose costs are stored"):
        StreamModel.stored("a100-80")
    with pytest.raises(InputError, match="found costs of h100-80 for a node of a100-80"):
        StreamModel.stored("h100-80", "dgx-a100")
    with pytest.raises(InputError, match="for a node of no GPU"):
        StreamModel.stored("h100-80", "infiniband-hdr100")
    assert StreamModel(replace(STORED["h100-80"], device="NVIDIA H100 80GB HBM3")).gpus == 8, "the name that CUDA gives it"
    with pytest.raises(InputError, match="9 ranks for 8 GPUs"):
        MODEL.play([[kernel()]] * 9)


def test_every_stored_constant_has_its_source():
    from dataclasses import fields

    assert {one.name for one in fields(STORED["h100-80"])} == set(SOURCES) | {"device"}


@pytest.mark.skipif(not comm.backends()["nccl"], reason="found a GPU")
def test_without_a_gpu_it_is_said_and_nothing_is_made_up():
    with pytest.raises(InputError, match="found no GPU"):
        pytest.importorskip("torch")
        StreamModel.measured("dgx-h100")
    case = CASES["clover/960@gpu"]
    for name in ("convert-each-step", "views-mpi", "view-streams", "view-graphs"):
        declined = halo.execute(halo.make(name), case)
        assert isinstance(declined, NotForThisCase)
        assert "it needs a GPU" in str(declined)


def test_rungs_take_the_cases_of_the_ladder_alone():
    for name in ("view-streams", "convert-each-step"):
        assert isinstance(halo.execute(halo.make(name), CASES["miniamr/slow"]), NotForThisCase)
    assert isinstance(halo.execute(halo.make("dynamic-protocol"), CASES["gpus/960/4"]), NotForThisCase)
    assert isinstance(halo.execute(halo.make("packed"), CASES["clover/corner/numpy/1"]), NotForThisCase)


def test_a_step_without_neighbours_is_its_kernels_one_after_another():
    deck = DECKS["corner"].sized(3840, 1)
    access = Access()
    played = simulate(MODEL, deck, (1, 1), access)
    assert played.transfer_s == 0.0
    bytes_per_cell = 8 * sum(
        len(launch.arrays) for launch in _launches()
    )  # fmt: skip
    kernels = len(_launches()) + 6 + 1  # with the walls after six exchanges, and the clock's advance
    device = 3840**2 * bytes_per_cell / MODEL.bandwidth + kernels * MODEL.costs.kernel_s
    meeting = MODEL.costs.group_device_s
    assert played.seconds == pytest.approx(device + meeting, rel=0.01)


def _launches():
    from armillary.network.halo.clover.step import Exchange, Launch, table

    return [
        launch for stage in table(0) for launch in (stage.after if isinstance(stage, Exchange) else [stage]) if isinstance(launch, Launch)
    ]


def test_waiting_hides_nothing_and_streams_hide_transfers_where_the_host_runs_ahead():
    deck = DECKS["corner"].sized(7680, 1)
    assert simulate(MODEL, deck, (2, 2), Access(sync=True)).overlap == 0.0
    assert simulate(MODEL, deck, (2, 2), Access(split=True)).overlap > 0.9
    assert simulate(MODEL, deck, (2, 2), Access()).overlap < 0.05, "without the split there is nothing to run beside it"


def test_auto_splits_only_where_that_is_quicker():
    plan = ViewStreams()
    for cells in (240, 960, 3840, 7680):
        deck = DECKS["corner"].sized(cells, 1)
        chosen = plan.planned(MODEL, deck, (2, 2))
        assert chosen.split == device_bound(MODEL, deck, (2, 2), Access(split=True))
        seconds = {split: simulate(MODEL, deck, (2, 2), Access(split=split)).seconds for split in (False, True)}
        assert seconds[chosen.split] <= 1.05 * min(seconds.values())
    quick = StreamModel(longer(STORED["h100-80"], 0.1))
    assert plan.planned(quick, DECKS["corner"].sized(3840, 1), (2, 2)).split, "a quicker interpreter runs ahead"
    assert ViewStreams("never").planned(quick, DECKS["corner"].sized(3840, 1), (2, 2)).split is False


def test_a_graph_issues_a_step_in_one_call():
    played = simulate(MODEL, DECKS["corner"].sized(240, 1), (2, 2), ViewGraphs().access(True))
    assert played.host_s == pytest.approx(MODEL.costs.graph_s)
    assert played.seconds < 0.3 * simulate(MODEL, DECKS["corner"].sized(240, 1), (2, 2), Access()).seconds


def test_each_source_of_overhead_costs_something():
    deck = DECKS["corner"].sized(960, 1)
    naive = Access(True, True, True, True, True, True)
    whole = simulate(MODEL, deck, (2, 2), naive, pairs=1).seconds
    for name in ("convert", "slices", "stage", "rebuild"):
        assert simulate(MODEL, deck, (2, 2), replace(naive, **{name: False}), pairs=1).seconds < whole, name
