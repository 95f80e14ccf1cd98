"""The trained predictor without PyTorch: calibrated probabilities of proposed quotas, tokens for the decider, and slopes for the shield."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.learn import Platt
from armillary.learn.fused import FusedAttention, lstm_rows
from armillary.scheduling.microservices.application.application import Application
from armillary.scheduling.microservices.simulation.window import Floats

from .features import PROPOSED, Floats32, Observed


class Predictor:
    """P(violation in the next window) and P(violation within five), of an application."""

    def __init__(self, parts: Any, app: Application, relations: bool = True) -> None:
        lstm = parts["lstm"]
        self._lstm, self._hidden = lstm.compiled, lstm.config.hidden
        self._attention = FusedAttention(parts["attention"])
        (a1, b1), (a5, b5) = np.asarray(parts["platt"], np.float64)
        self._platt = Platt(float(a1), float(b1)), Platt(float(a5), float(b5))
        self._kinds, self._edges = app.kinds, app.edges if relations else np.full_like(app.edges, -1)

    def remembered(self, history: Floats32) -> Floats32:
        """What the LSTM makes of histories [..., windows, facts]; it does not depend on what is proposed."""
        rows = np.ascontiguousarray(history.reshape(-1, *history.shape[-2:]), np.float32)
        out = np.empty((len(rows), self._hidden), np.float32)
        lstm_rows(*self._lstm, rows, out, np.empty(5 * self._hidden, np.float32))
        return out.reshape(*history.shape[:-2], -1)

    def _inputs(self, remembered: Floats32, proposed: Floats32) -> Floats32:
        """Tokens of a batch of proposals [batch, services, 3], after one history [1, …] or one each."""
        many, services = proposed.shape[:2]
        tokens = np.empty((many, services, remembered.shape[-1] + PROPOSED), np.float32)
        tokens[..., :-PROPOSED], tokens[..., -PROPOSED:] = remembered, proposed
        return tokens

    def calibrated(self, logits: Any) -> Floats:
        """Probabilities [batch, 2] of logits."""
        return np.stack([platt(logits[:, k]) for k, platt in enumerate(self._platt)], -1)

    def probabilities(self, remembered: Floats32, proposed: Floats32) -> Floats:
        """[batch, 2] of proposals [batch, services, 3] after one history, or after one history each."""
        return self.tokens(remembered, proposed)[1]

    def tokens(self, remembered: Floats32, proposed: Floats32) -> tuple[Floats32, Floats]:
        """(tokens after all blocks [batch, services, 64], probabilities [batch, 2])."""
        found, logits = self._attention.both(self._inputs(remembered, proposed), self._kinds, self._edges)
        return found, self.calibrated(logits)

    def slopes(self, seen: Observed, remembered: Floats32, quotas: Floats) -> Floats:
        """The derivative of the larger probability with respect to the logarithm of each quota, [services]."""
        tokens = self._inputs(remembered, seen.proposed(quotas)[None])
        both = self.calibrated(self._attention(tokens, self._kinds, self._edges))[0]
        which = int(both.argmax())
        slope = self._attention.slope(tokens[0], self._kinds, self._edges, which)[:, -PROPOSED:]
        p = float(both[which])
        return seen.slope_of(quotas, slope.astype(np.float64)) * self._platt[which].a * p * (1 - p)
