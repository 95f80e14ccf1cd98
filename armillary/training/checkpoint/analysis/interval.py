"""How often to checkpoint, after Young and Daly, from failures that were seen."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError


def young_daly_s(cost_s: float, mtbf_s: float) -> float:
    """Seconds between two checkpoints that cost `cost_s` each, if failures come every `mtbf_s` seconds on average.

    Young's √(2·cost·MTBF) with Daly's next terms, 1 + √(cost / 2·MTBF) / 3 + cost / 18·MTBF, less the cost; the MTBF itself where a
    checkpoint costs twice that or more. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, 2006.
    """
    if not 0 <= cost_s < math.inf or not 0 < mtbf_s < math.inf:
        raise InputError(f"found a cost of {cost_s} s and an MTBF of {mtbf_s} s; expected seconds of at least 0, and above 0")
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    share = cost_s / (2 * mtbf_s)
    return math.sqrt(2 * cost_s * mtbf_s) * (1 + math.sqrt(share) / 3 + share / 9) - cost_s


def mtbf_of(times_s: npt.ArrayLike, horizon_s: float) -> float:
    """Mean seconds between failures of a trace over `horizon_s` seconds; failures at one moment count once."""
    moments = np.unique(np.asarray(times_s, np.float64))
    return horizon_s / max(1, int(((moments >= 0) & (moments < horizon_s)).sum()))
