"""The built-in work follows its laws, knowledge is what it says, and promises are held against what is delivered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import gamma

from armillary.errors import InputError
from armillary.scheduling.batch import (
    BandwidthLicense,
    Easy,
    EquilibrIO,
    EquilibrIOEager,
    History,
    JobIo,
    Moved,
    PeakLicense,
    ablation,
    frontier,
    model_jobs,
    replay,
    tidal_io,
    tidal_work,
    tune,
    with_io,
    without_io,
)
from armillary.scheduling.batch.simulation.replay import metrics
from armillary.scheduling.batch.workload import phases_of
from armillary.scheduling.queueing.model import MENU
from armillary.scheduling.swf import Jobs
from armillary.streams import stream

LINK = 12.5e9


@pytest.fixture(scope="module")
def jobs() -> Jobs:
    return model_jobs(stream(0, "batch"), 40_000, 256)


def test_jobs_follow_the_batch_model(jobs: Jobs) -> None:
    serial = (jobs.nodes == 1).mean()
    powers = (np.log2(jobs.nodes) % 1 == 0).mean()
    # Of the remaining sizes some round to powers of two as well.
    assert serial == pytest.approx(0.2927, abs=0.01)
    assert 0.2927 + 0.6686 - 0.01 <= powers <= 0.2927 + 0.6686 + 0.02
    wide = jobs.nodes[jobs.nodes > 1]
    assert (np.log2(wide) > 5.5).mean() == pytest.approx(0.125, abs=0.02)
    # ln(run) of a serial job: two gamma laws, cut at 12 and clipped; the mean by integration.
    x = np.linspace(0, 12, 100_001)
    p = 0.6986 - 0.003
    density = p * gamma.pdf(x, 6.57, scale=0.823) + (1 - p) * gamma.pdf(x, 639.1, scale=0.0156)
    mean = (density * np.clip(x, np.log(60), np.log(36 * 3600))).sum() / density.sum()
    assert np.log(jobs.run_s[jobs.nodes == 1]).mean() == pytest.approx(mean, abs=0.06)
    assert jobs.run_s.min() == 60
    assert jobs.run_s.max() <= 36 * 3600


def test_load_requests_and_users(jobs: Jobs) -> None:
    span = jobs.submit_s[-1] - jobs.submit_s[0]
    assert jobs.nodes @ jobs.run_s == pytest.approx(0.85 * 256 * span, rel=1e-3)
    assert np.isin(jobs.requested_s, MENU).all()
    assert (jobs.requested_s >= jobs.run_s).all()
    assert (jobs.requested_s == MENU[-1]).mean() > 0.10
    counts = np.bincount(jobs.user)[1:]
    assert len(counts) == 60
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.25)
    assert all(1 <= len(np.unique(jobs.executable[jobs.user == user])) <= 4 for user in range(1, 61))
    # By day more than twice as many jobs arrive as by night.
    hour = (jobs.submit_s % 86400) // 3600
    by_hour = np.bincount(hour.astype(int), minlength=24)
    assert by_hour.max() > 2 * by_hour.min()


def test_io_meets_the_target_and_the_share(jobs: Jobs) -> None:
    for target in (0.2, 0.4, 0.5):
        work = tidal_work(stream(1, "io"), jobs, LINK, target)
        assert work.load == pytest.approx(target, rel=1e-9)
        assert work.capacity >= 4 * LINK
        heavy = work.duty > 0.024
        share = (jobs.nodes * jobs.run_s)[heavy].sum() / (jobs.nodes @ jobs.run_s)
        assert 0.2 <= share <= 0.55  # At least 30 % is held by executables whose duty may be small by chance.
        assert (work.bandwidth == np.minimum(jobs.nodes * LINK, work.capacity)).all()
        assert (work.phases == np.maximum(1, np.round(jobs.run_s / 1800))).all()
    with pytest.raises(InputError, match="at most"):
        tidal_io(stream(1, "io"), jobs, LINK, 0.99 * 100)


def test_the_same_seed_gives_the_same_work() -> None:
    first, second = (tidal_work(stream(5, "x"), model_jobs(stream(5, "y"), 200, 64), LINK, 0.2) for _ in range(2))
    assert first.volume.tolist() == second.volume.tolist()
    assert first.jobs.submit_s.tolist() == second.jobs.submit_s.tolist()


@pytest.fixture(scope="module")
def work():  # type: ignore[no-untyped-def]
    rng = stream(2, "knowledge")
    return tidal_work(rng, model_jobs(rng, 800, 64), LINK, 0.4)


def test_knowledge_is_what_it_says(work) -> None:  # type: ignore[no-untyped-def]
    rng = stream(3, "knowing")
    random, heaviest, false = (work.knowing(what, rng) for what in ("quarter-random", "quarter-heaviest", "false"))
    assert np.count_nonzero(random.told_duty) == np.count_nonzero(heaviest.told_duty) == 200
    assert work.volume[heaviest.told_duty > 0].min() >= work.volume[heaviest.told_duty == 0].max()
    assert sorted(false.told_duty) == sorted(work.duty)
    assert not np.array_equal(false.told_duty, work.duty)
    for other in (random, heaviest, false):
        assert np.array_equal(other.duty, work.duty)  # What happens does not depend on what is known.
    with pytest.raises(InputError, match="expected one of"):
        work.knowing("everything")


def test_without_knowledge_every_policy_is_easy(work) -> None:  # type: ignore[no-untyped-def]
    starts = Easy().play(work).start_s.tolist()
    for policy in (EquilibrIO(), EquilibrIOEager(), BandwidthLicense(), PeakLicense()):
        assert policy.play(work.knowing("none")).start_s.tolist() == starts


def test_history_is_learned_from_ended_runs_only(work) -> None:  # type: ignore[no-untyped-def]
    learned = work.knowing("history")
    played = EquilibrIOEager().play(learned)
    first = {}
    for i in np.argsort(played.start_s, kind="stable"):
        program = (int(work.jobs.user[i]), int(work.jobs.executable[i]))
        first.setdefault(program, i)
    ended = {p: min(played.end_s[i] for i in range(len(work)) if (work.jobs.user[i], work.jobs.executable[i]) == p) for p in first}
    for i in range(len(work)):
        program = (int(work.jobs.user[i]), int(work.jobs.executable[i]))
        if played.start_s[i] < ended[program]:
            assert played.known_duty[i] == 0  # No run of it had ended, so nothing could be known.
    assert 0 < played.io_slowdown < Easy().play(work).io_slowdown


def test_the_history_by_hand() -> None:
    past = Jobs.of([0, 10, 20, 30], [100, 100, 100, 100], [4, 8, 32, 4], user=[1, 1, 1, 2], executable=[5, 5, 5, 5])
    io = JobIo({1: Moved(1e9, 50.0), 2: Moved(3e9, 30.0), 3: Moved(8e9, 80.0)})
    history = History.of(past, io)
    assert history.io("1", "5", 4) == pytest.approx((0.4, (1e9 / 50 + 1e8) / 2))
    assert history.io("1", "5", 2) == pytest.approx((0.5, 1e9 / 50))
    assert history.io("1", "5", 33) == pytest.approx((0.8, 1e8))
    assert history.io("2", "5", 4) == (0.0, 0.0)
    assert History.of(past, io, runs=1).io("1", "5", 4) == pytest.approx((0.3, 1e8))
    duty, bandwidth, phases = io.of(past)
    assert (duty.tolist(), phases.tolist()) == ([0.5, 0.3, 0.8, 0.0], [1, 1, 1, 0])
    assert bandwidth[0] == 2e7
    with pytest.raises(InputError, match="capacity"):
        with_io(past, io, 0.0)
    assert with_io(past, io, 5e7).bandwidth.tolist() == [2e7, 5e7, 5e7, 0]


def test_promises_are_held_against_delivery_also_where_knowledge_is_false(work) -> None:  # type: ignore[no-untyped-def]
    """EquilibrIO's promise is the contention that it expected when it started jobs; a policy without one promises none."""
    for known in ("told", "false", "quarter-random"):
        informed = work.knowing(known, stream(4, known))
        for policy in (EquilibrIO(), EquilibrIOEager(), Easy(), PeakLicense()):
            played = policy.play(informed)
            found = metrics(played)
            delivered = float(played.io_s.sum()) / float(work.io_s.sum())
            assert found["promise_error"] == pytest.approx(abs(played.promised_stretch - delivered) / delivered)
            if isinstance(policy, Easy):
                assert played.promised_stretch == 1.0
    told, false = EquilibrIO().play(work), EquilibrIO().play(work.knowing("false", stream(4, "false")))
    assert metrics(told)["promise_error"] < metrics(Easy().play(work))["promise_error"]
    assert false.promised_stretch > 1.0
    # The promise is a lower bound in spirit: Δ counts a collision once, and both jobs wait.
    assert told.promised_stretch < 1 + told.io_slowdown


