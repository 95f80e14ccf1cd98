"""Three hashes over two regions, 64-byte buckets probed by one vector comparison, nothing displaced.

A bucket is one cache line and one 512-bit register of keys. One comparison tells which lane holds the key, another which lanes are
free. A key has three candidate buckets: two in a large primary region, one in a small secondary region that only gets what the
primary could not take. The asymmetry keeps insertions from failing at high load: a key that fails twice meets a region that is
nearly empty. No chains, no locks, no displacement, so a lookup reads at most three lines of keys, mostly one.

From the paper: regions, three hashes, 512-bit probes, no displacement. Our design: the hash functions, the order of the candidates,
the early exit (a candidate with an EMPTY lane never turned a key away), the search in blocks of 128 whose lines are fetched together,
the stash with growth, tombstones and the parallel build.

Accelerating Key-Value Data Structures Using AVX-512 SIMD Extensions. IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from armillary.arena import Claim, Gain, Kind, Parity
from armillary.parameters import parameter

from .tables.bucket_map import BucketMap
from .tables.layout import LayoutName
from .tables.probe import isa

_HOST = isa()
_LAYOUTS = ("one-hash", "two-hash", "three-hash", "three-regions")
_LOADS = tuple(Kind("fill", f"load-{load}") for load in ("0.8", "0.85", "0.9", "0.95"))
_WIDE = None if _HOST == "AVX-512" else f"a processor with AVX-512 (this one has {_HOST})"
_SMALL = f"table that is smaller than 550 M entries ({_HOST})"
_WHY = "our own Robin Hood and Swiss tables in the same run instead of C++ libraries on the authors' machine"


@dataclass(frozen=True)
class Simd3(BucketMap):
    """Two hashes over a large region and one over a small one, 64-byte buckets, vector probes."""

    layout: ClassVar[LayoutName] = "simd3"
    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "insert_failure_rate", over=_LAYOUTS, by=Gain(difference=(0.0, None)), on=_LOADS,
            says="insertions fail least of all layouts at every load of 0.8 and more", source="section on layouts",
        ),
        Claim(
            "lookups_per_s", over="robin-hood", by=Gain(ratio=(4.0, 5.1)), on=Kind("speed", "miss-90", "full-size"), honest=(2.0, None),
            needs=_WIDE, scale="large", why=_WHY,
            says=f"90 % misses, 550 M entries: 4.0 to 5.1 times STL, Boost and Robin Hood maps ({_HOST})",
        ),
        Claim(
            "lookups_per_s", over="swiss", by=Gain(ratio=(2.0, 2.5)), on=Kind("speed", "miss-90", "full-size"), honest=(1.5, None),
            needs=_WIDE, scale="large", says=f"90 % misses, 550 M entries: 2.0 to 2.5 times TBB's and Abseil's maps ({_HOST})", why=_WHY,
        ),
        Claim(
            "lookups_per_s", over="robin-hood", by=Gain(ratio=(4.0, 5.1)), on=Kind("speed", "miss-90", "in-scale"), honest=(2.0, None),
            stand_in=_SMALL, says=f"90 % misses, the study's own table sizes: 4.0 to 5.1 times a Robin Hood map ({_HOST})", why=_WHY,
        ),
        Claim(
            "lookups_per_s", over="swiss", by=Gain(ratio=(2.0, 2.5)), on=Kind("speed", "miss-90", "in-scale"), honest=(1.5, None),
            stand_in=_SMALL, says=f"90 % misses, the study's own table sizes: 2.0 to 2.5 times a Swiss table ({_HOST})", why=_WHY,
        ),
        Claim(
            "inserts_per_s", over="swiss", by=Parity(within=0.06), on=Kind("speed"),
            needs="oneTBB's concurrent map, a C++ library: benchmarks/keyvalue_speed.py measures it where it is installed",
            says="insertions within 6 % of TBB's multithreaded map",
        ),
        Claim(
            "float32_over_float64", over="robin-hood", by=Parity(within=0.4), on=Kind("floats"),
            says=f"speed-ups over a Robin Hood map alike for 32- and 64-bit floats: their ratio within 0.7 to 1.4 ({_HOST})",
        ),
    )  # fmt: skip

    primary: float = parameter(0.9, "share of the buckets in the large region", range=(0.05, 0.99))
    insert: Literal["first-fit", "two-choice"] = parameter("first-fit", "two-choice fails more rarely, but a miss reads three lines")
    threads: int = parameter(1, "threads for build and lookups", range=(1, 1024))
