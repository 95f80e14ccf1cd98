"""Rules of thumb, thresholds set by hand from what each strategy pays for; nothing is learned.

Colours jump through memory and need a launch each, and rows computed again cost their flops as often as an element has nodes: both pay
only where many threads would each need a copy of the values and no node has many elements. With few threads it is copies against parts:
heavy elements or values that fit the cache hide the copies (`scatter-atomic`), else parts that fit it (`blocked`). The kind of advice
that is found in Markall and others, Finite element assembly strategies on multi-core and many-core architectures, International Journal for
Numerical Methods in Fluids 71, 2013.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .features import features
from .selector import Selector
from .strategy import Problem, Strategy, strategy
from .table import Seconds


@dataclass(frozen=True)
class Rules(Selector):
    """Hand-made thresholds on a few features."""

    cache_bytes: float = field(default=1e6, metadata={"doc": "values that fit the cache of a core", "range": (1e3, 1e12)})
    heavy_flops: float = field(default=2000.0, metadata={"doc": "flops of an element beside which copies do not count", "range": (1, 1e9)})
    many_threads: int = field(
        default=16, metadata={"doc": "threads from which a copy of the values for each is too much", "range": (1, 100_000)}
    )
    hub: float = field(default=64.0, metadata={"doc": "valence from which colours and rows are uneven", "range": (1, 1e9)})

    def pick(self, problem: Problem, family: str, seconds: Seconds | None = None) -> Strategy:
        found = features(problem)
        flops, matrix, valence = (np.expm1(found[name]) for name in ("flops per element", "matrix bytes", "valence most"))
        if found["threads"] >= self.many_threads and valence < self.hub:
            return strategy("row-gather" if flops < self.heavy_flops / problem.element.nodes else "coloured")
        return strategy("scatter-atomic" if flops > self.heavy_flops or matrix < self.cache_bytes else "blocked")
