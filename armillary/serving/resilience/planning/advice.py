"""Should a node go on with fewer GPUs or wait for a spare? The expected repair time decides.

These are the tokens that are not served until the node is whole again, compared with full service at `full` tokens per second:

    stay:  full·down_hole + (full − degraded)·E[repair] + full·up_hole
    wait:  full·(spare + join)

The repair is lognormal with a median and σ (its mean is median·exp(σ²/2)). Waiting is better below a break-even spare time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from armillary.errors import InputError

from ..simulation.faults import REPAIR_MEDIAN_S, REPAIR_SIGMA


@dataclass(frozen=True)
class Advice:
    """The better action and the tokens that each costs; a spare that comes within `break_even_s` is worth waiting for."""

    action: Literal["stay", "wait"]
    stay_tokens: float
    wait_tokens: float
    break_even_s: float


def stay_or_wait(
    full: float, degraded: float, spare_s: float, *, repair_median_s: float = REPAIR_MEDIAN_S, repair_sigma: float = REPAIR_SIGMA,
    down_hole_s: float = 0.3, up_hole_s: float = 0.0, join_s: float = 0.5,
) -> Advice:  # fmt: skip
    """Returns whether to go on with the survivors at `degraded` tokens per second or to stop until a spare comes after `spare_s` seconds.

    The holes are those of the technique that goes on: fractions of a second down and none up for failsafe, a restart each for
    restore-recompute. `join_s` is what a spare takes to serve once it is there. Rates are offered or served tokens per second.
    """
    for name, value in (("full", full), ("repair_median_s", repair_median_s)):
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name}: found {value}; expected more than 0")
    if not 0 <= degraded <= full:
        raise InputError(f"degraded: found {degraded}; expected 0 to {full}, what the whole node serves")
    for name, value in (("spare_s", spare_s), ("repair_sigma", repair_sigma), ("down_hole_s", down_hole_s), ("up_hole_s", up_hole_s),
                        ("join_s", join_s)):  # fmt: skip
        if not (math.isfinite(value) and value >= 0):
            raise InputError(f"{name}: found {value}; expected 0 or more")
    repair = repair_median_s * math.exp(repair_sigma**2 / 2)
    stay = full * (down_hole_s + up_hole_s) + (full - degraded) * repair
    wait = full * (spare_s + join_s)
    return Advice("wait" if wait < stay else "stay", stay, wait, max(0.0, stay / full - join_s))