def test_every_part_of_equilibrio_does_something(work) -> None:  # type: ignore[no-untyped-def]
    found = ablation(work)
    starts = {name: played.start_s.tolist() for name, played in found.items()}
    assert starts["neither sum (EASY)"] == Easy().play(work).start_s.tolist()
    assert starts["one past run"] == starts["equilibrio"]  # Nothing is learned here.
    for part in ("no pairs", "no crowd", "tolerance never grows", "neither sum (EASY)"):
        assert starts[part] != starts["equilibrio"], part
    learned = ablation(work.knowing("history"))
    assert learned["one past run"].start_s.tolist() != learned["equilibrio"].start_s.tolist()
    eager = ablation(work, EquilibrIO(fairness=0.5, relax_per_h=0.0, patience_s=3600.0))
    assert eager["no patience"].start_s.tolist() != eager["equilibrio"].start_s.tolist()


def test_the_dial_runs_from_little_contention_to_easy(work) -> None:  # type: ignore[no-untyped-def]
    rows = frontier(work)
    dial = [row["io_slowdown"] for row in rows if row["policy"] == "equilibrio"]
    assert [row["phi"] for row in rows if row["policy"] == "equilibrio"] == [0.0, 0.05, 0.1, 0.3, 0.6, 1.0]
    assert dial[-1] == pytest.approx(Easy().play(work).io_slowdown)
    assert dial[0] < 0.5 * dial[-1]
    assert {row["policy"] for row in rows} == {"equilibrio", "bandwidth-license", "peak-license"}


