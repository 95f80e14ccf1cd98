"""The arena: cases, claims, answers, files of one's own, and nothing of a file is executed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from armillary.arena import NotForThisCase
from armillary.runtime.pilot.arena import pilot
from armillary.runtime.pilot.running.calibrate import calibrated
from armillary.runtime.pilot.simulation.play import simulate
from armillary.runtime.pilot.workload import null

Command = Callable[..., subprocess.CompletedProcess[str]]
SIMULATED = {"hybrid", "flux-n", "flux", "dragon", "srun", "srun-pool", "srun-unlimited", "auto"}


def test_every_claim_that_is_judged_has_four_cases_at_least() -> None:
    cases = pilot.built_in("small")
    for number, _, claim in pilot.claims():
        for kind in claim.kinds:
            if not claim.circular:
                assert sum(kind.takes(case.kinds) for case in cases) >= 4, number


def test_claims_of_the_published_system_name_every_simulated_rival() -> None:
    for name in ("hybrid", "flux-n"):
        named = [set(claim.baselines) for claim in pilot.claims_of(name) if claim.source == "our design"]
        assert all(found == SIMULATED - {name, "auto"} for found in named)
        assert named
    for _, name, claim in pilot.claims():
        assert name not in claim.baselines


def test_the_published_rates_are_inputs_and_never_verdicts() -> None:
    rates = [claim for _, _, claim in pilot.claims() if claim.metric == "tasks_per_s"]
    assert len(rates) == 3
    assert all(claim.circular for claim in rates)


def test_no_metric_is_measured_in_one_case_and_simulated_in_another() -> None:
    for case in pilot.built_in("small"):
        kinds = {metric.kind for metric in pilot.metrics.values() if metric.applies(case)}
        assert kinds == ({"measured"} if "measured" in case.kinds else {"simulated"}), case.name


def test_techniques_without_published_rates_are_not_simulated() -> None:
    case = next(case for case in pilot.built_in("tiny") if "simulated" in case.kinds).at(0, 0)
    for name in pilot.techniques:
        found = pilot.execute(pilot.make(name), case)
        assert isinstance(found, NotForThisCase) == (name not in SIMULATED), name


def test_a_list_of_ones_own_is_played_and_nothing_in_it_is_executed(armillary_here: Command, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    rows = [
        {"id": "a", "command": ["touch", str(mark)], "seconds": 100},
        {"id": "b", "function": "os:abort", "seconds": 50, "after": ["a"]},
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    found = armillary_here("compare", "runtime/pilot", "--work", "t.jsonl", "--nodes", "1", "--cores", "2", "--repeats", "1", "-q")
    assert found.returncode == 0, found.stderr
    assert "ends first, after 150" in found.stdout.replace("\n", " ")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ('{"id": "a", "command": ["x"], "nodes": 9}\n', [], "task a: needs 9 nodes, and the allocation has 4"),
        ('{"id": "a", "command": ["x"], "cores_per_rank": 99}\n', [], "task a: needs 99 cores on a node of 56"),
        ('{"id": "a", "function": "m:f", "gpus_per_rank": 9}\n', [], "task a: needs 9 GPUs on a node of 8"),
        ('{"id": "a", "command": ["x"], "after": ["z"]}\n', [], 'unknown task "z"'),
        ('{"id": "a", "command": ["x"]}\n', ["--nodes", "0"], "--nodes"),
        ("JobID|State\n", [], "found no column Submit"),
        ("nothing\n", [], "found none of the known beginnings"),
    ],
)
def test_wrong_files_are_one_line_and_exit_status_2(
    armillary_here: Command, tmp_path: Path, content: str, options: list[str], said: str
) -> None:
    (tmp_path / "x.jsonl").write_text(content)
    found = armillary_here("compare", "runtime/pilot", "--work", "x.jsonl", *options, "-q")
    assert found.returncode == 2
    assert said in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1


def test_a_task_too_wide_for_its_partitions_fails_that_technique_only(armillary_here: Command, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"id": "a", "command": ["x"], "nodes": 3, "ranks": 3, "seconds": 5}\n')
    found = armillary_here(
        "compare",
        "runtime/pilot",
        "--work",
        "x.jsonl",
        "--techniques",
        "srun,flux-n",
        "--set",
        "flux-n.partitions=2",
        "--repeats",
        "1",
        "-q",
    )
    assert "every partition of flux has 2" in found.stdout + found.stderr


def test_a_calibrated_pilot_draws_the_service_times_that_were_measured() -> None:
    gaps = np.array([0.01, 0.02, 0.03])
    spans = [simulate(null(1, 400), calibrated("x", gaps), np.random.default_rng(seed)).makespan for seed in range(20)]
    assert abs(np.mean(spans) - 400 * 0.02) < 0.1


def test_the_prediction_for_the_own_spawner_runs_here() -> None:
    case = next(case for case in pilot.built_in("small") if "prediction" in case.kinds).at(0, 0)
    found = pilot.execute(pilot.make("local"), case)
    assert not isinstance(found, NotForThisCase)
    assert 0 <= found.values["prediction_error"] < 500
    assert isinstance(pilot.execute(pilot.make("dask"), case), NotForThisCase)
