"""Chooses the device of an arriving request: in turn, or where its tokens' experts are as long as load allows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..planning.placement import ExpertPlacement
from ..routing.trace import RoutingTrace

#: The most tokens on a device over the mean, and how fast the weight of load rises and falls to keep it.
IMBALANCE, UP, DOWN = 1.15, 1.5, 0.97


class ByScore:
    """Chooses the device with the highest score − μ·(its load − mean load) / batch, with loads in tokens.

    A full device has `batch` tokens. μ grows while a device exceeds the mean by more than 15 % of that, and shrinks otherwise, so that
    locality gets what balance leaves.
    """

    def __init__(self, placement: ExpertPlacement, batch: float) -> None:
        self.placement, self.batch = placement, max(batch, 1.0)
        self.load = np.zeros(placement.devices)
        self.weight = 1.0

    def pick(self, token_ids: npt.ArrayLike, tokens: float) -> int:
        """Returns the device for a request with this prompt and `tokens` tokens in total."""
        over = (self.load - self.load.mean()) / self.batch
        value = self.placement.scores(token_ids) - self.weight * over
        # A device that is too full takes nothing, so the limit is exceeded by less than one request.
        value[over > IMBALANCE - 1] = -np.inf
        best = int(np.argmax(value))
        self.load[best] += tokens
        uneven = float(self.load.max() - self.load.mean()) / self.batch
        self.weight = float(np.clip(self.weight * (UP if uneven > IMBALANCE - 1 else DOWN), 1e-3, 1e3))
        return best

    def done(self, device: int, tokens: float) -> None:
        """Records that a request has left."""
        self.load[device] -= tokens


def assign(trace: RoutingTrace, placement: ExpertPlacement, wave: int, *, by_score: bool) -> npt.NDArray[np.int64]:
    """Returns the device of each request, `wave` requests at a time; all requests of a wave leave before the next wave arrives."""
    requests, devices = trace.requests, placement.devices
    if not by_score:
        return np.arange(requests) % wave % devices
    edges = np.searchsorted(trace.request, np.arange(requests + 1))
    length = np.diff(edges).astype(float)
    router = ByScore(placement, float(length.mean()) * wave / devices)
    found = np.empty(requests, np.int64)
    for start in range(0, requests, wave):
        mine = range(start, min(start + wave, requests))
        for r in mine:
            prompt = trace.token_id[edges[r] : edges[r] + trace.prompt[r]]
            found[r] = router.pick(prompt, length[r])
        for r in mine:
            router.done(int(found[r]), length[r])
    return found
