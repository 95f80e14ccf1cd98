"""Workflows in simulated time: the bound, aggregation, placement, reductions, and the choice among all."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from armillary.cluster import preset
from armillary.errors import InputError
from armillary.network.transport import Auto, Reduction, TransportWork, Workflow, compare, fan, front, grayscott, md, pipeline
from armillary.network.transport.simulation.play import PLACEMENTS

INSITU = preset("two-clusters-insitu")
REAL = ("file-shared", "file-local", "staging-colocated", "staging-remote")
WORKFLOWS = [fan(12, 5, (24, 20, 18)), pipeline(16), grayscott(16, heavy=True), md(atoms=9600, steps=8), md(dense=True, atoms=960, steps=4)]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda w: w.name)
def test_nothing_beats_the_ideal_and_aggregation_changes_no_time(workflow: Workflow) -> None:
    bound = workflow.simulate(INSITU, "ideal").makespan
    for transport in REAL:
        for placement in PLACEMENTS:
            if (workflow.name, transport, placement) == ("pipeline", "file-local", "remote"):
                continue  # The filter's nodes have no disks.
            together = workflow.simulate(INSITU, transport, placement=placement)
            single = workflow.simulate(INSITU, transport, placement=placement, aggregate=False)
            assert together.makespan >= bound * (1 - 1e-12)
            assert together.makespan == pytest.approx(single.makespan, rel=1e-9)
            assert together.publisher_stall == pytest.approx(single.publisher_stall, rel=1e-9, abs=1e-12)
            assert together.subscriber_idle == pytest.approx(single.subscriber_idle, rel=1e-9, abs=1e-12)
            assert together.bytes_moved == single.bytes_moved
            assert together.flows <= single.flows


def test_one_step_of_a_fan_by_hand() -> None:
    # One publisher and one subscriber on nodes of both clusters: 2 + 1 + 1 + 1 + 2 ms, and 8 MB over 1 Gb/s.
    found = fan(1, 1, (1000, 1000), steps=1).simulate(INSITU, "staging-remote")
    assert found.makespan == pytest.approx(0.007 + 8e6 / 125e6, rel=1e-12)
    # On one node the loopback is as fast, and its latency 1.75 ms.
    assert fan(1, 1, (1000, 1000), steps=1).simulate(INSITU, "staging-colocated").makespan == pytest.approx(0.00175 + 0.064, rel=1e-12)
    # Files: 2 + 1 + 1 ms and 64 ms of network, then the disk; the same back.
    shared = fan(1, 1, (1000, 1000), steps=1).simulate(INSITU, "file-shared")
    assert shared.makespan == pytest.approx(2 * (0.004 + 0.064) + 8 / 160 + 8 / 180, rel=1e-12)
    local = fan(1, 1, (1000, 1000), steps=1).simulate(INSITU, "file-local")
    assert local.makespan == pytest.approx(8 / 510 + 8 / 560, rel=1e-12)


def test_computing_shares_the_cores_of_a_node() -> None:
    one = grayscott(16, heavy=True)
    alone = max(c.compute for c in one.components if c.name == "simulation") * one.steps / 11e9
    assert one.simulate(INSITU, "ideal").makespan >= alone


def test_a_reduction_moves_fewer_bytes_and_costs_flops() -> None:
    plain = fan(8, 4, (32, 32, 32))
    halved = plain.with_reduction(Reduction("decimation", stride=(1, 1, 2)))
    squeezed = plain.with_reduction(Reduction("compression", ratio=4.0))
    moved = {w: x.simulate(INSITU, "staging-remote").bytes_moved for w, x in (("plain", plain), ("halved", halved), ("squeezed", squeezed))}
    assert moved["halved"] == moved["plain"] / 2
    assert moved["squeezed"] == moved["plain"] / 4
    costly = plain.with_reduction(Reduction("compression", ratio=1.0, flops=1e6))
    slower = costly.simulate(INSITU, "staging-remote").makespan - plain.simulate(INSITU, "staging-remote").makespan
    # Publishers compress as many elements as a quarter of the subscribers' share, and the steps overlap but for the first.
    assert slower > 5 * 32**3 / 4 * 1e6 / 6e9 * 0.9


def test_the_choice_is_the_least_of_all_ways_and_the_front_is_one() -> None:
    work = TransportWork(pipeline(16), INSITU)
    choices = Auto().search(work)
    assert choices[0].found.makespan == min(c.found.makespan for c in choices)
    for one in choices:
        again = work.workflow.simulate(INSITU, one.transport, placement=one.placement)
        assert again.makespan == one.found.makespan, "the promise is what its own execution delivers"
    kept = front(choices)
    assert all(a.found.makespan <= b.found.makespan and a.found.core_seconds > b.found.core_seconds for a, b in pairwise(kept))
    cheap = Auto(goal="core_seconds").search(work)[0]
    assert cheap.found.core_seconds == min(c.found.core_seconds for c in choices)
    stale = Auto(staleness=3, lossy=True).search(work)
    assert {c.every for c in stale} == {1, 2, 3}
    assert {c.reduction for c in stale} == {"none", "decimation", "compression"}
    rows = compare(work.workflow, INSITU)
    assert rows[0]["over_ideal"] >= 1.0


def test_a_node_without_a_disk_cannot_keep_files() -> None:
    one = fan(2, 2, (8, 8))
    turned = replace(one, components=tuple(replace(c, group="b") for c in one.components))
    with pytest.raises(InputError, match="node b-0 has no disk of its own"):
        turned.simulate(INSITU, "file-local")
    with pytest.raises(InputError, match="has no engine"):
        one.simulate(INSITU)
    with pytest.raises(InputError, match="the cores of group b"):
        fan(2, 128 * 48 + 1, (20_000, 8)).simulate(INSITU, "staging-remote")


@pytest.mark.slow
def test_twenty_five_thousand_processes() -> None:
    found = fan(20_000, 5_000, (1000, 1000, 1000)).simulate(INSITU, "staging-remote")
    assert found.processes == 25_000
    assert found.bytes_moved == 5 * 8e9
