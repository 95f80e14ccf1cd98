"""The policies: small schedules by hand, slow references written from the definitions, and what each policy promises."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import batch_reference as reference
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.parameters import with_parameters
from armillary.scheduling.batch import (
    BandwidthLicense,
    BatchWork,
    Conservative,
    Easy,
    EquilibrIO,
    EquilibrIOEager,
    Fcfs,
    PeakLicense,
    Policy,
    Running,
    SjfEasy,
    Waiting,
    simulate,
    without_io,
)
from armillary.scheduling.batch.simulation.replay import metrics
from armillary.scheduling.swf import Jobs

POLICIES: tuple[Policy, ...] = (
    Fcfs(), Easy(), SjfEasy(), Conservative(), BandwidthLicense(), PeakLicense(), EquilibrIO(), EquilibrIOEager()
)  # fmt: skip
REFERENCES: dict[Any, Any] = {
    Fcfs(): reference.fcfs,
    Easy(): reference.easy,
    Easy(window=3): partial(reference.easy, window=3),
    SjfEasy(): partial(reference.easy, shortest=True),
    Conservative(): reference.conservative,
    BandwidthLicense(): reference.bandwidth_license,
    PeakLicense(): reference.peak_license,
    EquilibrIO(): reference.equilibrio,
    EquilibrIO(window=4): partial(reference.equilibrio, window=4),
    EquilibrIO(fairness=0.6): partial(reference.equilibrio, phi=0.6),
    EquilibrIOEager(): partial(reference.equilibrio, phi=0.0),
}


def io_jobs(run: Any, duty: Any, c: Any, capacity: float, nodes: Any = 1, machine: int = 2, **columns: Any) -> BatchWork:
    """Jobs that arrive together, with one I/O phase each; policies are told the truth."""
    n = len(run)
    jobs = Jobs.of(np.zeros(n), run, np.broadcast_to(nodes, n), machine_nodes=machine, **columns)
    duty, c = np.broadcast_to(np.asarray(duty, float), n), np.broadcast_to(np.asarray(c, float), n)
    return BatchWork(jobs, duty, np.where(duty > 0, c, 0.0), np.where(duty > 0, 1, 0), duty, c, capacity)


@st.composite
def works(draw: st.DrawFn, most: int = 25) -> BatchWork:
    """Few jobs on a small machine, with ties everywhere, overruns, and I/O that is told and does not happen."""
    n, machine = draw(st.integers(1, most)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    submit = np.sort(rng.integers(0, 1 + 4 * n, n)) * draw(st.sampled_from([1.0, 20.0, 7200.0]))
    run = rng.integers(0, 12, n) * draw(st.sampled_from([1.0, 1800.0]))
    requested = np.where(rng.random(n) < 0.2, 0.5, rng.integers(1, 4, n)) * run
    jobs = Jobs.of(submit, run, rng.integers(1, machine + 1, n), requested_s=requested, machine_nodes=machine)
    duty = np.where(rng.random(n) < 0.5, 0.0, rng.integers(0, 9, n) / 8)
    return reference.told(jobs, duty, rng.integers(0, 9, n) / 4, float(rng.integers(1, 9)) / 4)


@pytest.mark.parametrize("policy", REFERENCES, ids=str)
@given(work=works())
@settings(max_examples=40, deadline=None)
def test_every_start_is_that_of_the_slow_reference(policy: Policy, work: BatchWork) -> None:
    assert policy.play(work).start_s.tolist() == reference.starts(work, REFERENCES[policy])


@given(work=works(60))
@settings(max_examples=50, deadline=None)
def test_fairness_1_is_easy_also_beyond_the_window(work: BatchWork) -> None:
    for window in (2, 7, 500):
        ours = EquilibrIO(fairness=1.0, window=window).play(work)
        assert ours.start_s.tolist() == Easy(window=window).play(work).start_s.tolist()


def test_easy_lets_small_jobs_pass_only_if_the_head_is_not_delayed() -> None:
    # Four nodes. Job 1 holds three until 100; job 2 needs all four; 3 ends by 100, 4 does not, and no node is left beside job 2.
    jobs = Jobs.of([0, 1, 2, 3], [100, 50, 90, 98], [3, 4, 1, 1], machine_nodes=4)
    start = {name: policy.play(without_io(jobs)).start_s.tolist() for name, policy in (("fcfs", Fcfs()), ("easy", Easy()))}
    assert start == {"fcfs": [0, 100, 150, 150], "easy": [0, 100, 2, 150]}


def test_conservative_keeps_every_promise_where_easy_keeps_the_first() -> None:
    # The head gets node-free time at 10 under both. Job 4 may pass job 3 under EASY, because only job 2 holds a reservation.
    jobs = Jobs.of([0, 1, 2, 3], [10, 10, 10, 30], [2, 3, 4, 1], machine_nodes=4)
    assert Easy().play(without_io(jobs)).start_s.tolist() == [0, 10, 33, 3]
    assert Conservative().play(without_io(jobs)).start_s.tolist() == [0, 10, 20, 30]


def test_an_early_end_moves_conservative_reservations_forward() -> None:
    jobs = Jobs.of([0, 1, 2], [10, 10, 10], [4, 4, 4], requested_s=[100, 100, 100], machine_nodes=4)
    assert Conservative().play(without_io(jobs)).start_s.tolist() == [0, 10, 20]


def test_pure_io_jobs_take_turns_and_computing_jobs_fill_the_nodes() -> None:
    work = io_jobs([100, 100, 100, 100], [1, 1, 0, 0], 8.0, 8.0)
    plain, balanced = Fcfs().play(work), EquilibrIO(fairness=0.0).play(work)
    assert plain.io_slowdown == pytest.approx(1.0)
    assert plain.end_s.max() == 300
    assert balanced.io_slowdown == pytest.approx(0.0, abs=1e-12)
    assert balanced.start_s.tolist() == [0, 100, 0, 100]
    assert balanced.end_s.max() == pytest.approx(200)


def test_a_crowd_of_narrow_jobs_is_seen_although_no_pair_exceeds_the_file_system() -> None:
    work = io_jobs([1000] * 10, 0.8, 0.4, 1.0, machine=10)
    together = [_most_together(policy.play(work)) for policy in (EquilibrIO(fairness=0.0), EquilibrIO(fairness=0.0, crowd=False), Easy())]
    assert together[0] <= 2
    assert together[1:] == [10, 10]


def _most_together(played: Any) -> int:
    return max(int(np.count_nonzero((played.start_s <= t) & (t < played.end_s))) for t in played.start_s)


def test_one_heavy_pair_is_seen_although_the_crowds_mean_fits() -> None:
    # Mean demands 0.1 · 1 and 0.1 · 1 fit together, but while both do I/O they exceed the file system twofold.
    queue, running = [Waiting(2, 1, 100, duty=0.1, bandwidth=0.9)], [Running(1, 1, 100, duty=0.6, bandwidth=0.9)]
    assert EquilibrIO(fairness=0.0).choose(queue, running, 4, 1.0) == []
    assert EquilibrIO(fairness=0.0, pairs=False, crowd=True).choose(queue, [replace(running[0], duty=0.1)], 4, 1.0) == [2]
    # Pairs: 0.1 · 0.6 · 0.8 = 0.048 exceeds the threshold of 0.005; it is tolerated after some hours at a fairness of one half.
    later = [replace(queue[0], waited_s=0.44 * 3600)]
    assert EquilibrIO(fairness=0.5).choose(later, running, 4, 1.0) == [2]
    assert EquilibrIO(fairness=0.5).choose([replace(queue[0], waited_s=0.42 * 3600)], running, 4, 1.0) == []


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_without_contention_nobody_is_slowed_down(policy: Policy) -> None:
    rng = np.random.default_rng(1)
    n = 60
    jobs = Jobs.of(np.sort(rng.integers(0, 4000, n)), rng.integers(1, 4000, n), rng.integers(1, 9, n), machine_nodes=16)
    duty, c = rng.random(n), rng.random(n) + 0.1
    work = BatchWork(jobs, duty, c, rng.integers(1, 5, n), duty, c, np.inf)
    played = policy.play(work)
    assert played.io_slowdown == pytest.approx(0.0, abs=1e-12)
    assert played.end_s - played.start_s == pytest.approx(jobs.run_s)
    assert metrics(played)["overruns"] == 0
    for capacity in (0.8 * c.max(), c.max()):
        contended = policy.play(replace(work, capacity=float(c.max()), bandwidth=np.minimum(c, capacity)))
        assert contended.moved.sum() == pytest.approx(contended.work.volume.sum(), rel=1e-9)
        assert contended.io_slowdown >= -1e-12


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_doubling_all_rates_changes_nothing(policy: Policy) -> None:
    rng = np.random.default_rng(2)
    n = 80
    jobs = Jobs.of(np.sort(rng.integers(0, 4000, n)), rng.integers(1, 4000, n), rng.integers(1, 9, n), machine_nodes=16)
    duty, c = rng.random(n), rng.random(n) + 0.1
    work = BatchWork(jobs, duty, c, rng.integers(1, 5, n), duty, c, 2.0)
    twice = replace(work, bandwidth=2 * c, told_bandwidth=2 * c, capacity=4.0)
    once, again = policy.play(work), policy.play(twice)
    assert once.start_s.tolist() == again.start_s.tolist()
    assert once.end_s.tolist() == again.end_s.tolist()


def latest_start(jobs: Jobs, played: Any, i: int, since: float) -> float:
    """When job `i` would start if nothing else started after `since`: the earliest expected end that frees enough nodes."""
    rows = zip(played.start_s, played.end_s, jobs.requested_s, jobs.nodes, strict=True)
    held = [(float(s + r), int(n)) for s, e, r, n in rows if s <= since < e]
    free = jobs.machine_nodes - sum(n for _, n in held)
    return min(end for end, _ in held if free + sum(n for e, n in held if e <= end) >= jobs.nodes[i])


def keeping_requests(work: BatchWork) -> BatchWork:
    """The same work, in which no job runs longer than it asked for."""
    return replace(work, jobs=replace(work.jobs, requested_s=np.maximum(work.jobs.requested_s, work.jobs.run_s)))


@given(work=works(40).map(keeping_requests))
@settings(max_examples=60, deadline=None)
def test_easy_never_delays_the_first_blocked_job(work: BatchWork) -> None:
    played = Easy().play(work)
    for i in range(len(work)):
        # The job is the head from the last start of an older one on.
        since = max([float(work.jobs.submit_s[i]), *map(float, played.start_s[:i])])
        if since < played.start_s[i]:
            assert played.start_s[i] <= latest_start(work.jobs, played, i, since)


@given(work=works(40).map(keeping_requests), patience=st.sampled_from([0.0, 5.0, 40.0, 3600.0]))
@settings(max_examples=60, deadline=None)
def test_no_job_is_passed_over_once_its_patience_is_over(work: BatchWork, patience: float) -> None:
    played = EquilibrIO(fairness=0.5, patience_s=patience, relax_per_h=0.0).play(work)
    instants = np.unique(np.concatenate([work.jobs.submit_s, played.end_s]))
    for i in range(len(work)):
        # Decisions are made at instants; from the first at which it is the oldest and has waited long enough, it cannot be delayed.
        ready = max([float(work.jobs.submit_s[i]) + patience, *map(float, played.start_s[:i])])
        since = float(instants[min(np.searchsorted(instants, ready), len(instants) - 1)])
        if since < played.start_s[i]:
            assert played.start_s[i] <= latest_start(work.jobs, played, i, since)


def test_the_licences_by_hand() -> None:
    # Two nodes each; A and B take 0.5 · 1.2 = 0.6 of 1.0 each, C computes. Mean demands let one of A and B run, and so do the peaks.
    queue = [Waiting(1, 2, 100, duty=0.5, bandwidth=1.2), Waiting(2, 2, 100, duty=0.5, bandwidth=1.2), Waiting(3, 2, 100)]
    assert Easy().choose(queue, [], 6, 1.0) == [1, 2, 3]
    assert BandwidthLicense().choose(queue, [], 6, 1.0) == [1, 2, 3]  # c is clipped to the capacity: 0.5 + 0.5
    assert BandwidthLicense().choose(queue, [], 6, 0.9) == [1, 2, 3]
    heavy = [replace(job, duty=0.6) if job.duty else job for job in queue]
    assert BandwidthLicense().choose(heavy, [], 6, 1.0) == [1, 3]
    assert PeakLicense().choose(queue, [], 6, 1.0) == [1, 3]
    assert PeakLicense().choose([replace(job, bandwidth=0.5) for job in queue], [], 6, 1.0) == [1, 2, 3]
    assert PeakLicense().choose([replace(job, duty=0.02) for job in queue], [], 6, 1.0) == [1, 2, 3]


def test_a_head_that_lacks_only_the_licence_holds_a_reservation_under_one_licence_alone() -> None:
    running = [Running(9, 1, 50, duty=1.0, bandwidth=1.0)]
    queue = [Waiting(1, 2, 100, duty=1.0, bandwidth=1.0), Waiting(2, 3, 100), Waiting(3, 2, 100)]
    # Three nodes are free. Job 1 waits for the licence until 50 and then leaves two of four nodes free, so only job 3 passes it.
    assert BandwidthLicense().choose(queue, running, 3, 1.0) == [3]
    assert PeakLicense().choose(queue, running, 3, 1.0) == [2]


def test_an_overdue_job_is_expected_to_end_now_and_still_counts_as_contention() -> None:
    running = [Running(9, 3, -5.0, duty=1.0, bandwidth=1.0)]
    assert Easy().choose([Waiting(1, 4, 100), Waiting(2, 1, 100)], running, 1) == []
    assert Easy().choose([Waiting(1, 3, 100), Waiting(2, 1, 100)], running, 1) == [2]
    assert EquilibrIO().choose([Waiting(1, 1, 100, duty=0.5, bandwidth=1.0)], running, 1, 1.0) == []
    assert EquilibrIO().choose([Waiting(1, 1, 100, duty=0.5, bandwidth=1.0)], [], 1, 1.0) == [1]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_choose_is_what_the_simulator_does_at_the_first_instant(policy: Policy) -> None:
    rng = np.random.default_rng(5)
    n = 30
    jobs = Jobs.of(np.zeros(n), rng.integers(10, 100, n), rng.integers(1, 9, n), machine_nodes=16)
    duty, c = rng.random(n), rng.random(n)
    rows = zip(jobs.job, jobs.nodes, jobs.requested_s, duty, c, strict=True)
    queue = [Waiting(int(a), int(b), float(r), 0.0, float(d), float(e)) for a, b, r, d, e in rows]
    first = np.nonzero(policy.play(reference.told(jobs, duty, c, 1.5)).start_s == 0)[0]
    assert sorted(policy.choose(queue, [], 16, 1.5)) == sorted(jobs.job[first].tolist())


def test_simulate_gives_one_row_per_job_on_a_cluster() -> None:
    frame = simulate(Jobs.of([0, 0, 0], [10, 20, 30], [200, 100, 1]), "hpc-256", Easy())
    assert frame["start_s"].to_list() == [0.0, 10.0, 0.0]
    with pytest.raises(InputError, match="a job of 300 nodes"):
        simulate(Jobs.of([0], [10], [300]), "hpc-256", Easy())


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_empty_and_degenerate_work(policy: Policy) -> None:
    assert policy.choose([], [], 0) == []
    assert len(policy.play(without_io(Jobs.of([], [], []))).start_s) == 0
    zero = policy.play(without_io(Jobs.of([5, 5, 5], [0, 0, 0], [2, 2, 2], machine_nodes=2)))
    assert zero.start_s.tolist() == zero.end_s.tolist() == [5, 5, 5]


def test_many_more_jobs_than_the_window_start_at_once() -> None:
    jobs = Jobs.of(np.zeros(50), np.full(50, 10.0), np.ones(50, int), machine_nodes=50)
    for policy in (Easy(window=4), SjfEasy(window=4), Conservative(window=4), PeakLicense(window=4), EquilibrIO(window=4)):
        assert policy.play(without_io(jobs)).start_s.max() == 0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: with_parameters(EquilibrIO, {"fairness": "1.5"}, where="equilibrio"), "fairness"),
        (lambda: with_parameters(EquilibrIO, {"fairness": "-0.1"}, where="equilibrio"), "fairness"),
        (lambda: Easy().choose([Waiting(1, 9, 10)], [], 8), "job 1: found 9 nodes"),
        (lambda: Easy().choose([Waiting(1, 0, 10)], [], 8), "job 1: found 0 nodes"),
        (lambda: Easy().choose([Waiting(1, 1, 10, bandwidth=np.inf)], [], 8), "job 1: found ι"),
        (lambda: Easy().choose([Waiting(1, 1, np.nan)], [], 8), "job 1: found seconds"),
        (lambda: Easy().choose([Waiting(1, 1, 10)], [], 8, 0.0), "capacity: found 0"),
        (lambda: Easy().choose([Waiting(1, 1, 10)], [], -1), "free_nodes: found -1"),
        (lambda: io_jobs([10], 0.5, 2.0, 1.0), "beyond the capacity"),
        (lambda: io_jobs([10], 1.5, 1.0, 1.0), "ι above 1"),
    ],
)
def test_bad_input_ends_in_one_line(call: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        call()
