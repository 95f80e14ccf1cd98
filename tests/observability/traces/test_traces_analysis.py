"""Efficiencies, intervals, causes of lost time, iterations and comparisons: by hand, against a raster, and against planted causes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_reports import run_of

from armillary.errors import InputError
from armillary.observability.traces import (
    Breakdown,
    Busy,
    Compare,
    Nsys2prv,
    Run,
    Stats,
    aligned,
    compare_runs,
    device_efficiency,
    efficiency,
    host_efficiency,
    iterations,
    lost,
)
from armillary.observability.traces.analysis.intervals import Intervals, both, covered, either, intervals, union, without
from armillary.observability.traces.analysis.lost import activities
from armillary.observability.traces.analysis.regions import launching
from armillary.observability.traces.analysis.waiting import LAUNCHES, WAITS
from armillary.observability.traces.synthesis.exports import Clock
from armillary.observability.traces.synthesis.planting import CAUSES, costs, planted
from armillary.observability.traces.synthesis.programs import Design, simulated
from armillary.observability.traces.workload import clocks_of, recorded

# Efficiencies


def test_devices_by_hand() -> None:
    found = device_efficiency([60, 40], [10, 20], 100)
    assert found.load_balance == pytest.approx(100 / 120)
    assert found.communication == pytest.approx(60 / 70)
    assert found.orchestration == pytest.approx(0.7)
    assert found.parallel == pytest.approx(0.5)


def test_hosts_by_hand() -> None:
    found = host_efficiency([50, 30], [30, 40], 100)
    assert (found.mpi, found.load_balance, found.communication) == pytest.approx((0.75, 0.9375, 0.8))
    assert (found.offload, found.parallel) == pytest.approx((80 / 150, 0.4))


TIMES = st.lists(st.tuples(st.floats(0, 50), st.floats(0, 50)), min_size=1, max_size=12)


@given(times=TIMES)
def test_factors_multiply_and_lie_between_0_and_1(times: list[tuple[float, float]]) -> None:
    one, two = np.array(times).T
    hosts, devices = host_efficiency(one, two, 100.0), device_efficiency(one, two, 100.0)
    assert hosts.parallel == pytest.approx(hosts.load_balance * hosts.communication * hosts.offload, abs=1e-12)
    assert devices.parallel == pytest.approx(devices.load_balance * devices.communication * devices.orchestration, abs=1e-12)
    assert hosts.parallel == pytest.approx(one.sum() / (100 * len(one)), abs=1e-9)
    assert all(0 <= value <= 1 + 1e-12 for value in (*dataclasses.astuple(hosts), *dataclasses.astuple(devices)[:4]))


def test_overlap_counts_once() -> None:
    run = run_of(["k", "copy"], kernels=[(0, 10, 1, 0, 0), (5, 15, 2, 0, 0)], copies=[(8, 20, 1, 1, 0)])
    [device] = activities(run)
    assert device.computing.length == 15
    assert without(device.copying, device.computing).length == 5
    assert efficiency(run).devices.parallel == pytest.approx(15 / 20)
    by_sums = lost(run, unions=False)
    assert by_sums.useful.tolist() == [20.0]


def test_a_host_that_waits_offloads() -> None:
    calls = [(0, 10, 0, 1, 1), (20, 60, 0, 2, 2), (100, 100, 0, 1, 3)]
    run = run_of(["k", "cudaLaunchKernel", "cudaDeviceSynchronize"], kernels=[(15, 58, 1, 0, 1)], calls=calls)
    hosts = efficiency(run).hosts
    assert (hosts.offload, hosts.mpi, hosts.parallel) == pytest.approx((0.6, 1.0, 0.6))


def test_scaling_compares_kernels_of_one_name() -> None:
    first = run_of(["k", "only here"], kernels=[(0, 10, 1, 0, 0), (20, 90, 1, 1, 0)])
    second = run_of(["k"], kernels=[(0, 20, 1, 0, 0)])
    assert efficiency(second, reference=first).devices.scaling == pytest.approx(0.5)


# Intervals against a raster

PAIRS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda p: (p[0], p[0] + p[1])), max_size=12)


def raster(pairs: list[tuple[int, int]]) -> np.ndarray:
    cells = np.zeros(90, np.bool_)
    for start, end in pairs:
        cells[start:end] = True
    return cells


def cells_of(found: Intervals) -> np.ndarray:
    assert (found.start < found.end).all()
    assert (found.start[1:] >= found.end[:-1]).all()
    return raster(list(zip(found.start.tolist(), found.end.tolist())))


@given(a=PAIRS, b=PAIRS)
def test_sets_of_moments_agree_with_a_raster(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    x, y = intervals(*a), intervals(*b)
    assert (cells_of(x) == raster(a)).all()
    assert x.length == raster(a).sum()
    assert (cells_of(either(x, y)) == (raster(a) | raster(b))).all()
    assert (cells_of(both(x, y)) == (raster(a) & raster(b))).all()
    assert (cells_of(without(x, y)) == (raster(a) & ~raster(b))).all()
    assert covered(x, y).sum() == (raster(a) & raster(b)).sum()
    assert union(x.start, x.end).start.tolist() == x.start.tolist()


# Who launched what


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0, 1, 2, 5, 900, 4_000_000_000, 4_294_967_295])), max_size=30),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0, 1, 2, 5, 901, 4_000_000_000, 4_294_967_295])), max_size=30),
)
def test_activities_find_the_first_call_of_their_process_and_correlation(calls: list[tuple[int, int]], kernels: list[tuple[int, int]]) -> None:
    rows = [(k, k + 1, 3 * process, 0, correlation) for k, (process, correlation) in enumerate(calls)]
    wanted = [(k, k + 1, 3 * process + 1, 0, correlation) for k, (process, correlation) in enumerate(kernels)]
    run = run_of(["k"], kernels=wanted, calls=rows, processes=3)
    expected = [calls.index(one) if one in calls and one[1] else -1 for one in kernels]
    assert launching(run, run.of("kernel")).tolist() == expected


def test_calls_are_told_by_what_they_do() -> None:
    waiting = ("cudaStreamSynchronize", "cuCtxSynchronize", "cudaMemcpy", "cudaMemcpy2D", "cuMemcpyDtoH_v2", "cudaFree", "cuEventSynchronize")
    launching_calls = ("cudaLaunchKernel", "cuLaunchKernelEx", "cudaMemcpyAsync", "cudaGraphLaunch", "cudaMemsetAsync")
    neither = ("cudaMalloc", "cudaEventRecord", "cudaStreamWaitEvent")
    assert all(WAITS.match(name) and not LAUNCHES.match(name) for name in waiting)
    assert all(LAUNCHES.match(name) and not WAITS.match(name) for name in launching_calls)
    assert not any(WAITS.match(name) or LAUNCHES.match(name) for name in neither)


# Causes, on programs in which they were planted


def recorded_exactly(design: Design, seed: int = 3) -> Run:
    return recorded(simulated(design, seed), clocks_of(design.ranks, np.random.default_rng(seed)))


@pytest.mark.parametrize("cause", CAUSES)
def test_each_planted_cause_alone_is_ranked_first_with_its_share(cause: str) -> None:
    base = Design(ranks=4, iterations=6, kernels=60, communication=0.0 if cause == "communication" else 20_000.0)
    design = planted(base, cause, 0.2, 3)
    truth = costs(design, 3)[cause]
    assert truth == pytest.approx(0.2, abs=0.002)
    found = lost(aligned(recorded_exactly(design)))
    assert found.named[:1] == (cause,)
    assert found.shares[cause] == pytest.approx(truth, abs=0.02)
    assert found.table.sum() + found.useful.sum() == pytest.approx(found.elapsed_ns * len(found.devices))


def test_ranks_that_meet_in_mpi_are_imbalanced_too() -> None:
    base = Design(ranks=4, iterations=6, kernels=60, by_mpi=True)
    design = planted(base, "imbalance", 0.2, 5)
    run = aligned(recorded_exactly(design))
    assert run.alignment is not None
    assert run.alignment.by == "collectives"
    found = lost(run)
    assert found.named[0] == "imbalance"
    assert found.shares["imbalance"] == pytest.approx(costs(design, 5)["imbalance"], abs=0.03)


def test_every_moment_of_a_device_has_one_place_even_where_nothing_fits() -> None:
    rng = np.random.default_rng(8)
    names = ["k", "nccl", "copy", "cudaLaunchKernel", "cudaStreamSynchronize"]
    for _ in range(20):
        start = np.sort(rng.integers(0, 200_000, (3, 30)), axis=1)
        length = rng.integers(0, 30_000, (3, 30))
        rows = [(int(s), int(s + d), int(rng.integers(1, 3)), int(rng.integers(2)), k) for k, (s, d) in enumerate(zip(start[0], length[0]))]
        copies = [(int(s), int(s + d), 1, 2, 40 + k) for k, (s, d) in enumerate(zip(start[1], length[1]))]
        calls = [(int(s), int(s + d), 0, int(rng.integers(3, 5)), int(rng.integers(80))) for s, d in zip(start[2], length[2])]
        found = lost(run_of(names, rows, copies, calls))
        assert found.table.sum() + found.useful.sum() == pytest.approx(found.elapsed_ns)
        assert (found.table >= 0).all()


@pytest.mark.parametrize(("part", "cause"), [("split_nccl", "communication"), ("unions", "communication"), ("align", "imbalance")])
def test_each_part_of_the_technique_matters(part: str, cause: str) -> None:
    if part == "align":
        design = planted(Design(ranks=4, iterations=8, kernels=20, kernel_ns=20e3), "imbalance", 0.1, 3)
    elif part == "unions":
        design = Design(ranks=4, iterations=6, kernels=60, overlapped_communication=600_000.0)
    else:
        design = planted(Design(ranks=4, iterations=6, kernels=60, communication=0.0), "communication", 0.2, 3)
    run = recorded_exactly(design)
    truth = costs(design, 3)[cause]
    whole, less = (abs(one.attribute(run).shares[cause] - truth) for one in (Nsys2prv(), Nsys2prv(**{part: False})))
    assert whole < 0.02
    assert less > whole + 0.01


def test_native_views_see_what_they_can_see() -> None:
    design = planted(Design(ranks=4, iterations=6, kernels=60), "transfers", 0.2, 3)
    run, truth = recorded_exactly(design), costs(design, 3)
    assert Stats().attribute(run).shares["transfers"] == pytest.approx(truth["transfers"], abs=0.02)
    assert Breakdown().attribute(run).main == "transfers"
    assert Busy().attribute(run).main == "host"
    hidden = recorded_exactly(Design(ranks=4, iterations=6, kernels=60, overlapped_copies=1_000_000.0))
    assert Breakdown().attribute(hidden).main == Nsys2prv().attribute(hidden).main == ""
    assert Stats().attribute(hidden).main == "transfers"


def test_the_breakdown_by_hand() -> None:
    names = ["k", "nccl", "copy", "cudaLaunchKernel"]
    kernels = [(100, 200, 1, 0, 1), (150, 260, 2, 1, 2), (300, 400, 1, 0, 3), (410, 500, 1, 0, 4)]
    calls = [(0, 10, 0, 3, 1), (20, 30, 0, 3, 2), (270, 280, 0, 3, 3), (285, 290, 0, 3, 4)]
    table = Breakdown().table(run_of(names, kernels, [(240, 280, 1, 2, 0)], calls))
    assert {name: round(400 * share[0]) for name, share in table.items()} == {
        "compute": 290, "communication": 60, "copy": 20, "host wait": 0, "kernel wait": 30, "other wait": 0,
    }  # fmt: skip
    table = Breakdown(kernel_wait_ns=15).table(run_of(names, kernels, [(240, 250, 1, 2, 0)], calls))
    assert {name: round(400 * share[0]) for name, share in table.items()} == {
        "compute": 290, "communication": 60, "copy": 0, "host wait": 40, "kernel wait": 10, "other wait": 0,
    }  # fmt: skip


# Clocks that drift


@pytest.mark.parametrize("drift", [500.0, 3_000.0, 20_000.0])
def test_the_uncertainty_covers_what_drifting_clocks_cost(drift: float) -> None:
    rng = np.random.default_rng(int(drift))
    design = planted(Design(ranks=6, iterations=8, kernels=30), "host", 0.15, 4)
    program = simulated(design, 4)
    perfect = lost(recorded(program, (Clock(),) * 6))
    for _ in range(4):
        found = lost(aligned(recorded(program, clocks_of(6, rng, drift))))
        assert found.uncertainty is not None
        for cause in ("imbalance", "communication"):
            assert abs(found.shares[cause] - perfect.shares[cause]) <= found.uncertainty
        assert set(found.named) <= {"host"}


def test_reports_whose_clocks_cannot_be_compared_name_no_imbalance() -> None:
    design = Design(ranks=3, iterations=4, kernels=30, imbalance=0.5, communication=0.0)
    run = recorded(simulated(design, 1), clocks_of(3, np.random.default_rng(1)))
    without_collectives = dataclasses.replace(run, spans={kind: one for kind, one in run.spans.items() if kind != "kernel"})
    kernels = run.of("kernel").of(~run.communicates())
    found = lost(aligned(dataclasses.replace(run, spans={**without_collectives.spans, "kernel": kernels})))
    assert found.uncertainty is None
    assert "imbalance" not in found.named


# Regions and iterations


def test_a_region_is_what_was_launched_in_it() -> None:
    calls = [(10, 12, 0, 1, 1), (30, 32, 0, 1, 2), (60, 62, 0, 1, 3)]
    kernels = [(100, 150, 1, 0, 1), (150, 170, 1, 0, 2), (170, 180, 1, 0, 3)]
    run = run_of(["k", "cudaLaunchKernel", "step", "other"], kernels, (), calls, [(5, 40, 0, 2, 0), (50, 70, 0, 3, 0)])
    found = efficiency(run, region="step")
    assert (found.host_elapsed_ns, found.device_elapsed_ns, found.devices.parallel) == (35, 70, 1.0)
    with pytest.raises(InputError, match=r'region "stepp".*step'):
        efficiency(run, region="stepp")


def test_iterations_are_found_without_ranges() -> None:
    design = Design(ranks=1, iterations=7, kernels=30, host=50_000.0)
    run = recorded_exactly(design)
    found = iterations(run)
    assert len(found) == 8
    assert np.ptp(np.diff(found)) < 0.2 * np.diff(found).mean()
    rng = np.random.default_rng(0)
    shuffled = dataclasses.replace(run.of("kernel"), name=rng.integers(0, 5, len(run.of("kernel"))).astype(np.int32))
    assert len(iterations(dataclasses.replace(run, spans={"kernel": shuffled}))) == 0


# Comparing two runs


def test_a_slower_kernel_explains_the_change_of_the_elapsed_time() -> None:
    base = Design(ranks=4, iterations=5, kernels=30)
    slower = dataclasses.replace(base, slower=2, slower_by=2.0)
    before, after = (aligned(recorded_exactly(one)) for one in (base, slower))
    found = compare_runs(before, after)
    assert found.table["what"][0] == "softmax_warp_forward"
    assert found.table["change_us"].sum() == pytest.approx(found.change_us, abs=1.0)
    assert "softmax_warp_forward" in str(found)
    assert Compare().explain(before, after).main == "softmax_warp_forward"
    assert Compare().explain(before, before).shares == pytest.approx(dict.fromkeys((*CAUSES, "compute"), 0.0), abs=1e-9)


def test_calls_that_became_slower_are_told_by_their_order() -> None:
    first = [(100 * k, 100 * k + 50, 1, 0, 0) for k in range(20)]
    second = [(100 * k, 100 * k + (90 if 12 <= k < 15 else 50), 1, 0, 0) for k in range(20)]
    rows = {row["what"]: row for row in compare_runs(run_of(["k"], first), run_of(["k"], second)).table.iter_rows(named=True)}
    assert rows["k"]["note"] == "calls 13 to 15 of 20"
    assert rows["k"]["change_us"] == pytest.approx(0.12)
