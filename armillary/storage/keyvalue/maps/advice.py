"""Which map is fastest for my keys and my queries, measured here and now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown
from armillary.timing import Stopwatch, timed

from ..tables.keys import as_keys
from ..tables.map import Map, Table
from ..workload import own_work
from .simd_map import MOST_LOAD


@dataclass(frozen=True)
class MapAdvice:
    """The fastest technique, its table (ready to use: bits in, bits out), and what all of them measured."""

    name: str
    technique: Map
    table: Table
    lookups_per_s: Mapping[str, float]
    inserts_per_s: Mapping[str, float]
    bytes_per_key: Mapping[str, float]
    skipped: Mapping[str, str]


def best_map(
    keys: Any, sample_queries: Any, values: Any = None, *, load: float = 0.8, techniques: Iterable[str] | None = None, passes: int = 3
) -> MapAdvice:
    """Builds every technique's table of these keys, asks it these queries, and returns the one with the most lookups per second.

    `techniques` are names of the arena, by default all. The median of `passes` passes counts, after one that compiles. All answers
    are compared with each other. A technique whose package is not installed is skipped, by name.
    """
    from ..arena import keyvalue

    names = list(keyvalue.techniques if techniques is None else techniques)
    for name in names:
        if name not in keyvalue.techniques:
            raise unknown("technique", name, keyvalue.techniques, where="techniques")
    if not names or passes < 1:
        raise InputError(f"found {len(names)} techniques and {passes} passes; expected at least one of each", where="best_map")
    if not 0 < load <= MOST_LOAD:
        raise InputError(f"found {load}; expected above 0 and at most {MOST_LOAD}", where="load")
    work = own_work(as_keys(keys), values, as_keys(sample_queries))
    if not len(work.queries):
        raise InputError("found no queries; expected a sample of them", where="sample_queries")
    speeds: dict[str, float] = {}
    built: dict[str, tuple[Any, Table]] = {}
    inserts, sizes, skipped = {}, {}, {}
    first: tuple[np.ndarray, np.ndarray] | None = None
    for name in names:
        technique: Any = keyvalue.make(name)
        try:
            technique.build(work.keys[:3], work.values[:3], load).get_many(work.queries[:3])
        except InputError as missing:
            skipped[name] = missing.message
            continue
        with Stopwatch() as watch:
            table = technique.build(work.keys, work.values, load)
        inserts[name] = len(work.keys) / watch.seconds
        answers = table.get_many(work.queries)
        if first is None:
            first = answers
        elif not all(np.array_equal(mine, theirs) for mine, theirs in zip(answers, first)):
            raise RuntimeError(f"{name} and {next(iter(speeds))} answer differently")
        speeds[name] = len(work.queries) / timed(partial(table.get_many, work.queries), min_seconds=0.0, min_calls=passes).median
        sizes[name] = table.nbytes / max(1, len(work.keys))
        # Only the leader's table is kept: memory for two, not for all.
        if speeds[name] == max(speeds.values()):
            built = {name: (technique, table)}
    if not speeds:
        raise InputError(f"found none that could be tried ({'; '.join(skipped.values())}); expected one", where="techniques")
    winner = max(speeds, key=speeds.__getitem__)
    return MapAdvice(winner, *built[winner], speeds, inserts, sizes, skipped)
