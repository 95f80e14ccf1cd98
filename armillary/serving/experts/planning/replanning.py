"""Places again when routing has changed so much that fewer tokens stay at home than the placement promised (our design)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..routing.trace import RoutingTrace
from ..simulation.dispatch import assign
from ..simulation.traffic import count_traffic
from .placement import ExpertPlacement
from .technique import ExpertTechnique

#: Below this share of the forecast the experts are placed again.
DROP = 0.9


def local_rate(placement: ExpertPlacement, trace: RoutingTrace, wave: int, *, by_score: bool = True) -> float:
    """Returns the share of (token, expert) pairs at home when a trace's requests are dispatched `wave` at a time (Attention-DP)."""
    source = assign(trace, placement, wave, by_score=by_score)[trace.request]
    step = np.zeros(len(trace), np.int64)
    found = [count_traffic(placement, layer, trace.chosen[layer], step, source, 1) for layer in range(trace.layers)]
    return sum(one.local for one in found) / sum(one.activations for one in found)


@dataclass
class Replanning:
    """Watches a technique's placement: `served` is told of every wave, and places again if the local rate is 10 % below the forecast.

    It learns from four fifths of what was seen, and the forecast is the local rate on the rest. A new placement is learnt from the last
    `memory` waves. `plans` counts the placements, including the first.
    """

    technique: ExpertTechnique
    seen: RoutingTrace
    devices: int
    wave: int
    memory: int = 4
    plans: int = 0
    placement: ExpertPlacement = field(init=False)
    forecast: float = field(init=False)

    def __post_init__(self) -> None:
        self._recent: list[RoutingTrace] = []
        self._place(self.seen)

    def _place(self, trace: RoutingTrace) -> None:
        # The requests from which it learnt would promise too much.
        cut = trace.requests - max(1, trace.requests // 5)
        learnt, last = trace.take(np.arange(cut)), trace.take(np.arange(cut, trace.requests))
        self.placement = self.technique.place(learnt, self.devices)
        self.forecast = local_rate(self.placement, last, min(self.wave, last.requests), by_score=self.technique.by_score)
        self.plans += 1

    def served(self, trace: RoutingTrace) -> float:
        """Returns the local rate of a wave that has been served; afterwards the placement may be a new one."""
        found = local_rate(self.placement, trace, self.wave, by_score=self.technique.by_score)
        self._recent = [*self._recent, trace][-self.memory :]
        if found < DROP * self.forecast:
            self._place(joined(self._recent))
        return found


def joined(traces: list[RoutingTrace]) -> RoutingTrace:
    """Returns one trace of all requests, in order."""
    first = np.cumsum([0, *(trace.requests for trace in traces)])
    return RoutingTrace(
        np.concatenate([t.token_id for t in traces]), np.concatenate([t.position for t in traces]),
        np.concatenate([t.request + start for t, start in zip(traces, first.tolist(), strict=False)]).astype(np.int32),
        np.concatenate([t.chosen for t in traces], axis=1), traces[0].experts, np.concatenate([t.prompt for t in traces]),
    )  # fmt: skip
