"""What a fix is expected to save, beside what the planted fault costs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from darshan_logs import MACSIO, alone, rng, shipped_log, synthetic

from armillary.errors import InputError
from armillary.observability.io import Log, diagnose, predict
from armillary.observability.io.synthesis.faults import FAULTS
from armillary.observability.io.synthesis.logs import log_of
from armillary.observability.io.synthesis.program import MIB, Program, requests
from armillary.observability.io.synthesis.timing import REQUEST_S

#: Faults whose cost the counters of a log tell.
CLEAR = (
    "small-read",
    "small-write",
    "misaligned-write",
    "random-read",
    "random-write",
    "repeated-read",
    "rank-imbalance",
    "low-level-read",
)


def test_the_seconds_of_small_requests_by_hand():
    program = Program(1, 1)
    file = program.add("/home/a", (0,), MIB)
    program.phases = [requests([0], [file], True, [0], 1024, 64 << 10)]
    found = diagnose(log_of(program, "x", rng()))
    one = predict(found, ("small-write",))[0]
    moved = (64 << 20) / 1.2e9
    assert one.now_s == pytest.approx(1024 * REQUEST_S + moved + 3e-4)
    assert one.then_s == pytest.approx(16 * REQUEST_S + moved + 3e-4), "sixteen requests of 4 MiB"
    assert one.gain == pytest.approx(1 - one.then_s / one.now_s)
    assert "modelled" in str(one)


@pytest.mark.parametrize("name", CLEAR)
def test_what_a_fix_saves_is_what_the_fault_costs(name):
    """The cost was simulated operation by operation; the forecast knows the counters only."""
    for severity, seed in ((0.3, 3), (0.6, 300)):
        log, truth = synthetic(name, severity, 64, seed)
        assert predict(diagnose(log), (name,))[0].gain == pytest.approx(truth.severity[name], abs=0.05)


@pytest.mark.parametrize("name", sorted(set(FAULTS) - {"no-chunking"}))
def test_a_fix_of_something_else_saves_little(name):
    """The fix of the planted fault saves more than that of one that is not there."""
    log, truth = synthetic(name, 0.6, 64, 5)
    found = diagnose(log)
    label = min(truth.labels)
    stranger = "low-level-read" if label != "low-level-read" else "random-write"
    assert predict(found, (label,))[0].gain > predict(found, (stranger,))[0].gain + 0.1


def test_forecasts_come_with_the_largest_gain_first_and_none_is_a_loss():
    found = diagnose(shipped_log(MACSIO))
    made = predict(found)
    assert {one.label for one in made} == set(found.labels)
    assert [one.gain for one in made] == sorted((one.gain for one in made), reverse=True)
    assert all(0 <= one.gain <= 1 and one.then_s <= one.now_s for one in made)


def test_a_single_target_can_be_helped_by_others_that_the_log_does_not_name():
    log = alone("one-stripe", 64)
    assert predict(diagnose(log), ("server-imbalance",))[0].gain > 0.5


def test_a_log_without_requests_has_nothing_to_save():
    assert predict(diagnose(Log("empty", processes=4, run_time_s=1.0))) == ()
    assert predict(diagnose(Log("empty", processes=4, run_time_s=1.0)), ("small-read",))[0].gain == 0.0
    with pytest.raises(InputError, match="small-red"):
        predict(diagnose(Log("empty")), ("small-red",))


def test_the_order_of_records_changes_no_forecast():
    log, _ = synthetic("small-write", 0.3, 64, 3)
    posix = log.modules["POSIX"]
    mixed = posix.taken(np.random.default_rng(1).permutation(len(posix)))
    other = dataclasses.replace(log, modules={**log.modules, "POSIX": mixed})
    first, second = (predict(diagnose(one), ("small-write",))[0] for one in (log, other))
    assert second.then_s == pytest.approx(first.then_s, rel=1e-12)
