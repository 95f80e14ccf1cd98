"""Links that fade and parts that fail: by hand, by law, and from files."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from armillary import workloads as w
from armillary.errors import InputError
from armillary.workloads import Failures


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


# Links


def test_a_link_of_two_states() -> None:
    times, values = w.two_states(rng(), 8.0, 1.0, 2.0, 40_000.0, low_mean_s=6.0)
    assert values.tolist() == [8.0, 1.0] * (len(values) // 2) + [8.0] * (len(values) % 2)
    stays = np.diff(times)
    assert stats.kstest(stays[::2], stats.expon(scale=2.0).cdf).pvalue > 1e-3
    assert stats.kstest(stays[1::2], stats.expon(scale=6.0).cdf).pvalue > 1e-3
    assert times[-1] < 40_000


def test_what_others_leave() -> None:
    times, left = w.left_by_others(rng(), 0.6, 0.5, 5000.0)
    assert (np.diff(times) == 0.5).all()
    assert stats.kstest(left, stats.uniform(0.4, 0.6).cdf).pvalue > 1e-3
    assert w.left_by_others(rng(), 0.0, 10.0, 1.0)[1].tolist() == [1.0]


def test_links_toggle_by_turns_and_end_off() -> None:
    times, which = w.toggles(rng(), 3, on_s=1.0, off_s=4.0, cycle_s=5000.0)
    assert (np.diff(times) >= 0).all()
    for link in range(3):
        own = times[which == link]
        assert len(own) % 2 == 0
        on, off = own[1::2] - own[::2], own[2::2] - own[1:-1:2]
        assert on.mean() == pytest.approx(1.0, rel=0.15)
        assert off.mean() == pytest.approx(4.0, rel=0.15)


def test_outages_do_not_overlap() -> None:
    start, end = w.outages(rng(), 5000.0, up_s=3.0, down_s=1.0, least_s=0.5)
    assert (end - start >= 0.5).all()
    assert (start[1:] - end[:-1] >= 0.5).all()
    assert stats.kstest(end - start - 0.5, stats.expon(scale=1.0).cdf).pvalue > 1e-3
    assert [len(a) for a in w.outages(rng(), 0.0, up_s=3.0, down_s=1.0)] == [0, 0]


def test_measured_links(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time_s,bandwidth_mbps,latency_ms\n10,8,5\n11,16,6\n13,0,7\n")
    at, rate, end, late = w.read_bandwidth(tmp_path / "a.csv")
    assert at.tolist() == [0.0, 1.0, 3.0]
    assert rate.tolist() == [1e6, 2e6, 0.0]
    assert end == 5.0
    assert late is not None
    assert late == pytest.approx([5e-3, 6e-3, 7e-3])
    # Mahimahi: three packets in the first 100 ms, none in the second, one in the third.
    (tmp_path / "lte.up").write_text("0\n50\n99\n250\n")
    at, rate, end, late = w.read_bandwidth(tmp_path / "lte.up")
    assert at == pytest.approx([0, 0.1, 0.2])
    assert rate == pytest.approx([45_000, 0, 15_000])
    assert late is None


def test_links_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time_s,bandwidth_mbps\n1,8\n0,8\n")
    (tmp_path / "b.up").write_text("5\nx\n")
    os.mkfifo(tmp_path / "c.up")
    for name, said in (("a.csv", "a.csv"), ("b.up", "b.up:2"), ("c.up", "found a FIFO"), ("d.up", "no such file")):
        with pytest.raises(InputError, match=said):
            w.read_bandwidth(tmp_path / name)


# Failures


def availability(found: Failures, parts: int, window_s: float) -> float:
    ends = np.minimum(found.start_s + found.repair_s, window_s)
    return 1 - float((ends - found.start_s).sum()) / (parts * window_s)


def test_failures_of_one_kind() -> None:
    found = w.failures(rng(), 200, 20_000.0, mtbf_s=900.0, repair_median_s=100.0)
    assert (found.repair_s == 100.0).all()
    assert availability(found, 200, 20_000.0) == pytest.approx(0.9, abs=0.01)
    first = np.full(200, np.inf)
    np.minimum.at(first, found.part, found.start_s)
    assert stats.kstest(first, stats.expon(scale=900.0).cdf).pvalue > 1e-3
    assert (np.diff(found.start_s) >= 0).all()
    for part in range(200):
        mine = found.part == part
        assert (found.start_s[mine][1:] > (found.start_s + found.repair_s)[mine][:-1]).all()


def test_lives_are_weibull_and_old_parts_live_on_as_they_should() -> None:
    shape, mean = 0.7, 1000.0
    scale = mean / math.gamma(1 + 1 / shape)
    for age in (0.0, 2500.0):
        found = w.failures(rng(), 3000, 1e5, mtbf_s=mean, shape=shape, age_s=age, repair_median_s=1e9)
        assert len(found) == 3000
        law = stats.weibull_min(shape, scale=scale)
        rest = law.sf(found.start_s + age) / law.sf(age)  # Uniform, if the remaining lives have the conditional law.
        assert stats.kstest(rest, stats.uniform.cdf).pvalue > 1e-3
    young = w.failures(rng(), 3000, 50.0, mtbf_s=mean, shape=shape, repair_median_s=1e9)
    old = w.failures(rng(), 3000, 50.0, mtbf_s=mean, shape=shape, age_s=np.full(3000, 5000.0), repair_median_s=1e9)
    assert len(young) > 2 * len(old)


def test_racks_fail_as_one() -> None:
    racks = np.repeat([3, 0, 7], 20)
    found = w.rack_failures(rng(), racks, 10_000.0, mtbf_s=1000.0, repair_median_s=50.0, repair_sigma=0.5)
    for start in np.unique(found.start_s):
        hit = found.part[found.start_s == start]
        assert len(hit) == 20
        assert len(set(racks[hit])) == 1
    assert len(np.unique(found.start_s)) == pytest.approx(30, rel=0.5)
    some = w.rack_failures(rng(), np.zeros(1000, int), 50_000.0, mtbf_s=1000.0, repair_median_s=50.0, hit=0.3)
    assert len(some) / len(np.unique(some.start_s)) == pytest.approx(300, rel=0.05)
    assert len(w.rack_failures(rng(), racks, 10_000.0, mtbf_s=1000.0, repair_median_s=50.0, hit=0.0)) == 0


SPANS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2), st.integers(1, 8)), max_size=12)


@given(first=SPANS, second=SPANS)
def test_together_a_part_is_down_when_either_says_so(first: list[tuple[int, int, int]], second: list[tuple[int, int, int]]) -> None:
    def made(spans: list[tuple[int, int, int]]) -> Failures:
        start, part, repair = (np.array([span[i] for span in spans]) for i in range(3))
        return Failures(start.astype(float), part.astype(np.int64), repair.astype(float))

    found = w.together(made(first), made(second))
    for part in range(3):
        own = found.part == part
        starts, ends = found.start_s[own], (found.start_s + found.repair_s)[own]
        assert (starts[1:] > ends[:-1]).all()
        for t in np.arange(0, 30, 0.5) + 0.25:
            expected = any(p == part and s <= t < s + length for s, p, length in first + second)
            assert bool(((starts <= t) & (t < ends)).any()) == expected


def test_logs_of_failures(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("time_s,device,event\n1,0,down\n2,1,down\n2.5,0,up\n4,0,down\n")
    found = w.read_failures(path, 2)
    assert found.start_s.tolist() == [1.0, 2.0, 4.0]
    assert found.part.tolist() == [0, 1, 0]
    assert found.repair_s.tolist() == [1.5, math.inf, math.inf]
    path.write_text("start,end,node\n5,6,1\n1,3,0\n2,4,0\n")
    found = w.read_failures(path, 2)
    assert (found.start_s.tolist(), found.part.tolist(), found.repair_s.tolist()) == ([1.0, 5.0], [0, 1], [3.0, 1.0])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time_s,part,event\n1,0,down\n2,0,down\n", r':3: column "event": found part 0 going down'),
        ("time_s,part,event\n1,0,up\n", r':2: column "event": found part 0 going up'),
        ("time_s,part,event\n1,5,down\n", r':2: column "part": found "5"; expected a whole number from 0 to 1'),
        ("time_s,part,event\n1,0,slow\n", r':2: column "event": found "slow"; expected one of down, up'),
        ("time_s,part,event\n2,0,down\n1,0,up\n", r':3: column "time_s": found "1" after 2'),
        ("start_s,end_s,part\n2,2,0\n", r':2: column "end_s": found 2; expected seconds after the start'),
        ("when,who\n1,2\n", "found the columns when, who"),
    ],
)
def test_logs_that_make_no_sense(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "f.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        w.read_failures(path, 2)


def test_parameters_that_make_no_sense() -> None:
    ok = {"mtbf_s": 10.0, "repair_median_s": 1.0}
    for call in (
        lambda: w.failures(rng(), 2, 10.0, mtbf_s=0, repair_median_s=1.0), lambda: w.failures(rng(), 2, 10.0, **ok, shape=0),
        lambda: w.failures(rng(), 2, 10.0, **ok, age_s=-1), lambda: w.failures(rng(), 2, math.inf, **ok), lambda: w.failures(rng(), -2, 1.0, **ok),
        lambda: w.failures(rng(), 1000, 1e9, **ok), lambda: w.rack_failures(rng(), [0.5], 10.0, **ok), lambda: w.rack_failures(rng(), [], 10.0, **ok),
        lambda: w.rack_failures(rng(), [0], 10.0, **ok, hit=2), lambda: w.two_states(rng(), 1, 0, 0, 10), lambda: w.two_states(rng(), 1, 0, 1, 1e9),
        lambda: w.left_by_others(rng(), 1.0, 1.0, 1.0), lambda: w.toggles(rng(), 1, on_s=0, off_s=1, cycle_s=1),
        lambda: w.outages(rng(), 1e9, up_s=1, down_s=1), lambda: w.outages(rng(), 1, up_s=1, down_s=1, least_s=-1),
    ):  # fmt: skip
        with pytest.raises(InputError):
            call()
