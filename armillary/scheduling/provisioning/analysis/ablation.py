"""What each stage of SoCL brings: the same problem with one stage switched off at a time."""

from __future__ import annotations

from dataclasses import replace

from armillary.scheduling.provisioning.problem.plan import Plan
from armillary.scheduling.provisioning.problem.problem import Problem
from armillary.scheduling.provisioning.socl import Socl

STAGES = ("partition", "preprovision", "combination", "refinement")


def ablation(problem: Problem, technique: Socl | None = None) -> dict[str, Plan]:
    """The plans of SoCL and of SoCL without each stage, by name."""
    whole = Socl() if technique is None else technique
    found = {"socl": whole.solve(problem)}
    for stage in STAGES:
        found[f"without {stage}"] = replace(whole, **{stage: False}).solve(problem)
    return found
