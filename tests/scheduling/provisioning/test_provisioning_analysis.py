"""Beyond the paper: a node that fails, and HiGHS started from a plan."""

from __future__ import annotations

import numpy as np
import pytest
from provisioning_problems import random_problem

from armillary.scheduling.provisioning import Socl, ablation, after_failure, solved, solved_from


def test_after_a_failure_only_the_lost_services_move() -> None:
    for seed in range(2):
        p = random_problem(seed, 30, 8, 8)
        plan = Socl().solve(p)
        k = int(plan.placed.sum(0).argmax())
        again = after_failure(plan, p.nodes[k])
        lost = plan.placed[:, k]
        assert again.check().feasible
        assert not again.placed[:, k].any()
        assert np.array_equal(again.placed[~lost], plan.placed[~lost]), "what did not run there stays where it is"
        fresh = Socl().solve(again.problem).check()
        assert again.check().objective <= 1.25 * fresh.objective


def test_highs_from_a_plan_finds_the_same_optimum() -> None:
    pytest.importorskip("highspy")
    p = random_problem(1, 6, 4, 4, ample=False)
    plan = Socl().solve(p)
    warm, cold = solved_from(p, plan, 60), solved(p, limit_s=60)
    assert warm.proved
    assert cold.proved
    assert warm.plan is not None
    assert cold.plan is not None
    assert warm.plan.check().objective == pytest.approx(cold.plan.check().objective, rel=2e-4)
    assert warm.plan.check().objective <= plan.check().objective + 1e-9


def test_the_ablation_has_the_whole_and_four_parts() -> None:
    found = ablation(random_problem(1, 10))
    assert list(found) == ["socl", "without partition", "without preprovision", "without combination", "without refinement"]
    assert found["socl"].check().objective <= found["without refinement"].check().objective + 1e-12
