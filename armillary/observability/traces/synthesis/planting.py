"""Knobs that cost a wanted share of the device time, and what each knob of a program really costs.

The truth about a cause is a difference of two simulations: the share of the elapsed time that is gone when the knob alone is left out. It
depends on no rule by which a technique names causes.
"""

from __future__ import annotations

from .programs import CAUSES, Design, simulated

#: The largest value of each knob that is tried.
_MOST = {
    "imbalance": 0.9, "transfers": 40e6, "communication": 40e6, "launch": 1e6, "host": 80e6, "sync": 1e6,
}  # fmt: skip


def costs(design: Design, seed: int) -> dict[str, float]:
    """The share of the elapsed time that each cause costs."""
    whole = simulated(design, seed).elapsed
    return {cause: 1.0 - simulated(design.without(cause), seed).elapsed / whole if getattr(design, cause) else 0.0 for cause in CAUSES}


def planted(design: Design, cause: str, share: float, seed: int) -> Design:
    """The program with the knob `cause` turned so far that it costs `share` of the elapsed time, as nearly as 0.05 points."""
    without = simulated(design.without(cause), seed).elapsed
    low, high = 0.0, _MOST[cause]
    for _ in range(40):
        middle = (low + high) / 2
        made = design.having(cause, middle)
        found = 1.0 - without / simulated(made, seed).elapsed
        if abs(found - share) < 0.0005:
            break
        low, high = (middle, high) if found < share else (low, middle)
    return made
