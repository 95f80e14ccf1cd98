"""Counters of this machine, and the logs of `perf stat`."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.trust.corruption import CounterSampler, NoCounters, Perf, read_perf_stat, read_windows
from armillary.trust.corruption.counters import perf as perf_module
from armillary.trust.corruption.counters.perf import EVENTS, open_event, require, scaled
from armillary.trust.corruption.counters.sampler import as_table
from armillary.trust.corruption.counters.software import Software


def has(name: str) -> bool:
    try:
        os.close(open_event(*EVENTS[name]))
    except NoCounters:
        return False
    return True


def spin(count: int = 300_000) -> int:
    return sum(i * i % 7 for i in range(count))


def test_hardware_counters_count_or_say_why_not() -> None:
    if not has("instructions"):
        with pytest.raises(NoCounters) as caught:
            Perf(("instructions",))
        assert caught.value.errno in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)
        assert errno.errorcode[caught.value.errno or 0] in str(caught.value)
        with pytest.raises(NotForThisCase, match="gives no hardware counters: perf_event_open: E"):
            require()
        return
    reader = Perf(("instructions", "cycles"))
    spin()
    found = reader.sample()
    reader.close()
    assert found["instructions"] > 1e6


def test_a_failed_opening_leaves_no_descriptor() -> None:
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with contextlib.suppress(NoCounters):
            Perf().close()
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_the_systems_own_events_are_counted() -> None:
    if not has("task_clock"):
        pytest.skip("perf_event_open is not allowed here")
    reader = Perf(("task_clock", "page_faults"))
    spin()
    with mmap.mmap(-1, 256 * mmap.PAGESIZE) as fresh:  # An array may lie in memory that the process has touched before.
        fresh.madvise(mmap.MADV_NOHUGEPAGE)
        fresh[:: mmap.PAGESIZE] = bytes(256)
        found = reader.sample()
    assert found["task_clock"] > 1e6
    assert found["page_faults"] >= 256
    again = reader.sample()
    assert again["task_clock"] < found["task_clock"]
    reader.close()


def test_raw_values_are_scaled_by_the_time_they_ran() -> None:
    assert scaled(500, 10, 5) == 1000
    assert scaled(500, 10, 10) == 500
    assert scaled(500, 100, 9) is None
    assert scaled(0, 0, 0) == 0  # The thread slept.


def test_more_events_than_counters_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel made of a list: nine hardware events in groups of four, each of which ran for a third of the time."""
    opened: list[tuple[int, int]] = []

    def pretend(kind: int, number: int, leader: int = -1) -> int:
        opened.append((number, leader))
        return os.open("/dev/null", os.O_RDONLY)

    monkeypatch.setattr(perf_module, "open_event", pretend)
    monkeypatch.setattr(perf_module._Group, "read", lambda self: (self.last and (300, 100, *[7] * len(self.names))) or (0,) * (2 + len(self.names)))
    events = [name for name, (kind, _) in EVENTS.items() if kind != perf_module.SOFTWARE][:9]
    reader = Perf(events)
    assert [leader == -1 for _, leader in opened] == [True, False, False, False] * 2 + [True]
    assert reader.sample() == dict.fromkeys(events, 21.0)
    reader.close()


@pytest.mark.parametrize("source", ["best", "software", "events"])
def test_a_sampler_sees_what_the_block_does(source: str) -> None:
    if source == "events" and not has("task_clock"):
        pytest.skip("perf_event_open is not allowed here")
    with CounterSampler(every=0.02, source=source) as sampler:
        began = time.perf_counter()
        while time.perf_counter() - began < 0.15:
            spin(20_000)
    windows = sampler.windows()
    assert len(windows) >= 2
    x, names = as_table(windows)
    assert "task_clock" in names
    assert x[:, names.index("task_clock")].sum() > 2e7
    assert sampler.source in ("perf", "events", "software")
    if sampler.source == "events" and source == "best":
        assert "perf_event_open" in sampler.why
    with pytest.raises(InputError, match="expected seconds"):
        CounterSampler(every=0)
    with pytest.raises(InputError, match="expected best, perf"):
        CounterSampler(source="tea")


def test_a_short_block_is_one_window_and_an_error_passes() -> None:
    with CounterSampler(every=60, source="software") as sampler:
        spin(1000)
    assert len(sampler.windows()) == 1
    with pytest.raises(ZeroDivisionError), CounterSampler(every=60):
        1 / 0  # noqa: B018
    source = Software()
    spin()
    assert source.sample()["task_clock"] > 0


PLAIN = """# started on Thu Nov 19 12:00:00 2026

1000000,,cycles,5000000,100.00,2.1,GHz
500,,instructions,5000000,50.00,,
<not counted>,,branches,0,0.00,,
<not supported>,,cache-misses,0,100.00,,
"""
INTERVALS = """     0.100100;12.50;msec;task-clock;12500000;100.00;0.125;CPUs utilized
     0.100100;7;;page-faults;12500000;100.00;;
     0.100100;1000;;cpu/event=0x3c,umask=0x1/;12500000;100.00;;
;;;;;;0.5;metric
     0.200200;13.25;msec;task-clock;13250000;100.00;0.125;CPUs utilized
     0.200200;9;;page-faults;13250000;100.00;;
     0.200200;2000;;cpu/event=0x3c,umask=0x1/;13250000;100.00;;
"""


