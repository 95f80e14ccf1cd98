"""Which device takes a request when it comes: in turn, or where its tokens' experts are, as long as load allows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..planning.placement import ExpertPlacement
from ..routing.trace import RoutingTrace

#: Most tokens on a device over the mean, and how fast the weight of load goes up and down to keep to it.
IMBALANCE, UP, DOWN = 1.15, 1.5, 0.97


class ByScore:
    """The device with the highest score − μ·(its load − mean load) / batch; loads in tokens, μ follows the imbalance.

    batch: tokens that a device has when it is full. μ grows while a device has more than 15 % of that above the mean, and shrinks
    otherwise, so that locality gets what balance leaves.
    """

    def __init__(self, placement: ExpertPlacement, batch: float) -> None:
        self.placement, self.batch = placement, max(batch, 1.0)
        self.load = np.zeros(placement.devices)
        self.weight = 1.0

    def pick(self, token_ids: npt.ArrayLike, tokens: float) -> int:
        """The device for a request with this prompt, which will have `tokens` tokens in all."""
        over = (self.load - self.load.mean()) / self.batch
        value = self.placement.scores(token_ids) - self.weight * over
        # A device that is too full takes nothing; so the limit is passed by less than one request.
        value[over > IMBALANCE - 1] = -np.inf
        best = int(np.argmax(value))
        self.load[best] += tokens
        uneven = float(self.load.max() - self.load.mean()) / self.batch
        self.weight = float(np.clip(self.weight * (UP if uneven > IMBALANCE - 1 else DOWN), 1e-3, 1e3))
        return best

    def done(self, device: int, tokens: float) -> None:
        """Notes that a request has left."""
        self.load[device] -= tokens


def assign(trace: RoutingTrace, placement: ExpertPlacement, wave: int, *, by_score: bool) -> npt.NDArray[np.int64]:
    """[requests] the device of each, `wave` requests at a time: all of a wave have left before the next comes."""
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
