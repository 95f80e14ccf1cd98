"""What the decider sees of each service: the predictor's token, the two probabilities if quotas stay, and the trend of the load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .features import Floats32, Observed
from .predictor import Predictor

TOKEN = 64
#: Numbers of an observation.
INPUTS = TOKEN + 3


def observation(predictor: Predictor, seen: Observed, remembered: Any, foresight: bool = True) -> Floats32:
    """[1, services, 67] of one application, whose history the LSTM has read."""
    return _joined(predictor, [seen], remembered, foresight)


def observations(predictor: Predictor, seen: Sequence[Observed], foresight: bool = True) -> Floats32:
    """[copies, services, 67]."""
    return _joined(predictor, seen, predictor.remembered(np.stack([one.history() for one in seen])), foresight)


def _joined(predictor: Predictor, seen: Sequence[Observed], remembered: Any, foresight: bool) -> Floats32:
    proposed = np.stack([one.proposed(one.window.quotas) for one in seen])
    tokens, both = predictor.tokens(remembered, proposed)
    if not foresight:
        tokens, both = np.zeros_like(tokens), np.zeros_like(both)
    trend = np.array([[one.load_trend] for one in seen])
    wide = np.broadcast_to(np.concatenate([both, trend], 1)[:, None], (*proposed.shape[:2], 3))
    return np.concatenate([tokens, wide], -1).astype(np.float32)
