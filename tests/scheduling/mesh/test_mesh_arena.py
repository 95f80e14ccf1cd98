"""The arena as a whole: its cases, its claims, its answer, a file of one's own, and steps that really run."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import catalogue
from armillary.scheduling.mesh import Baseline, Cdp, Lpt, Machine, box_work
from armillary.scheduling.mesh.arena import mesh
from armillary.scheduling.mesh.execution.real import iterations_per_us, real_move_us, real_step_us, spin


def test_cases_are_those_of_the_claims() -> None:
    cases = {case.name: case for case in mesh.built_in("small")}
    assert {case.name for case in cases.values() if "amr" in case.kinds} == {"sedov-3d", "orszag-2d", "sedov-3d-wide", "orszag-2d-wide"}
    assert cases["sedov-3d-wide"].parameters["ranks"] == 4096
    assert cases["sedov-3d"].parameters["ranks"] == 512
    assert len([case for case in cases.values() if "dial" in case.kinds]) == 8
    assert {"dial", "amr"}.isdisjoint(cases["misfit-sedov-3d"].kinds | cases["exact"].kinds | cases["real"].kinds)
    assert len([case for case in cases.values() if "misfit" in case.kinds]) == len([c for c in cases.values() if "wide" in c.kinds]) == 4
    rivals = {rival for _, _, claim in mesh.claims(["cplx"]) for rival in claim.baselines}
    assert rivals == {"baseline", "cyclic", "contiguous", "contiguous-best", "cdp", "lpt", "metis"}


def test_the_judge_is_not_the_planners_model() -> None:
    """Playing a tuned run never asks the planner's model for a step time."""
    from armillary.scheduling.mesh.simulation import play as playing
    from armillary.scheduling.mesh.simulation import step

    assert "modelled_step_us" not in vars(playing)
    assert "modelled_step_us" not in vars(step)


def test_a_comparison_of_a_file_answers(tmp_path: Path) -> None:
    path, options = mesh.write_example(tmp_path)
    found = armillary.compare(
        "scheduling/mesh", work=path, options=options, techniques=["baseline", "cdp", "lpt", "cplx"], store=tmp_path / "r.db"
    )
    ranked = found.on("blocks.csv", "step_us")
    assert set(ranked) == {"baseline", "cdp", "lpt", "cplx"}
    assert "shortest steps" in found.answer()
    placed = found.artifact_rows("lpt", "blocks.csv", "placement")
    assert len(placed) == 39
    assert {int(row["rank"]) for row in placed} == set(range(8))


def test_ilp_declines_what_is_not_small() -> None:
    (case,) = (case for case in mesh.built_in("tiny") if case.name == "sedov-3d")
    assert "takes exact" in str(mesh.execute(mesh.make("ilp"), case.at(0, 0)))


def test_steps_really_run_and_deliver_their_messages() -> None:
    work = box_work("lognormal", 8, 1, Machine(), np.random.default_rng(0))
    cost = work.costs[0] / work.costs[0].sum() * 4000.0
    placement = Cdp().session().place(_state(replace(work, ranks=2, costs=(cost, cost))))
    iterations_per_us()
    start = time.process_time()
    assert real_step_us(cost, placement, work.graphs[0], 2) > 0
    assert 1e6 * (time.process_time() - start) > 0.5 * cost.sum(), "the ranks computed for as long as their blocks cost"
    assert real_move_us(np.array([0, 1]), np.array([1, 0]), np.array([1e5, 1e5]), 2) > 0
    assert real_move_us(np.array([], int), np.array([], int), np.array([]), 2) == 0.0
    assert iterations_per_us() > 1
    assert spin(10, 0.5) == pytest.approx(1 - 0.5 * 0.999**10)


def test_the_real_case_is_measured(tmp_path: Path) -> None:
    (case,) = (case for case in mesh.built_in("small") if case.name == "real")
    assert mesh.metrics["step_us"].kind_on(case) == "measured"
    done = mesh.execute(Lpt(), case.at(0, 0))
    assert done.values["step_us"] > 0  # type: ignore[union-attr]
    assert "tune_regret" not in done.values  # type: ignore[union-attr]


def test_regret_is_counted_against_the_best_x_in_hindsight() -> None:
    (case,) = (case for case in mesh.built_in("tiny") if case.name == "orszag-2d")
    case = case.at(0, 0)
    regrets = {name: mesh.execute(mesh.make(name), case).values["tune_regret"] for name in ("cdp", "cplx", "cplx-tuned")}  # type: ignore[union-attr]
    best = min(mesh.execute(mesh.make("cplx", {"x": x}), case).values["tune_regret"] for x in range(0, 101, 10))  # type: ignore[union-attr]
    assert best == pytest.approx(0.0, abs=1e-12)
    assert regrets["cdp"] >= 0
    assert regrets["cplx"] >= 0


def test_another_cluster_may_be_named() -> None:
    cluster = armillary.cluster.find("amr-4096")
    (case,) = (case for case in mesh.built_in("tiny", cluster) if case.name == "iid-lognormal")
    assert mesh.execute(Baseline(), case.at(0, 0)).values["step_us"] > 0  # type: ignore[union-attr]
    assert catalogue.arena("scheduling/mesh") is mesh


def _state(work):  # type: ignore[no-untyped-def]
    from armillary.scheduling.mesh import State

    return State(work.costs[0], work.ranks, work.graphs[0], work.machine)
