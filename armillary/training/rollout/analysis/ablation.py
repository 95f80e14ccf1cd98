"""Shows what each part of RollPacker and of Seer adds, in the order of the papers."""

from __future__ import annotations

from collections.abc import Mapping

from armillary.arena import Technique

from ..rollpacker import RollPacker
from ..seer import Seer
from ..simulation.steps import metrics
from ..verl import Verl
from ..workload import RolloutWork

#: RollPacker's parts, one after another.
ROLLPACKER: Mapping[str, Technique] = {
    "verl": Verl(),
    "+ tail batching": RollPacker(reward="after", parallelism=False, stream="none"),
    "+ reward scheduler": RollPacker(parallelism=False, stream="none"),
    "+ parallelism planner": RollPacker(stream="none"),
    "+ stream trainer": RollPacker(),
}
#: The two halves of tail batching: more prompts only, and more responses only.
TAILS: Mapping[str, Technique] = {
    "none": RollPacker(eta=1.0, reward="after", parallelism=False, stream="none"),
    "prompts 1.25": RollPacker(eta_responses=1.0, reward="after", parallelism=False, stream="none"),
    "responses 1.25": RollPacker(eta_prompts=1.0, reward="after", parallelism=False, stream="none"),
    "responses 1.5": RollPacker(eta=1.5, eta_prompts=1.0, reward="after", parallelism=False, stream="none"),
    "both 1.25": RollPacker(reward="after", parallelism=False, stream="none"),
}
#: Seer's three stages, and the other choice of drafts.
SEER: Mapping[str, Technique] = {
    "verl": Verl(),
    "divided rollout": Seer(order="fifo", draft="none"),
    "+ context-aware scheduling": Seer(draft="none"),
    "+ grouped drafts": Seer(),
    "+ grouped drafts (best)": Seer(draft="best"),
}


def ablation(work: RolloutWork, parts: Mapping[str, Technique]) -> dict[str, dict[str, float]]:
    """The arena's figures for each variant of `ROLLPACKER`, `TAILS` or `SEER` on the same work."""
    return {name: metrics(technique.steps(work), work) for name, technique in parts.items()}  # type: ignore[attr-defined]