def test_tuning_picks_a_point_of_the_curve_and_says_who_pays(work) -> None:  # type: ignore[no-untyped-def]
    knee = tune(work, days=1e6)
    assert knee.fairness in [point[0] for point in knee.curve]
    assert knee.easy[0] == pytest.approx(Easy().play(work).io_slowdown)
    assert knee.delayed > 0
    assert knee.delay_mean_s > 0
    assert 1 <= len(knee.users) <= 3
    with pytest.raises(InputError, match="days"):
        tune(work, days=0)


def test_a_job_can_be_killed_at_its_limit(work) -> None:  # type: ignore[no-untyped-def]
    strict = replace(work, kill_at_limit=True)
    lenient, killed = Easy().play(work), Easy().play(strict)
    held = killed.end_s - killed.start_s
    assert (held <= work.jobs.requested_s * (1 + 1e-9)).all()
    assert metrics(lenient)["overruns"] > 0
    assert metrics(killed)["overruns"] == 0
    assert killed.moved.sum() < work.volume.sum()
    assert (killed.moved <= work.volume * (1 + 1e-9)).all()


def test_phases_and_empty_io() -> None:
    assert phases_of(np.array([10.0, 1800.0, 9000.0, 9000.0]), np.array([0.5, 0.5, 0.5, 0.0])).tolist() == [1, 1, 5, 0]
    few = without_io(Jobs.of([0], [5], [1]))
    assert few.load == 0.0
    with pytest.raises(InputError, match="I/O phases"):
        replace(few, phases=np.array([10_000_000]))


def test_real_processes_are_refused_where_they_would_be_too_many() -> None:
    many = without_io(Jobs.of(np.zeros(17), np.ones(17), np.ones(17, int)))
    with pytest.raises(InputError, match="expected 1 to 16"):
        replay(many)
    with pytest.raises(InputError, match="processes"):
        replay(many.__class__(**{**many.__dict__}), mode="threads")


@pytest.mark.slow
def test_real_processes_are_slowed_down_as_the_model_says() -> None:
    """Two writers that together exceed the server; the exact agreement is a benchmark's matter."""
    jobs = Jobs.of([0, 0], [2, 2], [1, 1], machine_nodes=2)
    io = JobIo({1: Moved(1e6, 1.0, 1), 2: Moved(1e6, 1.0, 1)})
    found = replay(with_io(jobs, io, 1e6))
    assert found.simulated == pytest.approx(1.0)
    assert found.measured > 0.5
