"""What a technique decides, in a form that the compiled loop follows."""

from __future__ import annotations

from typing import NamedTuple

#: Who sizes a call: its owner (misjudged), a tuned or generous owner, the largest size, or a choice per call.
OWNER, TUNED, TIGHT, LARGEST, CHOSEN = range(5)
#: Where a call goes if it is not chosen with the size.
LEAST_LOADED, RANDOM, ROUND_ROBIN, FIRST_FIT = range(4)
#: Who is next.
FIRST_COME, EARLIEST_DEADLINE, LATEST_START = range(3)
#: What a choice rests on: learned from live runs, an offline profile, or the truth about each call.
LEARNED, PROFILED, TRUTH = range(3)


class Policy(NamedTuple):
    """One technique's rules; the flags are parts of DHRT that can be left out."""

    size: int = OWNER
    place: int = LEAST_LOADED
    order: int = FIRST_COME
    knowledge: int = LEARNED
    z: float = 1.65
    counters: bool = True
    node_factors: bool = True
    learn_memory: bool = False
    raise_quota: bool = False
    admission: bool = False
    explore: float = 0.0
    #: Seconds between looks at the queue, 0 for none.
    look_s: float = 0.0
    #: For given sizes: a call runs last once this many times its time alone on a standard node no longer fits; negative for never.
    give_up: float = -1.0
