"""Fault traces are read and written, logs become events, drawn faults have their rates, and wrong files are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.serving.resilience import Fault, FaultTrace, random_faults, read_faults, scripted, stay_or_wait


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_events_from_a_file(tmp_path: Path) -> None:
    found = read_faults(write(tmp_path / "f.csv", "time_s,device,event\n30,5,down\n10.5,2,slow:1.5\n\n90,5,up\n"))
    assert found.faults == (Fault(10.5, 2, "slow", 1.5), Fault(30.0, 5, "down"), Fault(90.0, 5, "up"))
    assert found.down_spans(200.0) == [(30.0, 90.0)]
    assert found.down_spans(60.0) == [(30.0, 60.0)]
    found.write(tmp_path / "g.csv")
    assert read_faults(tmp_path / "g.csv") == found


def test_spans_of_several_devices_join() -> None:
    found = FaultTrace.of([Fault(1, 0, "down"), Fault(2, 1, "down"), Fault(3, 0, "up"), Fault(4, 1, "up"), Fault(9, 0, "down")], 8)
    assert found.down_spans(10.0) == [(1, 4), (9, 10)]


def test_availability_and_its_reverse(tmp_path: Path) -> None:
    log = "start,end,gpu\n0,100,0\n0,40,1\n60,100,1\n30,100,2\n"
    found = read_faults(write(tmp_path / "a.csv", log), 3)
    assert found.faults == (Fault(0.0, 2, "down"), Fault(30.0, 2, "up"), Fault(40.0, 1, "down"), Fault(60.0, 1, "up"))
    assert read_faults(write(tmp_path / "d.csv", "gpu,start,end\n1,40,60\n2,0,30\n"), 3, log="down") == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("time_s,device,event\n1,8,down\n", "unknown device 8; expected 0 to 7"),
        ("time_s,device,event\n1,0,up\n", "device 0 is up at 1 s before it was down"),
        ("time_s,device,event\n1,0,down\n2,0,down\n", "while it is down already"),
        ("time_s,device,event\n1,0,down\n2,0,slow:2\n", "while it is down already"),
        ("time_s,device,event\n-1,0,down\n", 'found "-1"; expected seconds of at least 0'),
        ("time_s,device,event\n1,0,broken\n", '"event": found "broken"; expected down, up or slow'),
        ("time_s,device,event\n1,0,slow\n", '"event": found "slow"; expected down, up or slow'),
        ("time_s,device,event\n1,0,slow:0.5\n", "a factor from 1 to 1000"),
        ("start,end,gpu\n5,1,0\n", "a span from 5 to 1"),
        ("start,end,gpu\n0,5,9\n", 'found "9"; expected a whole number from 0 to 7'),
        ("start,end,gpu\n0,5,0\n4,8,0\n", "spans overlap"),
        ("a,b,c\n1,2,3\n", "expected time_s,device,event or start,end,gpu"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        read_faults(write(tmp_path / "f.csv", text))
    assert "\n" not in str(caught.value)
    assert "f.csv" in str(caught.value)



def test_losses_at_quarters() -> None:
    found = scripted(3, 400.0)
    assert [f.time_s for f in found.faults] == [100.0, 200.0, 300.0]
    assert len({f.device for f in found.faults}) == 3
    back = scripted(1, 400.0, repair_s=50.0)
    assert [(f.time_s, f.event) for f in back.faults] == [(100.0, "down"), (150.0, "up")]
    with pytest.raises(InputError, match="losses"):
        scripted(4, 100.0)


def test_drawn_failures_come_at_their_rate() -> None:
    # Eight GPUs with a mean of 50,000 GPU hours / 10^4 have 1.6 failures per hour while all are up.
    rng = np.random.default_rng(np.random.SeedSequence(5))
    counts = [sum(f.event == "down" for f in random_faults(3600.0, rng).faults) for _ in range(400)]
    assert np.mean(counts) == pytest.approx(1.55, abs=0.2)
    repairs = []
    for _ in range(300):
        trace = random_faults(36_000.0, rng, acceleration=1e4).faults
        for i, f in enumerate(trace):
            if f.event == "down" and f.time_s < 18_000:
                repairs += [g.time_s - f.time_s for g in trace[i:] if g.event == "up" and g.device == f.device][:1]
    assert np.median(repairs) == pytest.approx(1800.0, rel=0.1)


@pytest.mark.parametrize(
    "wrong", [{"mtbf_gpu_h": 0.0}, {"mtbf_gpu_h": -5.0}, {"acceleration": 0.0}, {"repair_median_s": 0.0}, {"acceleration": 1e12}]
)
def test_rates_that_are_none(wrong: dict[str, float]) -> None:
    rng = np.random.default_rng(np.random.SeedSequence(5))
    with pytest.raises(InputError):
        random_faults(3600.0, rng, **wrong)


def test_stay_or_wait_by_hand() -> None:
    # Without spread, a repair in 1000 s at 7/8 of the service loses 125 full seconds, and a spare in 100 s loses 100.5.
    found = stay_or_wait(800.0, 700.0, 100.0, repair_median_s=1000.0, repair_sigma=0.0, down_hole_s=0.0)
    assert (found.action, found.stay_tokens, found.wait_tokens, found.break_even_s) == ("wait", 100_000.0, 80_400.0, 124.5)
    assert stay_or_wait(800.0, 700.0, 125.0, repair_median_s=1000.0, repair_sigma=0.0, down_hole_s=0.0).action == "stay"
    # A long tail of repairs favours the spare, because the mean is exp(σ²/2) medians.
    wide = stay_or_wait(800.0, 700.0, 125.0, repair_median_s=1000.0, repair_sigma=1.0, down_hole_s=0.0)
    assert wide.action == "wait"
    assert wide.stay_tokens == pytest.approx(100_000.0 * np.exp(0.5))
    for wrong in ({"full": 0.0}, {"degraded": 900.0}, {"spare_s": -1.0}, {"repair_sigma": float("nan")}):
        with pytest.raises(InputError):
            stay_or_wait(**{"full": 800.0, "degraded": 700.0, "spare_s": 1.0, **wrong})
