"""The modelled core against one of dictionaries and lists, and against counts by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.kernels import kernel
from armillary.trust.corruption.machine.noise import measured
from armillary.trust.corruption.machine.processor import COUNTERS, COUNTS, Processor, branch, load, sweep
from armillary.trust.corruption.solvers.loops import ENTRY, ROW, combine, dot, product

sys.path.insert(0, str(Path(__file__).parent))
from corruption_reference import Core


@kernel
def loads(m: np.ndarray, addresses: np.ndarray) -> None:
    for address in addresses:
        load(m, address)


@kernel
def branches(m: np.ndarray, places: np.ndarray, taken: np.ndarray) -> None:
    for i in range(len(places)):
        branch(m, places[i], taken[i])


def counts(core: Processor) -> dict[str, float]:
    return dict(zip(COUNTERS, core.read().tolist()))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.one_of(st.integers(0, 1 << 13), st.integers(0, 1 << 22)), min_size=1, max_size=600),
    st.sampled_from([(4096, 8192, 16384), (4096, 4096, 65536), (8192, 32768, 32768)]),
)
def test_every_access_misses_where_the_reference_does(addresses: list[int], sizes: tuple[int, int, int]) -> None:
    ours, theirs = Processor(*sizes), Core(*sizes)
    for address in addresses:
        loads(ours.state, np.array([address]))
        theirs.load(address)
        found = dict(zip(COUNTS, ours.state[2:12].tolist()))
        assert [found["l1_misses"], found["l2_misses"], found["llc_misses"]] == theirs.misses, address
        assert found["dtlb_misses"] == theirs.page_misses
    assert found["l1_loads"] == len(addresses)


def test_long_streams_miss_where_the_reference_does() -> None:
    rng = np.random.default_rng(3)
    addresses = np.concatenate([np.arange(0, 200_000, 8), rng.integers(0, 1 << 21, 20_000), np.arange(0, 200_000, 8)])
    ours, theirs = Processor(32 << 10, 512 << 10, 2 << 20), Core(32 << 10, 512 << 10, 2 << 20)
    loads(ours.state, addresses)
    for address in addresses.tolist():
        theirs.load(address)
    found = counts(ours)
    assert [found["l1_misses"], found["l2_misses"], found["llc_misses"], found["dtlb_misses"]] == [*theirs.misses, theirs.page_misses]
    assert min(theirs.misses) > 1000


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0x10, 0x20, 0x30]), st.booleans()), min_size=1, max_size=500))
def test_branches_are_mispredicted_where_the_reference_does(taken: list[tuple[int, bool]]) -> None:
    ours, theirs = Processor(), Core(4096, 4096, 16384)
    branches(ours.state, np.array([one[0] for one in taken]), np.array([one[1] for one in taken]))
    for place, one in taken:
        theirs.branch(place, one)
    found = counts(ours)
    assert (found["branches"], found["branch_misses"]) == (len(taken), theirs.wrong)


def test_a_loop_that_always_goes_on_is_learned_and_a_coin_is_not() -> None:
    core = Processor()
    branches(core.state, np.full(1000, 0x10), np.ones(1000, bool))
    assert counts(core)["branch_misses"] <= 13  # Once per pattern of the history until it is full of ones.
    branches(core.state, np.full(4000, 0x10), np.random.default_rng(0).random(4000) < 0.5)
    assert 0.4 < counts(core)["branch_misses"] / 4000 < 0.6


def test_a_product_is_counted_as_by_hand() -> None:
    # [[2, 1], [0, 3]]: three entries in two rows.
    core = Processor()
    at = np.array([0x10000, 0x21000, 0x32000, 0x43000, 0x54000])
    y = np.zeros(2)
    product(core.state, at, np.array([2.0, 1, 3]), np.array([0, 1, 1], np.int32), np.array([0, 2, 3]), np.array([5.0, 7]), y)
    assert y.tolist() == [17, 21]
    found = counts(core)
    assert found["instructions"] == 3 * ENTRY + 2 * ROW
    assert (found["branches"], found["flops"], found["assists"]) == (3 + 2 + 2, 6, 0)
    assert found["l1_loads"] == 3 * 3 + 2 * 2
    assert (found["l1_misses"], found["llc_misses"], found["dtlb_misses"]) == (5, 5, 5)
    cycles = 0.35 * found["instructions"] + 12 * 5 + 40 * 5 + 180 * 5 + 15 * found["branch_misses"]
    assert found["cycles"] == pytest.approx(cycles, abs=1e-9)
    assert found["task_clock"] == pytest.approx(cycles / 2.45)


def test_subnormal_operands_are_assists() -> None:
    core, y = Processor(), np.zeros(1)
    product(core.state, np.zeros(5, np.int64), np.array([1e-310, 2.0]), np.array([0, 0], np.int32), np.array([0, 2]), np.array([5e-324]), y)
    assert counts(core)["assists"] == 3


def test_a_sweep_counts_what_single_accesses_would() -> None:
    one, each = Processor(), Processor()
    sweep(one.state, 4096 + 24, 1000, 8)
    loads(each.state, 4096 + 24 + 8 * np.arange(1000))
    assert counts(one) | {"instructions": 0} == counts(each) | {"instructions": 0}
    quiet = Processor(counting=False)
    sweep(quiet.state, 0, 1000, 8)
    assert quiet.state[5] == 0


def test_a_moved_access_costs_what_the_reference_says() -> None:
    """One column index that leads 1 MiB away, in a matrix with one entry per row."""
    n = 1 << 18
    found = []
    for moved in (False, True):
        columns = np.arange(n, dtype=np.int32)
        if moved:
            columns[1000] += 1 << 17
        core, theirs = Processor(), Core(32 << 10, 512 << 10, 2 << 20)
        at = np.array([0, (1 << 26) + 0x1000, (1 << 27) + 0x2000, (1 << 28) + 0x3000, (1 << 29) + 0x4000])
        product(core.state, at, np.ones(n), columns, np.arange(3001), np.ones(n), np.empty(3000))
        for i in range(3000):
            for address in (at[2] + 8 * (i + 1), at[0] + 8 * i, at[1] + 4 * i, at[3] + 8 * int(columns[i]), at[4] + 8 * i):
                theirs.load(int(address))
        found.append((counts(core), theirs))
    for ours, reference in found:
        assert [ours["l1_misses"], ours["l2_misses"], ours["llc_misses"]] == reference.misses
        assert ours["dtlb_misses"] == reference.page_misses
    (clean, _), (bad, _) = found
    # The far element and its page are new; the one that is not read any more lies on a line that others read.
    assert bad["llc_misses"] - clean["llc_misses"] == 1
    assert bad["dtlb_misses"] - clean["dtlb_misses"] in (1, 2)
    assert bad["instructions"] == clean["instructions"]


def test_vectors_are_combined_in_order() -> None:
    core = Processor()
    x, y = np.array([1e16, 1.0, -1e16]), np.ones(3)
    assert dot(core.state, 0, x, 4096, y) == (1e16 + 1.0) - 1e16
    combine(core.state, 2.0, 0, x, -1.0, 4096, y)
    assert y.tolist() == [2e16 - 1, 1.0, -2e16 - 1]


def test_noise_has_its_scatter_and_its_events() -> None:
    windows = np.full((40_000, len(COUNTERS)), 1000.0)
    found = measured(windows, np.random.Generator(np.random.PCG64DXSM(0))) / 1000
    flops, cycles = found[:, COUNTERS.index("flops")], found[:, COUNTERS.index("cycles")]
    assert np.log(flops).std() == pytest.approx(0.005, rel=0.03)
    assert np.log(cycles).std() == pytest.approx(0.015, rel=0.03)
    assert (found[:, 0] > 1.025).mean() == pytest.approx(0.02 * 0.94, abs=0.003)
    assert (found[:, COUNTERS.index("l1_misses")] > 1.1).mean() == pytest.approx(0.02, abs=0.003)
    assert not measured(np.zeros((3, len(COUNTERS))), np.random.default_rng(0)).any()


@pytest.mark.parametrize("sizes", [(0, 1 << 20, 1 << 20), (1 << 15, 256, 1 << 20), (1 << 15, 1 << 20, 1 << 40)])
def test_caches_without_room_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(InputError, match="expected room for"):
        Processor(*sizes)
