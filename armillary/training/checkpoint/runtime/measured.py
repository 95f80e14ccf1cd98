"""Real training with a killed rank, measured: four processes over Gloo, of which one ends with SIGKILL and is replaced."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from armillary.arena import Artifact, Case, NotForThisCase, Outcome, parameters
from armillary.extras import need

PROGRAM = "armillary.training.checkpoint.runtime.program:train"
TIMEOUT_S = 240.0


@dataclass(frozen=True)
class RealWork:
    """A tiny mixture of experts of this shape on `ranks` processes; rank `victim` is killed at the beginning of iteration `kill`."""

    hidden: int
    layers: int
    ffn: int
    experts: int
    sequences: int
    tokens: int
    iterations: int
    ranks: int
    kill: int
    victim: int
    seed: int


def measure(technique: Any, case: Case) -> Outcome:
    """Seconds of an iteration and of the recovery, and whether everything equals a run that nothing disturbed."""
    from armillary.training.checkpoint.none import NoCheckpoint

    kind = type(technique)
    if not hasattr(technique, "policy") and kind is not NoCheckpoint:
        raise NotForThisCase("is simulated only; real training runs with none, gemini, opportunistic and moe-rckpt")
    if getattr(technique, "window", None) is not None:
        raise NotForThisCase("is simulated only, because replay needs frozen operators")
    need("torch")
    from armillary import comm

    work: RealWork = case.workload
    target = "" if kind is NoCheckpoint else f"{kind.__module__}:{kind.__qualname__}"
    settings = {name: getattr(technique, name) for name in parameters(kind)} if target else {}
    ran = comm.run(PROGRAM, target, settings, asdict(work), ranks=work.ranks, backend="gloo", restarts=1, timeout=TIMEOUT_S).values
    undisturbed = case.once(_undisturbed)
    witness = next(r for r in range(work.ranks) if r != work.victim)
    losses = ran[witness]["losses"]
    same = np.array_equal(losses, undisturbed[witness]["losses"])
    same = same and all(one["digest"] == other["digest"] for one, other in zip(ran, undisturbed, strict=True))
    seconds = np.median([one["seconds"][1 : work.kill] for r, one in enumerate(ran) if r != work.victim], axis=0)
    values = {
        "iteration_s": float(np.median(seconds)), "recovery_s": float(max(one["recovery_s"] for one in ran)), "state_equal": float(same),
        "real_lost_iterations": float(ran[witness]["lost"]),
    }  # fmt: skip
    both = zip(losses.tolist(), undisturbed[witness]["losses"].tolist(), strict=True)
    rows = [{"iteration": i, "loss": mine, "undisturbed": other} for i, (mine, other) in enumerate(both)]
    return Outcome(values, [Artifact.table("losses", rows)])


def _undisturbed(case: Case) -> list[dict[str, Any]]:
    from armillary import comm

    work: RealWork = case.workload
    return list(comm.run(PROGRAM, "", {}, {**asdict(work), "kill": -1}, ranks=work.ranks, backend="gloo", timeout=TIMEOUT_S).values)
