"""How features are scaled for the towers: to mean 0 and deviation 1, and cut, because cross layers multiply what is far out by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: Deviations from the mean at which a feature is cut (ours).
MOST = 3.0


def standardised(x: npt.NDArray[Any], mean: npt.NDArray[np.float32], scale: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """(x − mean)/scale within ±3."""
    found = np.asarray((x - mean) / scale, np.float32)
    return np.minimum(np.maximum(found, -MOST), MOST)
