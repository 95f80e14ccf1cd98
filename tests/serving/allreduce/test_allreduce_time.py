"""The closed forms of an all-reduce agree with figures by hand and a numerical search for the best share, and keep their limits."""

from __future__ import annotations

import csv
import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from armillary import cluster
from armillary.errors import InputError
from armillary.serving.allreduce import (
    Shape,
    Wires,
    flat_ring_seconds,
    hierarchical_seconds,
    hybrid_seconds,
    ina_seconds,
    split,
    switch_seconds,
    tuner_table,
)
from armillary.serving.allreduce.collectives.allreduce_time import nvlink_seconds, ring_factor

M = 16 << 20
FOUR = Shape(4, 4, nic=12.5e9, nvlink=300e9, nic_s=10e-6, nvlink_s=2e-6, rtt_s=20e-6)
WIRES = Wires.of("ina-6x2")


def test_four_servers_of_four_by_hand() -> None:
    assert flat_ring_seconds(M, FOUR) == pytest.approx(2.817e-3, abs=5e-7)
    assert hierarchical_seconds(M, FOUR) == pytest.approx(2.169e-3, abs=5e-7)
    assert switch_seconds(M, FOUR, 12.5e9) == pytest.approx(1.458e-3, abs=5e-7)
    assert switch_seconds(M, FOUR, 1e12) == switch_seconds(M, FOUR, 12.5e9)


def test_every_gpu_through_the_switch_pays_the_nic_four_times() -> None:
    assert ina_seconds(M, FOUR, 1e12) == pytest.approx(4 * M / 12.5e9 + 20e-6)


def test_a_slow_switch_is_helped_by_the_ring() -> None:
    x, seconds = split(M, 4, 12.5e9, 6.5e9)
    assert x == pytest.approx(0.619, abs=5e-4)
    assert seconds == pytest.approx(1.598e-3, abs=5e-7)
    assert pytest.approx(2.58e-3, abs=5e-6) == M / 6.5e9
    assert ring_factor(4) * M / 12.5e9 == pytest.approx(2.013e-3, abs=5e-7)
    around = nvlink_seconds(M, FOUR) + 60e-6
    assert hybrid_seconds(M, FOUR, 6.5e9) == pytest.approx(seconds + around)
    assert hybrid_seconds(M, FOUR, 6.5e9) < min(hierarchical_seconds(M, FOUR), switch_seconds(M, FOUR, 6.5e9))


def test_the_share_at_its_limits() -> None:
    assert split(M, 4, 12.5e9, 0.0)[0] == 0.0
    assert split(M, 4, 12.5e9, 1e-3)[0] < 1e-9
    assert split(M, 4, 12.5e9, math.inf) == (1.0, M / 12.5e9)
    assert split(0, 4, 12.5e9, 1e9)[1] == 0.0
    for share in (1e9, 6.25e9, 12.5e9, 40e9):
        assert split(M, 2, 12.5e9, share)[0] == pytest.approx(min(1.0, share / 12.5e9))


@given(st.integers(2, 64), st.floats(1e8, 1e11), st.floats(1e7, 1e12))
def test_no_other_share_is_faster(servers: int, nic: float, share: float) -> None:
    x, seconds = split(M, servers, nic, share)
    rho = ring_factor(servers)

    def time(y: float) -> float:
        return max((y + rho * (1 - y)) * M / nic, y * M / share)

    found = minimize_scalar(time, bounds=(0, 1), method="bounded", options={"xatol": 1e-12})
    assert 0 <= x <= 1
    assert seconds == pytest.approx(time(x))
    assert seconds <= min(found.fun, time(0), time(1)) * (1 + 1e-6)


@given(st.integers(2, 32), st.integers(1, 8), st.floats(1e9, 1e11), st.floats(1e3, 1e9))
def test_both_paths_are_never_slower_than_either(servers: int, gpus: int, share: float, nbytes: float) -> None:
    at = Shape(servers, gpus, 12.5e9, 300e9, nic_s=0.0, rtt_s=0.0)
    both = hybrid_seconds(nbytes, at, share)
    assert both <= hierarchical_seconds(nbytes, at) * (1 + 1e-12)
    assert both <= switch_seconds(nbytes, at, share) * (1 + 1e-12)


