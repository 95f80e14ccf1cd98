"""What every technique gives: scores of hosts for VMs, and from them ranked lists with a mask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .fleet import Floats, Ints
from .state import State

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Recommended:
    """For each VM all hosts from best to worst, whether each is worth the move, and the gain of QoS that is promised; [vms, hosts]."""

    hosts: Ints
    keep: Bools
    gain: Floats


class Ranker:
    """Scores hosts for VMs by what a state shows; higher is better."""

    #: Whether scores are predictions of QoS.
    predicts = False
    #: A predicted gain must be larger than this for a move.
    margin = 0.0

    def scores(self, state: State, vms: Ints) -> Floats:
        """[vms, hosts]; a VM's own host is scored without it."""
        raise NotImplementedError

    def new_scores(self, state: State, vms: Ints) -> Floats:
        """The same for VMs that are on no host yet, which have the features of `vms`."""
        return self.scores(state, vms)

    def look(self, hour: int) -> None:
        """Tells an oracle which hour comes next; others may not know."""

    def recommend(self, state: State, vms: Ints) -> Recommended:
        """Ranks all hosts for each of some placed VMs."""
        found = self.scores(state, vms)
        own = state.host[vms]
        rows = np.arange(len(vms))
        if self.predicts:
            gain = found - found[rows, own][:, None]
            keep = gain > self.margin
        else:
            # Who predicts nothing promises that nobody interferes.
            gain = np.broadcast_to((1.0 - state.qos[vms])[:, None], found.shape)
            keep = np.ones(found.shape, bool)
        keep = keep & (np.arange(found.shape[1])[None, :] != own[:, None])
        return ranked(found, keep, gain)


def ranked(scores: Floats, keep: Bools, gain: Floats) -> Recommended:
    """Hosts by falling score, equal ones by number."""
    order = np.argsort(-scores, axis=1, kind="stable")
    return Recommended(order, np.take_along_axis(keep, order, 1), np.take_along_axis(gain, order, 1))
