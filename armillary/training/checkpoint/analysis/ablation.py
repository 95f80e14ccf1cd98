"""What each part of MoE-Rckpt brings: layer profiles, speculative activation, rescaling between profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.training.checkpoint.gemini import Gemini
from armillary.training.checkpoint.moe_rckpt import MoeRckpt
from armillary.training.checkpoint.opportunistic import Opportunistic

if TYPE_CHECKING:
    from armillary.training.checkpoint.simulation.training import Trained
    from armillary.training.checkpoint.workload import CheckpointWork

#: The parts by name, with Gemini's plan at both shares of a span and a sender without a plan beside them.
PARTS: dict[str, Any] = {
    "gemini": Gemini(),
    "gemini, gamma 0.95": Gemini(gamma=0.95),
    "one profile": MoeRckpt(activate="never", repartition=False),
    "+ speculative activation": MoeRckpt(repartition=False),
    "+ rescaling, one profile": MoeRckpt(activate="never"),
    "moe-rckpt": MoeRckpt(),
    "a profile every 20 iterations": MoeRckpt(activate="every-20"),
    "a profile every iteration": MoeRckpt(activate="always"),
    "the mean of the first iterations": MoeRckpt(profile="once"),
    "opportunistic": Opportunistic(),
}


def ablation(work: CheckpointWork) -> dict[str, Trained]:
    """The simulated run of each part."""
    return {name: technique.train(work) for name, technique in PARTS.items()}
