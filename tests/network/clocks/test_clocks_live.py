"""Clocks of live ranks, whose true offsets are known because they share one clock or because the test shifts it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from armillary import comm
from armillary.errors import InputError
from armillary.network.clocks import AlignedClock, align, correct_chrome, order

SHIFTS = (0.0, 3.5, -2.25, 0.125)


def _shifted(ranks: Any) -> tuple[float, float, float]:
    found = align(ranks, 0.1, bursts=4, exchanges=40, clock=lambda: time.perf_counter() + SHIFTS[ranks.rank])
    return found.offset, found.error, found.delay


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_offsets_of_shifted_clocks_are_found_within_their_bounds(ranks: int) -> None:
    for rank, (offset, error, delay) in enumerate(comm.run(_shifted, ranks=ranks, backend="threads").values):
        assert abs(offset + SHIFTS[rank] - SHIFTS[0]) <= error + 1e-9
        assert error >= delay or rank == 0


@pytest.mark.slow
def test_ranks_of_mpi_share_a_clock() -> None:
    if comm.backends()["mpi"]:
        pytest.skip(comm.backends()["mpi"])
    found = comm.run("armillary.network.clocks.alignment.live:measured", 4, 50, 0.2, ranks=2, backend="mpi", library="mpich").values[0]
    assert abs(found["offset"][1]) <= found["error"][1]


def _clock(offset: float, error: float, drift: float = 0.0) -> AlignedClock:
    return AlignedClock(1, offset, drift, error, 1e-9, at=10.0, delay=error)


def test_a_clock_follows_offset_and_drift() -> None:
    clock = _clock(0.5, 1e-6, drift=1e-3)
    assert clock(10.0) == 10.5
    assert clock(11.0) == pytest.approx(11.501)
    assert clock.error_at(110.0) == pytest.approx(1e-6 + 1e-7)


def test_the_order_of_events_is_certain_only_beyond_the_errors() -> None:
    clocks = {0: AlignedClock(0, 0, 0, 0, 0, 0, 0), 1: _clock(0.5, 1e-6)}
    assert order(clocks, (0, 10.5), (1, 10.000002)) == "before"
    assert order(clocks, (1, 10.000002), (0, 10.5)) == "after"
    assert order(clocks, (0, 10.5), (1, 10.0000005)) == "uncertain"
    assert order(clocks, (1, 10.0), (1, 10.0000001)) == "before", "one clock is certain of its own order"
    with pytest.raises(InputError, match="rank 7"):
        order(clocks, (7, 0.0), (1, 0.0))


def test_a_chrome_trace_gets_common_times(tmp_path: Path) -> None:
    events = [{"name": "send", "ph": "X", "pid": 0, "tid": 0, "ts": 1e7, "dur": 5.0}, {"name": "recv", "ph": "i", "pid": 1, "tid": 0, "ts": 1e7},
              {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "one"}}]  # fmt: skip
    (tmp_path / "in.json").write_text(json.dumps({"traceEvents": events}))
    clocks = {0: AlignedClock(0, 0, 0, 0, 0, 0, 0), 1: _clock(0.5, 1e-6)}
    assert correct_chrome(tmp_path / "in.json", tmp_path / "out.json", clocks) == 2
    found = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    assert (found[0]["ts"], found[1]["ts"]) == (1e7, 1.05e7)
    assert found[1]["args"]["clock_error_us"] == pytest.approx(1.0)
    assert found[2] == events[2]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[3]", "event 0: found int"), ('{"a": 1}', "found no list of events"), ('[{"ts": "x", "pid": 0}]', 'found the time "x"'),
        ('[{"ts": 1e30, "pid": 0}]', "found the time"), ('[{"ts": 1, "pid": 9}]', "found an event of process 9"), ('[{"ts": 1, "pid": [1]}]', "process [1]"),
    ],
)  # fmt: skip
def test_a_wrong_trace_is_one_line(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "in.json").write_text(content)
    with pytest.raises(InputError) as found:
        correct_chrome(tmp_path / "in.json", tmp_path / "out.json", {0: _clock(0, 0)})
    assert said in str(found.value)
    assert not (tmp_path / "out.json").exists()


def test_measuring_needs_bursts_and_exchanges() -> None:
    with pytest.raises(comm.RankFailed, match="expected 0 to 3600"):
        comm.run(lambda ranks: align(ranks, -1.0), ranks=1, backend="one")
