"""One-shot: probe both backends once, keep the winner.

The function serves on its first backend until `probes` requests were seen there, then on the other one, and stays where the mean latency
was lower; the GPU must be faster by `gap_ms`, because it costs more. Requests that waited for a pod to start do not count. The choice is
never revised, though a function whose GPU vanished runs on the CPU until the GPU is back. Defaults are the best of a sweep on training
draws.

A device is chosen once from a profile in most serverless platforms with GPUs: INFless, ASPLOS 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.arena import Technique, parameter
from armillary.kernels import loop

from .functions.curves import PRICES
from .simulation.policy import BACKEND, COUNT_ALL, CPU, GPU, MEAN_ALL_MS, ONE_SHOT, Policy

#: Places in the state, after the mode: the stage (0 probes the first backend, 1 the other one, 2 has decided), means by backend, choice.
_STAGE, _MEAN, _CHOICE = 1, 2, 4


@dataclass(frozen=True)
class OneShot(Technique):
    """Probes both backends once and keeps the faster one."""

    takes: ClassVar[frozenset[str]] = frozenset({"requests"})

    probes: int = parameter(2, "requests that a backend is judged by", range=(1, 100_000))
    gap_ms: float = parameter(200.0, "how much faster the GPU must be on average", range=(0.0, 1e9))
    interval_s: float = parameter(30.0, "seconds between two looks", range=(1.0, 1e6))

    def policy(self, prices: tuple[float, float] = PRICES) -> Policy:
        """The procedure inside the compiled loop."""
        return Policy(ONE_SHOT, np.array([float(self.probes), self.gap_ms]), interval_s=self.interval_s)


@loop
def decide(settings, state, view):  # type: ignore[no-untyped-def]
    """The backend that the function should be on."""
    cur = int(view[BACKEND])
    if state[_STAGE] == 0:
        state[_CHOICE] = cur
        if view[COUNT_ALL] >= settings[0]:
            state[_STAGE], state[_MEAN + cur], state[_CHOICE] = 1.0, view[MEAN_ALL_MS], 1 - cur
    elif state[_STAGE] == 1 and cur == state[_CHOICE] and view[COUNT_ALL] >= settings[0]:
        state[_STAGE], state[_MEAN + cur] = 2.0, view[MEAN_ALL_MS]
        state[_CHOICE] = GPU if state[_MEAN + GPU] + settings[1] < state[_MEAN + CPU] else CPU
    return int(state[_CHOICE])
