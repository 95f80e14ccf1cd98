"""Miss ratio over cache size for any policy, from a sample of the objects.

Spatial sampling (SHARDS) keeps the requests of those objects whose hashed id falls below `rate`, and replays them through caches
that are smaller by the same factor. Which objects are kept depends on their ids alone, so either all requests for one object are
kept or none, and reuse looks the same at the smaller scale. A sample of 1 % of the objects is off by one or two hundredths of the miss
ratio where the scaled cache still has some hundred objects; `rate=1` is exact.

Requests are not spread as evenly as objects. Where the sample has fewer requests than rate·n, it lacks popular objects, which
would have hit. Therefore misses are divided by rate·n and not by the requests of the sample (the authors' correction).

C. A. Waldspurger, N. Park, A. Garthwaite, I. Ahmad: Efficient MRC construction with SHARDS. FAST 2015; scaled-down simulation of
any policy: C. Waldspurger, T. Saemundsson, I. Ahmad, N. Park: Cache modeling and optimization using miniature simulations. USENIX
ATC 2017.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError

from ..simulation.policy import LOOKUP, Policy
from ..workload import Block, Trace, from_ids


@dataclass(frozen=True)
class MissRatioCurve:
    """The miss ratio of one policy at several cache sizes (objects, or bytes where the trace has sizes)."""

    policy: Policy
    sizes: tuple[int, ...]
    miss_ratios: tuple[float, ...]
    #: Share of the objects that was replayed; 1 is exact.
    rate: float

    def table(self) -> Any:
        """A Polars table with columns policy, size, miss_ratio."""
        import polars

        name = type(self.policy).__name__
        return polars.DataFrame({"policy": [name] * len(self.sizes), "size": self.sizes, "miss_ratio": self.miss_ratios})


def miss_ratio_curve(
    policy: Policy, trace: Any, sizes: Sequence[int] | None = None, *, rate: float = 0.01, seed: int = 0
) -> MissRatioCurve:
    """The miss ratio of `policy` at each cache size in `sizes`, estimated from a share `rate` of the objects.

    `trace` is a trace, blocks of one, or ids; sizes default to sixteen from a thousandth of the distinct objects (or bytes) to all.
    """
    return _curve(policy, _sample(trace, rate, seed), sizes)


def best_policy(
    trace: Any, size: int, policies: Mapping[str, Policy] | None = None, *, rate: float = 0.01, seed: int = 0
) -> tuple[str, dict[str, float]]:
    """The name of the policy that misses least at this cache size, and the estimated miss ratio of each, best first.

    `policies` defaults to all policies of the arena that do not see the future, with their default parameters.
    """
    if policies is None:
        from ..arena import eviction

        made = {name: eviction.make(name) for name in eviction.techniques}
        policies = {name: policy for name, policy in made.items() if isinstance(policy, Policy) and not policy.oracle}
    sample = _sample(trace, rate, seed)
    ratios = {name: _curve(policy, sample, [size]).miss_ratios[0] for name, policy in policies.items()}
    ranked = dict(sorted(ratios.items(), key=lambda item: item[1]))
    return next(iter(ranked)), ranked


def plot(curves: Iterable[MissRatioCurve]) -> Any:
    """A Plotly figure of several curves, cache size on a logarithmic axis."""
    from armillary.figures import figure, looks

    drawn = {type(curve.policy).__name__: curve for curve in curves}
    styles = looks(drawn)
    made = figure("Miss ratio over cache size", "cache size", "miss ratio", log_x=True)
    for name, curve in drawn.items():
        look = styles[name]
        line, marker = {"color": look.color, "dash": look.dash}, {"symbol": look.symbol, "size": 7}
        made.add_scatter(x=curve.sizes, y=curve.miss_ratios, mode="lines+markers", name=name, line=line, marker=marker)
    return made.update_yaxes(rangemode="tozero")


@dataclass(frozen=True)
class _Sample:
    trace: Trace
    #: Lookups and distinct objects (or the bytes of them) of the whole trace.
    lookups: int
    total: int
    rate: float


def _curve(policy: Policy, sample: _Sample, sizes: Sequence[int] | None) -> MissRatioCurve:
    if sizes is None:
        sizes = sorted({max(1, round(sample.total * 10 ** (-3 + k / 5))) for k in range(16)})
    ratios = []
    for size in sizes:
        policy.checked(size)
        misses = policy.simulate(sample.trace, max(1, round(size * sample.rate)), log=False, keep_hits=False).misses
        ratios.append(min(1.0, misses / (sample.lookups * sample.rate)) if sample.lookups else 0.0)
    return MissRatioCurve(policy, tuple(int(size) for size in sizes), tuple(ratios), sample.rate)


def _sample(trace: Any, rate: float, seed: int) -> _Sample:
    """The requests of a share `rate` of the objects, renumbered; blocks are read one at a time."""
    if not (isinstance(rate, int | float) and math.isfinite(rate) and 0 < rate <= 1):
        raise InputError(f"found rate={rate!r}; expected a share above 0, at most 1")
    if not isinstance(trace, Trace) and not _streams(trace):
        trace = from_ids(trace)
    parts: list[tuple[np.ndarray, np.ndarray | None, np.ndarray | None]] = []
    number = np.zeros(0, np.int32)
    distinct = lookups = total = 0
    for block in trace.blocks() if isinstance(trace, Trace) else trace:
        new = np.arange(len(number), block.distinct)
        kept = _hash(new if block.keys is None else block.keys[len(number) :], seed) < np.uint64(min(rate * 2**32, 2**32))
        numbers = np.where(kept, distinct + np.cumsum(kept) - 1, -1).astype(np.int32)
        total += _footprint(block, len(number))
        number = np.concatenate([number, numbers])
        distinct += int(kept.sum())
        chosen = number[block.objects] >= 0
        parts.append((number[block.objects[chosen]], *(None if a is None else a[chosen] for a in (block.sizes, block.operations))))
        lookups += len(block) if block.operations is None else int(np.count_nonzero(block.operations == LOOKUP))
    objects, sizes, operations = ([array for part in parts if (array := part[k]) is not None] for k in range(3))
    sample = Trace(
        np.concatenate(objects) if objects else np.zeros(0, np.int32),
        distinct,
        np.concatenate(sizes) if sizes else None,
        np.concatenate(operations) if operations else None,
    )
    return _Sample(sample, lookups, total, float(rate))


def _streams(trace: Any) -> bool:
    """Whether `trace` gives blocks rather than ids."""
    return hasattr(trace, "__next__") or (isinstance(trace, Sequence) and len(trace) > 0 and isinstance(trace[0], Block))


def _footprint(block: Trace, known: int) -> int:
    """New distinct objects of the block, or the bytes of their first requests."""
    if block.sizes is None:
        return block.distinct - known
    objects, first = np.unique(block.objects, return_index=True)
    return int(block.sizes[first[objects >= known]].sum())


def _hash(keys: np.ndarray, seed: int) -> np.ndarray:
    """uint64 in [0, 2^32) for each key: SplitMix64."""
    with np.errstate(over="ignore"):
        z = keys.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))) >> np.uint64(32)