def test_jobs_share_the_slots_equally() -> None:
    assert WIRES.slots == 512
    assert WIRES.rate_of(512) == pytest.approx(512 * 1024 / 20e-6)
    free_chip = dataclasses.replace(WIRES, asic=math.inf)
    assert free_chip.share(4, jobs=4) == pytest.approx(free_chip.share(4) / 4)
    assert free_chip.share(4) == pytest.approx(26.2144e9)
    assert WIRES.share(4) == pytest.approx(10e9), "four inputs share what the chip adds up"


def test_the_wires_of_the_built_in_cluster() -> None:
    assert (WIRES.servers, WIRES.gpus, WIRES.switches, WIRES.payload) == (6, 4, 2, 1024)
    assert (WIRES.nic, WIRES.nvlink, WIRES.asic, WIRES.rtt_s) == (12.5e9, 300e9, 40e9, 20e-6)
    assert WIRES.common((0, 5)) == (0, 1)
    assert WIRES.window == math.ceil(12.5e9 * 20e-6 / 1024)


def test_small_messages_go_by_latency() -> None:
    assert nvlink_seconds(1024, FOUR) == pytest.approx(2 * (3 * 1024 / 300e9 + 2e-6))
    table = tuner_table(WIRES, 4)
    small, large = table.choose(2048), table.choose(M)
    assert (small.algorithm, small.x) == ("switch", 1.0)
    assert large.algorithm == "hybrid"
    assert large.x == pytest.approx(split(M, 4, 12.5e9, 10e9)[0])
    assert all(a.seconds <= b.seconds for a, b in zip(table.rows, table.rows[1:], strict=False))


def test_the_tuner_table_leaves_as_csv_and_json(tmp_path) -> None:  # type: ignore[no-untyped-def]
    table = tuner_table(WIRES, 2, jobs=3)
    table.write(tmp_path / "t.csv")
    table.write(tmp_path / "t.json")
    with (tmp_path / "t.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(int(r["bytes"]), r["algorithm"], float(r["x"])) for r in rows] == [(r.nbytes, r.algorithm, r.x) for r in table.rows]
    assert [r["x"] for r in json.loads((tmp_path / "t.json").read_text())] == [r.x for r in table.rows]
    assert {r.algorithm for r in tuner_table(WIRES, 1).rows} == {"nvlink"}
    with pytest.raises(InputError, match=r"csv or \.json"):
        table.write(tmp_path / "t.txt")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: split(M, 1, 12.5e9, 1e9), "servers: found 1"),
        (lambda: split(-1, 4, 12.5e9, 1e9), "bytes: found -1"),
        (lambda: split(M, 4, 0, 1e9), "nic: found 0"),
        (lambda: split(M, 4, 1e9, -1.0), "switch_share: found -1"),
        (lambda: split(M, 4, 1e9, math.nan), "switch_share: found nan"),
        (lambda: switch_seconds(M, FOUR, 0.0), "without slots nothing passes"),
        (lambda: Shape(0, 4, 1e9, 1e9), "servers: found 0"),
        (lambda: Shape(2, 4, math.nan, 1e9), "nic: found nan"),
        (lambda: WIRES.share(2, 0), "jobs: found 0"),
        (lambda: Wires.of("dgx-h100"), "aggregation|switch|network|NIC"),
    ],
)
def test_bad_numbers_are_refused(call, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=says) as error:
        call()
    assert "\n" not in str(error.value)


def test_aggregation_without_slots_is_refused() -> None:
    described = cluster.preset("ina-6x2").to_dict()
    del described["network"]["compute"]["switch"]["aggregation"]
    plain = cluster.from_dict(described)
    with pytest.raises(InputError, match=r"aggregation: found none; expected switches with slots"):
        Wires.of(plain)
    assert Wires.of(plain, aggregates=False).slots == 0


def test_a_group_without_a_common_switch_is_refused() -> None:
    apart = dataclasses.replace(WIRES, reach=((0,),) * 3 + ((1,),) * 3)
    assert apart.common((0, 2)) == (0,)
    with pytest.raises(InputError, match="servers 2, 3 have no switch in common"):
        apart.common((2, 3))
