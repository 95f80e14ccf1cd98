"""The arena: stages of pods, attacks and their ablations, traces and the plan, and what a bad file says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import catalogue, compare
from armillary.errors import InputError
from armillary.network.tenancy import (
    DefaultService,
    HostPrivileged,
    OverlayTcp,
    Trace,
    UidGid,
    VniNetns,
    VniPerNamespace,
    plan,
    read_trace,
)
from armillary.network.tenancy.planning.plan import erlang_need, most_at_once, refusals
from armillary.network.tenancy.simulation.attacks import attack, draw
from armillary.network.tenancy.simulation.jobs import play, play_native
from armillary.network.tenancy.simulation.pods import NOISES, Added, Cluster, Kubernetes, ramp_times
from armillary.network.tenancy.workload import churn, ramp, spike

EXACT = Kubernetes(spread=0.0, jitter=0.0)


def started(submit: list[float], added: Added | None = None, kubernetes: Kubernetes = EXACT, pods: int = 1, run_s: float = 0.0) -> Any:
    n = len(submit)
    noise = np.full((n * pods, NOISES), 0.5)
    return Cluster(np.array(submit), np.full(n, pods), np.full(n, run_s), noise, kubernetes, added or Added()).play()


# Stages of pods


def test_one_pod_by_hand() -> None:
    k = EXACT
    stages = started([0.0]).stage_s[0]
    created = k.create_s + k.settle_s
    expected = [created, created + k.schedule_s, created + k.schedule_s + k.sandbox_s + k.cni_s]
    expected += [expected[-1] + k.pull_s, expected[-1] + k.pull_s + k.start_s]
    assert stages == pytest.approx(expected)


def test_the_controller_serves_one_after_another_and_ends_behind_beginnings() -> None:
    found = started([0.0] * 3)
    assert np.diff(found.stage_s[:, 0]) == pytest.approx([EXACT.create_s] * 2)
    k = replace(EXACT, gone_s=0.0)
    late = started([0.0, 0.0, 0.94], kubernetes=k)
    alone = started([0.94], kubernetes=k)
    first_gone = late.stage_s[0, 4]
    assert first_gone < 0.98 + late.stage_s[1, 4]
    assert late.stage_s[2, 0] - 0.94 >= alone.stage_s[0, 0] - 0.94


def test_a_node_has_room_for_110_pods() -> None:
    k = replace(EXACT, create_s=0.0, cni_s=0.0, pulls_per_s=1e9, burst=10**6)
    found = started([0.0] * 111, kubernetes=k, run_s=50.0)
    waits = found.stage_s[:, 1] - found.stage_s[:, 0]
    assert waits[:110] == pytest.approx([k.schedule_s] * 110)
    assert waits[110] == pytest.approx(found.stage_s[0, 4] + 50.0 + k.gone_s - found.stage_s[110, 0] + k.schedule_s)


def test_ten_pulls_at_once_and_the_next_after_its_back_off() -> None:
    k = replace(EXACT, create_s=0.0, cni_s=0.0)
    found = started([0.0] * 12, kubernetes=k)
    pulls = found.stage_s[:, 3] - found.stage_s[:, 2]
    assert pulls[:10] == pytest.approx([k.pull_s] * 10)
    assert pulls[10:] == pytest.approx([10.0 + k.pull_s] * 2)


def test_a_plugin_is_called_again_until_the_object_is_there() -> None:
    added = Added(hook_s=20.0, attach=True)
    found = started([0.0], added)
    native = started([0.0])
    called = native.stage_s[0, 2]
    assert found.retries == 2
    assert found.stage_s[0, 2] == pytest.approx(called + 2 * (10.0 + EXACT.cni_s)), "at 0.81, 11 and 21 s; the object is there at 20 s"


def test_plugins_of_one_node_run_one_after_another() -> None:
    k = replace(EXACT, create_s=0.0)
    one = started([0.0] * 3, Added(cni_s=0.1, cni_api_calls=2), k)
    assert np.diff(one.stage_s[:, 2]) == pytest.approx([k.cni_s + 0.1 + 2 * k.api_s] * 2)
    two = started([0.0] * 3, Added(cni_s=0.1), replace(k, cni_at_once=2))
    assert two.stage_s[0, 2] == two.stage_s[1, 2] < two.stage_s[2, 2]


@given(st.integers(0, 2**32), st.integers(1, 40))
@settings(max_examples=8, deadline=None)
def test_pods_pass_every_stage_in_order(seed: int, jobs: int) -> None:
    rng = np.random.default_rng(seed)
    work = churn(rng, jobs, 64)
    for found in (play_native(work), play(VniNetns(), work).started):
        assert (np.diff(np.column_stack([found.submit_s, found.stage_s]), axis=1) >= 0).all()
        assert np.isfinite(found.end_s).all()


def test_native_means_are_those_that_the_model_was_calibrated_on() -> None:
    """Seconds of the five stages in the artifact's native runs. The spike's pulls are the worst, by a fifth."""
    artifact = {"ramp": [7.6, 0.5, 0.2, 0.1, 0.1], "spike": [33.0, 3.9, 0.6, 12.1, 0.1]}
    for kind, known in artifact.items():
        work = ramp(np.random.default_rng(1), 10, 10) if kind == "ramp" else spike(np.random.default_rng(1), 500)
        found = play_native(work)
        assert found.stage_means() == pytest.approx(known, rel=0.2, abs=0.08)
        assert found.delay_s.mean() == pytest.approx({"ramp": 8.57, "spike": 49.8}[kind], rel=0.06)


def test_a_ramp_has_200_jobs() -> None:
    times = ramp_times(10, 10, 1.2)
    assert len(times) == 200
    assert times[-1] == pytest.approx(28 * 1.2)
    assert np.bincount((times / 1.2).round().astype(int)).tolist() == [*range(1, 11), *[10] * 10, *range(9, 0, -1)]


# Jobs


def test_jobs_get_vnis_give_them_back_and_none_is_used_too_early() -> None:
    work = churn(np.random.default_rng(5), 300, 400)
    found = play(VniNetns(), work)
    assert found.failures == 0
    assert found.hazards == 0
    assert 20 < found.most_held <= 400
    hasty = play(VniNetns(quarantine_s=0, free_table=False), replace(work, high=work.low + 60))
    assert hasty.hazards > 0, "without a rest the least number comes back at once"
    assert found.errors == 0
    assert play(VniNetns(published_finalize=True), work).errors > 200, "the controller finalizes each job twice"


def test_more_jobs_than_vnis_are_refused_and_come_again() -> None:
    work = churn(np.random.default_rng(5), 80, 30)
    found = play(VniNetns(), work)
    assert found.failures > 10
    assert found.started.retries >= found.failures, "their pods' plugins came too early"
    assert np.isfinite(found.started.delay_s).all(), "and all start in the end"
    assert found.hazards == 0
    for free in (DefaultService(), VniPerNamespace(), OverlayTcp()):
        assert play(free, work).failures == 0


def test_every_technique_meets_the_same_noise() -> None:
    work = spike(np.random.default_rng(2), 40)
    native = play_native(work)
    for technique in (DefaultService(), HostPrivileged(), OverlayTcp()):
        assert play(technique, work, native).metrics()["admission_delay"] == 0.0


# Attacks

SCENE = draw(np.random.default_rng(4), 3, 2, 3)
OUTSIDE = draw(np.random.default_rng(4), 3, 2, 3, outside=True)


def test_no_attack_on_vni_netns_succeeds() -> None:
    found = attack(VniNetns(), SCENE)
    assert found.total == 0
    assert found.own > 20, "jobs can use their own VNIs, so the card is not simply closed"
    assert found.attempts > 10_000


@pytest.mark.parametrize("technique", [DefaultService(), UidGid(), VniPerNamespace(), HostPrivileged()])
def test_each_other_way_lets_attacks_through(technique: Any) -> None:
    assert attack(technique, SCENE).total > 0


def test_what_goes_wrong_is_what_the_way_is_known_for() -> None:
    assert set(attack(DefaultService(), SCENE).violations) == {"default service"}
    assert "forged user" in attack(UidGid(), SCENE).violations
    assert "service that it made" in attack(HostPrivileged(), SCENE).violations
    apart = draw(np.random.default_rng(4), 3, 1, 3)
    apart = replace(apart, jobs=tuple(job for job in apart.jobs if not job.claim))
    of_one = {
        way: count for way, count in attack(VniPerNamespace(), apart).violations.items() if way != "number of a namespace that is gone"
    }
    assert sum(of_one.values()) < attack(VniPerNamespace(), SCENE).total, "tenants are kept apart, and two jobs of one tenant are not"
    assert attack(OverlayTcp(), SCENE).own == 0


@pytest.mark.parametrize(
    ("broken", "way"),
    [
        (VniNetns(quarantine_s=0), "VNI that two jobs have"),
        (VniNetns(quarantine_s=20), "VNI that two jobs have"),
        (VniNetns(clear_stale=False), "number of a namespace that is gone"),
        (VniNetns(default_service=True), "default service"),
    ],
)
def test_each_part_of_the_mechanism_is_needed(broken: VniNetns, way: str) -> None:
    assert set(attack(broken, SCENE).violations) == {way}


def test_outside_its_guarantees_attacks_succeed() -> None:
    ways = set(attack(VniNetns(), OUTSIDE).violations)
    assert {"pod on a node that is cut off", "namespace that a tenant made", "pod that names another job as its owner"} <= ways


# Traces and the plan


def trace(submit: list[float], run: list[float]) -> Trace:
    n = len(submit)
    return Trace.of(submit, [1] * n, run, ["t"] * n, [""] * n, "x")


def test_a_plan_by_hand() -> None:
    found = plan(trace([0, 10, 20], [15, 15, 15]), low=100, high=101, quarantine_s=0, rate=0.5)
    assert found.peak == 2
    assert found.refused == 0
    found = plan(trace([0, 10, 20], [15, 15, 15]), low=100, high=101, quarantine_s=60)
    assert found.peak == 3
    assert found.refused == pytest.approx(1 / 3)
    assert not found.fits
    assert most_at_once(np.array([0.0, 1.0]), np.array([1.0, 1.0])) == 1


def test_erlang_is_the_textbooks() -> None:
    """Ten Erlangs need 17 servers for 1.3 %, and 10 block 21.5 %: the tables."""
    begin = np.linspace(0, 3600, 3601)
    for erlangs, blocked, servers in ((10.0, 0.0130, 17), (10.0, 0.2147, 10), (1.0, 0.5, 1)):
        assert erlang_need(begin, np.full(3601, erlangs * 3600 / 3601), blocked) == servers


@given(st.integers(0, 2**32), st.integers(2, 60), st.sampled_from([0.0, 60.0]))
@settings(max_examples=20, deadline=None)
def test_the_plan_keeps_its_promise_when_the_trace_is_played(seed: int, jobs: int, rest: float) -> None:
    """Also on batches, which are no Poisson stream: with as many VNIs as planned none of these jobs is refused."""
    rng = np.random.default_rng(seed)
    made = trace(np.sort(rng.choice([0.0, 10.0, 50.0, 51.0, 300.0], jobs)).tolist(), rng.exponential(30, jobs).tolist())
    found = plan(made, quarantine_s=rest)
    assert refusals(made.submit_s, made.run_s, rest, found.needed) == 0
    assert refusals(made.submit_s, made.run_s, rest, found.peak) == 0
    assert found.peak == 1 or refusals(made.submit_s, made.run_s, rest, found.peak - 1) > 0, "one less is too few"


def test_on_other_days_of_the_same_cluster_the_plan_is_kept_too() -> None:
    """Poisson streams of one rate: planned on one, played on twenty."""
    rng = np.random.default_rng(0)
    days = [trace(np.cumsum(rng.exponential(2.0, 4000)).tolist(), rng.exponential(40, 4000).tolist()) for _ in range(21)]
    found = plan(days[0])
    assert found.needed == found.erlang > found.peak
    assert sum(refusals(other.submit_s, other.run_s, 60.0, found.needed) for other in days[1:]) == 0


def test_the_longest_rest_fits_and_a_longer_one_does_not() -> None:
    made = trace(np.arange(0, 1000, 5.0).tolist(), [20.0] * 200)
    found = plan(made, low=100, high=159)
    assert found.longest_rest_s is not None
    assert plan(made, low=100, high=159, quarantine_s=found.longest_rest_s).fits
    assert not plan(made, low=100, high=159, quarantine_s=1.01 * found.longest_rest_s + 2).fits
    assert plan(made, low=100, high=101).longest_rest_s is None


BAD_PLANS: list[dict[str, Any]] = [
    {"low": 0},
    {"high": 99},
    {"high": 70000},
    {"quarantine_s": -1.0},
    {"rate": 0.0},
    {"rate": 1.0},
    {"start_s": float("nan")},
]


@pytest.mark.parametrize("options", BAD_PLANS)
def test_bad_plans_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected"):
        plan(trace([0], [1]), **options)


def test_the_answer_names_who_is_safe_and_what_it_costs() -> None:
    said = compare(
        "network/tenancy", scale="tiny", cases=["attack", "ramp"], techniques=["vni-netns", "default-service"], repeats=1
    ).answer()
    assert said.startswith("vni-netns lets no attack through. Uses of other jobs' VNIs that succeed with the others: default-service ")
    assert "With vni-netns, pods start " in said
    assert said.endswith("(simulated).")


# Files

TABLE = "submit_s,nodes,pods,duration_s,tenant,claim\n5,1,2,30,a,\n0,1,1,10,b,mesh\n"
SWF = "; UnixStartTime: 0\n" + "".join(f"{i} {10 * i} 0 {60 + i} 4 -1 -1 4 -1 -1 1 {i % 3} 1 -1 1 -1 -1 -1\n" for i in range(1, 9))


def written(folder: Path, content: str, name: str) -> Path:
    path = folder / name
    path.write_text(content)
    return path


def test_a_table_of_jobs(tmp_path: Path) -> None:
    found = read_trace(written(tmp_path, TABLE, "jobs.csv"))
    assert found.submit_s.tolist() == [0, 5]
    assert found.pods.tolist() == [1, 2]
    assert found.claim == ("mesh", "")
    assert found.tenant.tolist() == [1, 0]


def test_a_log_of_a_batch_system(tmp_path: Path) -> None:
    found = read_trace(written(tmp_path, SWF + "9 100 0 -1 4 -1 -1 4 -1 -1 5 1 1 -1 1 -1 -1 -1\n", "log.swf"))
    assert len(found) == 8, "one never ran"
    assert found.pods.tolist() == [4] * 8
    assert found.submit_s.tolist() == [10.0 * i for i in range(8)]
    assert len(set(found.tenant.tolist())) == 3


@pytest.mark.shared_data
def test_a_real_log(pytestconfig: pytest.Config) -> None:
    path = Path(__file__).parents[4] / "shared" / "data" / "swf" / "NASA-iPSC-1993-3.1-cln.swf.gz"
    if not path.exists():
        pytest.skip("the file is not beside the checkout")
    found = read_trace(path)
    assert len(found) > 18_000
    planned = plan(found)
    assert planned.fits
    assert planned.refused == 0


def test_manifests_as_work(tmp_path: Path) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "n", "annotations": {"vni": "Mesh"}},
        "spec": {"parallelism": 3},
    }
    path = written(tmp_path, json.dumps({"kind": "List", "items": [job, {"kind": "Service"}]}), "m.yaml")
    (case,) = catalogue.arena("network/tenancy").from_file(path, {"duration_s": "7"})
    assert case.loaded.pods.tolist() == [3]
    assert case.loaded.run_s.tolist() == [7.0]
    assert case.loaded.claim == ("mesh",)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("jobs.csv", TABLE.replace("mesh", "Me sh"), 'row 2: column "claim": found "Me sh"; expected a DNS label'),
        ("jobs.csv", TABLE.replace("5,1,2", "-5,1,2"), "submit_s"),
        ("jobs.csv", TABLE.replace("5,1,2", "5,1,0"), "pods"),
        ("jobs.csv", TABLE.replace("5,1,2", "5,1,99999"), "found 99,999 pods; expected at most 880"),
        ("jobs.csv", "submit_s,pods\n1,2\n", "duration_s"),
        ("jobs.csv", "submit_s,pods,duration_s\n", "jobs.csv"),
        ("log.swf", SWF.replace("1 10 0", "1 x 0"), "log.swf:2"),
        ("log.swf", "1 2 3\n", "found 3 fields; expected 18"),
        ("log.swf", "; nothing\n", "found 0 jobs"),
        ("log.swf", SWF.replace("10 0 61 4", "10 0 61 999999"), "found 999999 processors"),
        ("m.yaml", "kind: Job\n", "found no object with the annotation vni"),
        ("m.yaml", "a: !!set {1}\n", "found the tag"),
        ("m.yaml", '{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"annotations": {"vni": "a/b"}}}', "expected a DNS label"),
        ("m.yaml", '{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"annotations": {"vni": "a\'b"}}}', "expected a DNS label"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        catalogue.arena("network/tenancy").from_file(written(tmp_path, content, name))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_bad_options_and_files_on_the_command_line(armillary_here: Any, tmp_path: Path) -> None:
    path = written(tmp_path, TABLE, "jobs.csv")
    for options, said in ((["--low", "0"], "--low"), (["--low", "200", "--high", "100"], "--high"), (["--nodes", "x"], "--nodes")):
        done = armillary_here("compare", "network/tenancy", "--work", str(path), *options)
        assert done.returncode == 2
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
    done = armillary_here("vni", "plan", str(path))
    assert done.returncode == 0
    assert "VNIs are needed" in done.stdout
    assert armillary_here("vni", "plan", str(path), "--low", "100", "--high", "100").returncode == 1
    assert armillary_here("vni", "plan", str(written(tmp_path, "x", "bad.swf"))).returncode == 2
    for words in (["serve", "--path", str(tmp_path / "no" / "vni.db")], ["serve", "--path", str(tmp_path / "v.db"), "--host", "0.0.0.0"],
                  ["serve", "--path", str(tmp_path / "w.db"), "--low", "9", "--high", "3"]):  # fmt: skip
        assert armillary_here("vni", *words).returncode == 2
