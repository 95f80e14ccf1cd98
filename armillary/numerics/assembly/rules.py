"""Rules of thumb, with thresholds set by hand from what each strategy costs; nothing is learned.

Colours jump through memory and need a launch each, and rows computed again cost their flops as often as an element has nodes: both pay
only where many threads would each need a copy of the values and no node has many elements. With few threads it is copies against parts:
heavy elements or values that fit the cache hide the copies (`scatter-atomic`), else parts that fit it (`blocked`). The kind of advice
that is found in Markall and others, Finite element assembly strategies on multi-core and many-core architectures, International Journal for
Numerical Methods in Fluids 71, 2013.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.parameters import parameter

from .assembling.strategy import Problem, Strategy, strategy
from .selecting.features import features
from .selecting.selector import Selector
from .selecting.table import Seconds


@dataclass(frozen=True)
class Rules(Selector):
    """Hand-made thresholds on a few features."""

    cache_bytes: float = parameter(1e6, "the number of values that fit the cache of a core", range=(1e3, 1e12))
    heavy_flops: float = parameter(2000.0, "flops per element from which on copies do not count", range=(1, 1e9))
    many_threads: int = parameter(
        16, "the number of threads from which on one copy of the values per thread is too much", range=(1, 100_000)
    )
    hub: float = parameter(64.0, "the valence from which on colours and rows are uneven", range=(1, 1e9))

    def pick(self, problem: Problem, family: str, seconds: Seconds | None = None) -> Strategy:
        found = features(problem)
        flops, matrix, valence = (np.expm1(found[name]) for name in ("flops per element", "matrix bytes", "valence most"))
        if found["threads"] >= self.many_threads and valence < self.hub:
            return strategy("row-gather" if flops < self.heavy_flops / problem.element.nodes else "coloured")
        return strategy("scatter-atomic" if flops > self.heavy_flops or matrix < self.cache_bytes else "blocked")
