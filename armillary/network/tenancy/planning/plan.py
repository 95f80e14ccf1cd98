"""How many VNIs a cluster needs, and how long a released one may rest, so that hardly any job is refused.

A job holds a VNI from its submission until its end, and the VNI rests after that. The trace itself says how many are held or resting at
once, at most; that many refuse none of its jobs. Another trace of the same cluster has other peaks, so the plan also takes the busiest
hour as a Poisson stream and asks Erlang's formula for the least number c with

    B(c, a) = (a^c / c!) / sum_k a^k / k!  <=  rate,        a = arrivals per second × (mean time held + rest)

and gives the larger of the two. Batches that arrive at once are no Poisson stream; for them the trace's own peak decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError

from ..service.database import HIGHEST, LOWEST, QUARANTINE_S
from ..simulation.pods import Floats

if TYPE_CHECKING:
    from ..readers.traces import Trace

#: The refusal rate that is allowed, the window that counts as the busiest, and the shortest rest that outlives a pod's end.
RATE, WINDOW_S, SHORTEST_S = 1e-6, 3600.0, 31.0
LONGEST_S = 1e7


@dataclass(frozen=True)
class Plan:
    """What a trace needs."""

    #: VNIs for the rest that was asked for: by the trace's own peak, by Erlang's formula, and the larger of both.
    peak: int
    erlang: int
    needed: int
    #: Whether the range has that many.
    fits: bool
    #: The longest rest in seconds with which the range suffices; None if even the shortest is too long.
    longest_rest_s: float | None
    #: The share of the trace's jobs that the range refuses with the rest that was asked for, when they are played again.
    refused: float


def plan(
    trace: Trace, *, low: int = LOWEST, high: int = HIGHEST, quarantine_s: float = QUARANTINE_S, rate: float = RATE, start_s: float = 0.0
) -> Plan:
    """The plan for a trace of jobs that start `start_s` seconds after their submission; a claim's jobs count as jobs of their own."""
    if not 1 <= low <= high <= 65535:
        raise InputError(f"found {low} to {high}; expected a range within 1 to 65535", where="range")
    if not 0 <= quarantine_s <= LONGEST_S or not 0 < rate < 1 or not 0 <= start_s <= LONGEST_S:
        found = f"found a rest of {quarantine_s:g} s, a rate of {rate:g} and a start of {start_s:g} s"
        raise InputError(f"{found}; expected 0 to 1e7 s and 0 to 1")
    held = trace.run_s + start_s
    size = high - low + 1
    peak, erlang = most_at_once(trace.submit_s, held + quarantine_s), erlang_need(trace.submit_s, held + quarantine_s, rate)
    needed = max(peak, erlang)

    def suffices(rest_s: float) -> bool:
        both = most_at_once(trace.submit_s, held + rest_s), erlang_need(trace.submit_s, held + rest_s, rate)
        return max(both) <= size

    longest = _longest(suffices)
    return Plan(peak, erlang, needed, needed <= size, longest, refusals(trace.submit_s, held, quarantine_s, size) / len(trace))


def most_at_once(begin_s: Floats, lasts_s: Floats) -> int:
    """The most intervals that overlap; one that ends when another begins does not."""
    times = np.concatenate([begin_s, begin_s + lasts_s])
    steps = np.concatenate([np.ones(len(begin_s), np.int64), -np.ones(len(begin_s), np.int64)])
    order = np.lexsort((steps, times))
    return max(0, int(np.cumsum(steps[order]).max()))


def erlang_need(begin_s: Floats, lasts_s: Floats, rate: float, window_s: float = WINDOW_S) -> int:
    """The least number of VNIs with which Erlang's formula refuses at most `rate` of the arrivals of the busiest window."""
    ends = np.searchsorted(begin_s, begin_s + window_s, side="right")
    count = ends - np.arange(len(begin_s))
    first = int(count.argmax())
    load = float(count[first]) / window_s * float(lasts_s[first : first + int(count[first])].mean())
    blocked, servers = 1.0, 0
    while blocked > rate and servers < 10_000_000:
        servers += 1
        blocked = load * blocked / (servers + load * blocked)
    return servers


def refusals(begin_s: Floats, held_s: Floats, rest_s: float, size: int) -> int:
    """How many jobs find no VNI if those that are refused go away; the first that is ready is taken, as the service does."""
    from heapq import heappop, heappush

    ready: list[float] = [-np.inf] * min(size, len(begin_s))
    refused = 0
    for begin, held in zip(begin_s.tolist(), held_s.tolist()):
        if ready[0] > begin:
            refused += 1
        else:
            heappop(ready)
            heappush(ready, begin + held + rest_s)
    return refused


def _longest(fits: Callable[[float], bool]) -> float | None:
    if not fits(SHORTEST_S):
        return None
    low, high = SHORTEST_S, LONGEST_S
    if fits(high):
        return high
    while high - low > max(1.0, 1e-3 * low):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return float(np.floor(low))