def test_multiplexed_values_are_taken_as_they_stand(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(PLAIN)
    found = read_perf_stat(tmp_path / "a.txt")
    assert found.events == ("cycles", "instructions", "branches", "cache-misses")
    assert found.values[0, :2].tolist() == [1e6, 500]  # perf has scaled it; scaling again would say 1,000.
    assert found.running[0, 1] == 50
    assert np.isnan(found.values[0, 2:]).all()
    assert found.runs().columns == ("cycles", "instructions")
    (tmp_path / "b.txt").write_text("500,,cycles,5000000,50.00\n")
    assert read_perf_stat(tmp_path / "b.txt").values.tolist() == [[500]]


def test_windows_come_by_time_with_any_leading_fields(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(INTERVALS)
    found = read_perf_stat(tmp_path / "a.txt")
    assert found.events == ("task-clock", "page-faults", "cpu/event=0x3c,umask=0x1/")
    assert found.values.tolist() == [[12.5, 7, 1000], [13.25, 9, 2000]]
    assert found.times.tolist() == [0.1001, 0.2002]
    (tmp_path / "cores.txt").write_text(
        "     1.000,S0-D0-C0,2,100,,cycles,5,100.00,,\n     1.000,S0-D0-C1,2,200,,cycles,5,100.00,,\n"
    )
    assert read_perf_stat(tmp_path / "cores.txt").values.ravel().tolist() == [100, 200]
    (tmp_path / "cpu.txt").write_text("CPU0,100,,cycles,5,100.00,,\nCPU1,200,,cycles,5,100.00,,\n")
    assert read_perf_stat(tmp_path / "cpu.txt").values.ravel().tolist() == [100, 200]
    # The name of an event may hold the separator.
    (tmp_path / "commas.txt").write_text("7,,cycles,5,100.00,,\n1000,,cpu/event=0x3c,umask=0x1/,5,100.00,,\n")
    assert read_perf_stat(tmp_path / "commas.txt").events == ("cycles", "cpu/event=0x3c,umask=0x1/")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found no line of counters"),
        ("hello\n", 'a.txt:1: found "hello"; expected value, unit'),
        ("1,,cycles,5,100.00,,\n2,,instructions,5\n", "a.txt:2: found 4 fields"),
        ("1,,cycles,5,100.00,,\n1.0,2,,instructions,5,100.00,,\n", "a.txt:2: found"),
        ("1,,cycles,5,100.00,,\n1,5,,instructions,5,100.00,,\n", "expected a decimal point"),
        ("0.1;1;;cycles;5;100.00\nx;1;;cycles;5;100.00\n", "a.txt:2: found \"x\"; expected a time stamp"),
        ("1,,cycles,5,100.00,,\n1,,cycles,5,100.00,,\n", "again at the same time"),
        ("-5,,cycles,5,100.00,,\n", "expected value, unit"),
        ("1e400,,cycles,5,100.00,,\n", "expected value, unit"),
    ],
)
def test_wrong_logs_are_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(InputError) as caught:
        read_perf_stat(tmp_path / "a.txt")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not here")
def test_what_perf_writes_is_read_with_its_totals(tmp_path: Path) -> None:
    program = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"]
    whole, parts = tmp_path / "whole.txt", tmp_path / "parts.txt"
    events = "task-clock,page-faults,context-switches"
    for out, more in ((whole, []), (parts, ["-I", "100"])):
        done = subprocess.run(["perf", "stat", "-x;", *more, "-e", events, "-o", str(out), "--", *program], capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"perf stat does not work here: {done.stderr.decode()[:100]}")
    one, several = read_perf_stat(whole), read_perf_stat(parts)
    assert one.events == several.events == ("task-clock", "page-faults", "context-switches")
    assert len(several.values) >= 3
    assert 300 < one.values[0, 0] < 2000
    assert np.nansum(several.values[:, 0]) == pytest.approx(one.values[0, 0], rel=0.4)
    assert one.values[0, 1] > 100


def rows(labels: bool = True, runs: int = 6, windows: int = 10) -> str:
    rng = np.random.default_rng(0)
    lines = ["run,window" + (",label" if labels else "") + ",instructions,cycles"]
    for run in range(runs):
        for window in range(windows):
            bad = int(run % 2 and window >= 4)
            lines.append(f"r{run},{window}" + (f",{bad}" if labels else "") + f",{1000 + rng.integers(50)},{2000 + 900 * bad + rng.integers(50)}")
    return "\n".join(lines) + "\n"


def test_tables_of_windows_become_runs(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text(rows())
    found = read_windows(tmp_path / "w.csv")
    assert found.corrupted.tolist() == [False, True] * 3
    assert found.start.tolist() == [4] * 6  # Clean runs are judged from where corrupted ones are.
    assert found.columns == ("instructions", "cycles")
    assert sorted(found.pair.tolist()) == [0, 0, 1, 1, 2, 2]
    import polars as pl

    pl.read_csv(tmp_path / "w.csv").write_parquet(tmp_path / "w.parquet")
    assert np.array_equal(read_windows(tmp_path / "w.parquet").counters, found.counters)
    (tmp_path / "u.csv").write_text(rows(False))
    assert not read_windows(tmp_path / "u.csv").corrupted.any()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (rows().replace(",0,", ",2,"), "label"),
        ("run,window,label,c\na,0,0,1\nb,0,1,1\nc,0,1,1\n", "found 1 clean and 2 corrupted runs; expected at least 2"),
        ("run,window,label\na,0,0\n", "found 0 counters"),
        ("run,window,c\na,0,-1\n", 'column "c"'),
        ("run,window,c\na,0,1\na,0,1\n", "again"),
        ("window,c\n0,1\n", "run"),
    ],
)
def test_wrong_tables_are_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "w.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        read_windows(tmp_path / "w.csv")
    assert said in str(caught.value)
