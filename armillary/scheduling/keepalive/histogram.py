"""Histogram: learn when a function comes back, let its pod go, and have it ready again just before.

Each function keeps a histogram of its idle times in minutes, over four hours. The 5th percentile, less 10 %, says when a pod is warmed
again, and the 99th, plus 10 %, until when it stays. A function with too many gaps beyond four hours, or whose counts vary too little to
say anything (CV at most 2), keeps its pod for four hours. The policy pre-warms, so it is no timer, and it is blind to carbon.

Serverless in the Wild: Characterizing and Optimizing the Serverless Workload at a Large Cloud Provider, USENIX ATC 2020. The
paper's time-series forecast for gaps beyond the histogram is left out here.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .simulation.decisions import HISTOGRAM
from .simulation.play import Policy
from .workload import KeepAliveWork


@dataclass(frozen=True)
class Histogram(Technique):
    """Pre-warms at the 5th and keeps to the 99th percentile of a function's idle times."""

    weighs = False

    def policy(self, work: KeepAliveWork) -> Policy:
        """Windows from each function's own minutes."""
        return Policy(HISTOGRAM)
