"""What is known at a submission: by hand, against a slow reference, and nothing of the future."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import waittime_reference as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.scheduling.batch import Conservative, Easy, Fcfs, without_io
from armillary.scheduling.queueing.model import model_jobs
from armillary.scheduling.queueing.play import POLICIES, starts, with_waits
from armillary.scheduling.swf import Jobs
from armillary.scheduling.waittime import Log, Present, QueueState, forward_starts, known_at_submission
from armillary.scheduling.waittime.features.names import COLUMNS, HISTORY, NAMES, PLANNED, chosen
from armillary.scheduling.waittime.features.state import at_submission
from armillary.scheduling.waittime.planning.forecast import CORRECTIONS
from armillary.streams import stream


def column(jobs: Jobs, name: str, **how: float) -> np.ndarray:
    """One feature of all jobs."""
    return known_at_submission(Log.of(jobs), **how).matrix[:, NAMES.index(name)]


# By hand


def test_the_planned_wait_on_four_nodes() -> None:
    """Job 1 holds all nodes until 100; job 2 waits for it; job 3 waits for job 2 too."""
    jobs = Jobs.of([0, 10, 11], [100, 70, 50], [4, 4, 1], requested_s=[100, 70, 50], machine_nodes=4, wait_s=[0, 90, 159])
    assert known_at_submission(Log.of(jobs)).planned_s.tolist() == [0, 90, 89 + 70]


def test_a_narrow_job_is_planned_beside_the_running_one() -> None:
    jobs = Jobs.of([0, 10, 11, 12], [100, 70, 50, 50], [3, 4, 1, 1], requested_s=[100, 70, 89, 90], machine_nodes=4, wait_s=[0, 90, 0, 0])
    # It fits now if it ends by the time at which job 2 is planned; one second more, and it waits until job 2 has ended.
    assert known_at_submission(Log.of(jobs)).planned_s.tolist() == [0, 90, 0, 158]


def test_slurms_coarse_estimate_adds_the_queued_work_over_all_nodes() -> None:
    jobs = Jobs.of([0, 10, 11], [600, 9, 9], [3, 4, 1], requested_s=[600, 1200, 300], machine_nodes=4, wait_s=[0, 590, 0])
    known = known_at_submission(Log.of(jobs))
    assert (known.unqueued_s + known.backlog_s).tolist() == [0, 590, 0 + 1200]


def test_a_forward_simulation_believes_the_last_two_runs() -> None:
    """User 1 ran 10 and 20 s under requests of 100; the third job is expected to end after 15 s."""
    jobs = Jobs.of(
        [0, 20, 50, 55], [10, 20, 40, 5], [4, 4, 4, 4], requested_s=[100, 100, 100, 5], machine_nodes=4, wait_s=[0, 0, 0, 35], user=[1, 1, 1, 2]
    )  # fmt: skip
    assert forward_starts(Log.of(jobs)).tolist() == [0, 0, 0, 10]


def test_a_job_that_outlives_its_prediction_gets_a_minute_more() -> None:
    jobs = Jobs.of(
        [0, 20, 50, 70], [10, 20, 40, 5], [4, 4, 4, 4], requested_s=[100, 100, 100, 5], machine_nodes=4, wait_s=[0, 0, 0, 20], user=[1, 1, 1, 2]
    )  # fmt: skip
    # It was to end at 65 and runs at 70: the first correction ends at 125. With a request of 60 it ends at 110 at the latest.
    assert forward_starts(Log.of(jobs)).tolist()[-1] == 55
    shorter = replace(jobs, requested_s=np.array([100.0, 100, 60, 5]))
    assert forward_starts(Log.of(shorter)).tolist()[-1] == 40


def test_history_decays_by_own_jobs() -> None:
    jobs = Jobs.of([0, 10, 20, 30], [1, 1, 1, 1], [1] * 4, machine_nodes=4, wait_s=[8, 4, 0, 0], user=[1, 1, 2, 1])
    assert np.expm1(column(jobs, "user_wait", half_life=1.0)[3]) == pytest.approx((0.5 * 8 + 4) / 1.5)
    assert column(jobs, "user_unknown").tolist() == [1, 0, 1, 0]
    # User 2 is unknown at 20, so the mean over all stands in.
    assert np.expm1(column(jobs, "user_wait")[2]) == pytest.approx(6)


def test_the_clock_is_that_of_the_log() -> None:
    """1 January 1970 was a Thursday, the fourth day of the week."""
    noon = Jobs.of([43_200], [1], [1], machine_nodes=1, wait_s=[0], epoch_s=0.0)
    row = known_at_submission(Log.of(noon)).matrix[0]
    named = dict(zip(NAMES, row, strict=True))
    assert named["hour_cos"] == pytest.approx(-1)
    assert (named["day_sin"], named["day_cos"]) == pytest.approx((np.sin(6 * np.pi / 7), np.cos(6 * np.pi / 7)))


# Against the reference


@given(reference.logs())
@settings(max_examples=30, deadline=None)
def test_features_equal_those_of_a_slow_reference(jobs: Jobs) -> None:
    known = known_at_submission(Log.of(jobs), half_life=3.0)
    for j in range(len(jobs)):
        found = dict(zip(NAMES, known.matrix[j], strict=True))
        for name, wanted in reference.features(jobs, j, 3.0).items():
            unit = dict(COLUMNS)[name]
            got = np.expm1(found[name]) if unit.startswith("ln") else found[name]
            assert got == pytest.approx(wanted, rel=1e-9, abs=1e-9), (name, j)


@given(reference.logs(most=14))
@settings(max_examples=30, deadline=None)
def test_forward_simulations_equal_those_of_a_slow_reference(jobs: Jobs) -> None:
    # Distinct ends, so that "the last two" is no matter of taste.
    jobs = replace(jobs, run_s=jobs.run_s + np.arange(1, len(jobs) + 1) / 64, requested_s=jobs.requested_s + 1.0)
    found = forward_starts(Log.of(jobs))
    played = forward_starts(Log.of(jobs), policy="easy")
    for j in range(len(jobs)):
        assert found[j] == pytest.approx(reference.forward(jobs, j, CORRECTIONS.tolist()), abs=1e-9)
        _, running, _ = reference.state(jobs, j)
        if sum(jobs.nodes[k] for k in running) <= jobs.machine_nodes:
            wanted = reference.forward_easy(jobs, j, *reference.predictions(jobs, j, CORRECTIONS.tolist()))
            assert played[j] == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("policy", POLICIES)
def test_simulated_logs_are_those_of_the_batch_arena(policy: str) -> None:
    """The loop without a file system starts every job when the whole simulator does."""
    jobs = model_jobs(stream(3, "waittime"), 400, 64, 0.9)
    whole = {"fcfs": Fcfs(), "easy": Easy(window=20), "conservative": Conservative(window=20)}[policy]
    assert np.array_equal(starts(jobs, policy, window=20), whole.play(without_io(jobs)).start_s)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(InputError, match="expected one of fcfs, easy, conservative"):
        starts(model_jobs(stream(3, "waittime"), 10, 64), "lottery")
    assert len(starts(Jobs.of([], [], []))) == 0


# No future


def differs(left: Jobs, right: Jobs, upto: int) -> bool:
    a, b = (known_at_submission(Log.of(jobs)) for jobs in (left, right))
    same = np.array_equal(a.matrix[:upto], b.matrix[:upto]) and np.array_equal(a.unqueued_s[:upto], b.unqueued_s[:upto])
    played = (np.array_equal(*(forward_starts(Log.of(one), policy=policy)[:upto] for one in (left, right))) for policy in ("plan", "easy"))
    return not (same and all(played))


@given(reference.logs(), st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_later_jobs_change_nothing(jobs: Jobs, seed: int) -> None:
    """Jobs behind the cut are deleted, and what they ask for and suffer is permuted: features before the cut stay as they are."""
    cut = len(jobs) // 2
    assert not differs(jobs, jobs.take(slice(0, cut)), cut)
    order = np.concatenate([np.arange(cut), cut + np.random.default_rng(seed).permutation(len(jobs) - cut)])
    names = ("run_s", "wait_s", "nodes", "requested_s", "user", "executable")
    assert not differs(jobs, replace(jobs, **{name: getattr(jobs, name)[order] for name in names}), cut)


@given(reference.logs(), st.integers(0, 24), st.integers(0, 500), st.integers(0, 500))
@settings(max_examples=30, deadline=None)
def test_a_jobs_own_run_and_wait_do_not_change_its_features(jobs: Jobs, j: int, run: int, wait: int) -> None:
    j %= len(jobs)
    other = replace(jobs, run_s=jobs.run_s.copy(), wait_s=jobs.wait_s.copy())
    other.run_s[j], other.wait_s[j] = run, wait
    assert not differs(jobs, other, j + 1)


@given(reference.logs(), st.integers(0, 24))
@settings(max_examples=30, deadline=None)
def test_events_after_a_submission_change_nothing(jobs: Jobs, j: int) -> None:
    """Whatever happens after a submission, the features of that job stay: jobs that wait then may wait on, and running ones may run on."""
    j %= len(jobs)
    now = jobs.submit_s[j]
    wait, run = jobs.wait_s.copy(), jobs.run_s.copy()
    waiting, running = jobs.start_s >= now, (jobs.start_s < now) & (jobs.end_s > now)
    wait[waiting] += 7
    run[running] += 3
    assert not differs(jobs.take(slice(0, j + 1)), replace(jobs, wait_s=wait, run_s=run).take(slice(0, j + 1)), j + 1)


# Promises


@pytest.mark.parametrize("seed", range(3))
def test_a_plan_is_a_promise_where_requests_are_exact_and_reservations_hold(seed: int) -> None:
    """Under conservative backfilling with exact requests the planned wait is the wait, to the second."""
    jobs = model_jobs(stream(seed, "exact"), 600, 64, 0.9)
    jobs = with_waits(replace(jobs, requested_s=jobs.run_s.copy()), "conservative")
    assert np.array_equal(known_at_submission(Log.of(jobs)).planned_s, jobs.wait_s)


def test_where_users_ask_for_too_much_the_plan_comes_too_late() -> None:
    """It is no bound, because the policy keeps reservations that a new plan would not make."""
    jobs = with_waits(model_jobs(stream(5, "bound"), 600, 64, 0.9), "conservative")
    planned = known_at_submission(Log.of(jobs)).planned_s
    assert (planned >= jobs.wait_s).mean() > 0.95
    assert planned.mean() > 2 * jobs.wait_s.mean()


def test_under_easy_a_plan_may_break() -> None:
    jobs = model_jobs(stream(5, "bound"), 600, 64, 0.9)
    jobs = with_waits(replace(jobs, requested_s=jobs.run_s.copy()), "easy")
    assert (known_at_submission(Log.of(jobs)).planned_s < jobs.wait_s).any()


def test_where_nothing_arrives_any_more_a_forward_simulation_is_exact() -> None:
    """All jobs are there from the beginning, of users nobody knows, with exact requests: the last one starts when EASY says."""
    jobs = model_jobs(stream(9, "forward"), 60, 64, 0.9)
    jobs = with_waits(replace(jobs, submit_s=np.zeros(60), requested_s=jobs.run_s.copy(), user=np.full(60, -1)), "easy")
    assert forward_starts(Log.of(jobs), policy="easy")[-1] == jobs.wait_s[-1]
    with pytest.raises(InputError, match="expected plan or easy"):
        forward_starts(Log.of(jobs), policy="fair")


def test_a_shallow_plan_looks_at_fewer_jobs() -> None:
    jobs = Jobs.of([0, 1, 2, 3], [100, 100, 100, 9], [4] * 4, machine_nodes=4, wait_s=[0, 99, 198, 297])
    deep, shallow = (known_at_submission(Log.of(jobs), depth=depth) for depth in (500, 1))
    assert (deep.planned_s[3], shallow.planned_s[3]) == (297, 197)
    # The jobs that were not planned count as served before.
    assert shallow.matrix[3, NAMES.index("ahead_jobs")] == 2


# A queue as it stands


@given(reference.logs(), st.integers(1, 24))
@settings(max_examples=30, deadline=None)
def test_a_state_gives_the_features_of_the_log_that_it_was_cut_from(jobs: Jobs, j: int) -> None:
    j %= len(jobs)
    now, running, queued = reference.state(jobs, j)
    if sum(jobs.nodes[k] for k in running) > jobs.machine_nodes or (jobs.end_s == now).any() or (jobs.submit_s[j + 1 :] == now).any():
        return
    seen = lambda k, runs: Present(  # noqa: E731
        int(jobs.nodes[k]), float(jobs.requested_s[k]), float(jobs.submit_s[k]), float(jobs.start_s[k]) if runs else None, int(jobs.user[k]),
        int(jobs.executable[k]), int(jobs.queue[k]), int(jobs.partition[k]),
    )  # fmt: skip
    state = QueueState(now, jobs.machine_nodes, [seen(k, True) for k in running], [seen(k, False) for k in queued])
    asked = known_at_submission(at_submission(jobs, state, jobs.take(slice(j, j + 1))), first=-1)
    wanted = known_at_submission(Log.of(jobs.take(slice(0, j + 1))), first=j)
    assert asked.matrix[0] == pytest.approx(wanted.matrix[0], rel=1e-12)
    assert asked.planned_s[0] == wanted.planned_s[0]


def test_a_queue_is_planned_in_the_schedulers_order() -> None:
    history = Jobs.of([0], [1], [1], machine_nodes=4, wait_s=[0])
    wide, narrow = Present(4, 1000, 20), Present(1, 10, 30)
    running = [Present(4, 100, 10, 10)]
    asked = Jobs.of([50], [1], [4], requested_s=[1], machine_nodes=4)
    for order, wait in (([wide, narrow], 60 + 1000 + 10), ([narrow, wide], 60 + 10 + 1000)):
        log = at_submission(history, QueueState(50, 4, running, order), asked)
        assert known_at_submission(log, first=-1).planned_s[0] == wait
    first = at_submission(history, QueueState(50, 4, running, [narrow, wide]), Jobs.of([50], [1], [3], requested_s=[10], machine_nodes=4))
    assert known_at_submission(first, first=-1).planned_s[0] == 60


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: QueueState(100, 4, [Present(3, 10, 0, 5), Present(2, 10, 0, 5)]),
            "running jobs on 5 nodes; expected at most the machine's 4",
        ),
        (lambda: QueueState(100, 4, [Present(3, 10, 0)]), "expected one by now"),
        (lambda: QueueState(100, 4, [], [Present(3, 10, 0, 5)]), "expected none for a queued job"),
        (lambda: QueueState(100, 4, [], [Present(5, 10, 0)]), "found 5 nodes"),
        (lambda: QueueState(100, 4, [], [Present(1, 10, 200)]), "by now"),
        (lambda: QueueState(100, 4, [], [Present(1, -10, 0)]), "0 s or more"),
        (lambda: QueueState(float("nan"), 4), "and a time"),
        (lambda: QueueState(0, 0), "1 to 16,777,216 nodes"),
    ],
)
def test_an_impossible_state_is_refused(make: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        make()  # type: ignore[operator]


def test_a_log_wider_than_its_machine_is_refused() -> None:
    with pytest.raises(InputError, match="at most the machine's 2"):
        known_at_submission(replace(Log.of(Jobs.of([0], [1], [4], wait_s=[0])), machine_nodes=2))


def test_parts_of_the_features_can_be_left_out() -> None:
    names = {feature.name for feature in chosen()}
    assert names == set(NAMES)
    assert {f.name for f in chosen(forecast=False)} == names - PLANNED
    assert {f.name for f in chosen(history=False)} == names - HISTORY
