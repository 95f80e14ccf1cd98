"""The whole dial in hindsight: the step time of CPLX at every X."""

from __future__ import annotations

from armillary.scheduling.mesh.cplx import Cplx
from armillary.scheduling.mesh.simulation.play import Played, play
from armillary.scheduling.mesh.tuning.tune import GRID
from armillary.scheduling.mesh.workload import MeshWork

#: Steps that a tuner may look at; regret is counted on those after them.
TUNED_ON = 10


def late_us(played: Played) -> float:
    """Mean µs of the steps after the first ten, or of the second half of a shorter run."""
    late = played.step_us[TUNED_ON:] if len(played.step_us) > TUNED_ON else played.step_us[len(played.step_us) // 2 :]
    return sum(late) / len(late)


def dial(work: MeshWork) -> dict[float, float]:
    """X to the mean µs of the late steps, with the same X in all steps."""
    return {x: late_us(play(work, Cplx(x=x))) for x in GRID}
