"""The state of a play, as arrays that the compiled loop changes in place."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from armillary.scheduling.functions.knowledge.store import records
from armillary.scheduling.functions.problem.fleet import Floats, Ints
from armillary.scheduling.functions.workload import FunctionsWork

#: Seconds for which an idle pod is kept, as scheduling/keepalive's static-60 does.
KEEP_S = 60.0
#: A pod's memory is at least this, which bounds how many a node can hold.
LEAST_MB = 64.0
#: The progress at which a run reaches its peak of memory (ours).
PEAK_AT = 0.5
#: Shares of the expected time at which a running call is looked at.
CHECKS = (0.25, 0.5, 0.75)


_WHOLE, _REAL = np.int64, np.float64


def _kind(whole: str, real: str) -> np.dtype[Any]:
    return np.dtype([*((name, _WHOLE) for name in whole.split()), *((name, _REAL) for name in real.split())], align=True)


#: Calls as they come: `told` is the input size that planners are told, `place` and `try` are draws of the technique's own stream.
_CALL = _kind("function", "arrival deadline input told noise stolen peak place try_")
#: Functions: whether they are memory-bound, the size and memory of their owners, and the truth about the least size (−1 for none).
_FUNCTION = _kind("bound user least", "parallel cold user_mb median least_mb")
#: Nodes: free cores, memory of running and of idle pods, cores of memory-bound calls, how many run, the time of the next event, and the
#: ends of the list of idle pods, by the time since which they idle.
_NODE = _kind("running oldest newest", "free busy_mb idle_mb bound next")
#: Pods, busy or idle. Idle ones are in two lists: all of their node by age, and those of their function there.
_POD = _kind("function older newer down up unused", "memory since born")
#: Calls from their start on. `step` is the index of their size, `start` that of the last attempt, `begin` that of its execution after a
#: cold start. `progress` holds at the time `at`, and `time` is that of the whole execution as things stand. `expected` is −1 for nothing
#: expected, `look` counts CHECKS, `since` is the last change of size, `late` is 1 for best effort, and `promise` is the time from arrival
#: to end that was promised at the start.
_RUN = _kind(
    "node step pod look raised attempts late cold", "start begin progress at time expected since least_mb end core_s money promise"
)  # fmt: skip
#: Entries of heaps, and per function how many there are, whether its head must wait, and when the head should come.
_ENTRY = _kind("call", "key")
_QUEUE = _kind("count blocked", "order")
#: Per function: runs, runs since when the estimates are right, when they had converged (−1), and sums of times for those who promise none.
_TOTAL = _kind("runs streak converged many", "spent")


class Given(NamedTuple):
    """What the loop reads: calls, functions and nodes."""

    calls: Any
    functions: Any
    seconds: Floats  # [f, t, k], alone
    serial: Floats  # [f, t]: CPU seconds of one call
    kind: Ints  # [node]
    cores: Floats  # [t]
    memory: Floats  # [t]
    price: Floats  # [t]
    sizes: Floats  # [k]
    first: Ints  # [f + 1]: where a function's calls begin, when they are grouped by function
    standard: int
    contention: float


class State(NamedTuple):
    """What the loop changes."""

    nodes: Any  # [node]
    slot: Ints  # [node, slot]: calls that run
    head: Ints  # [node, f]: the idle pod that was used last
    pods: Any
    runs: Any  # [call]
    heap: Any  # [call + call]: one heap per function, and one of calls that run last
    queues: Any  # [f + 1]
    totals: Any  # [f]
    memory: Floats  # [1]: MB·s
    counts: Ints  # [5]: see below
    room: Floats  # [4, t], and costs of pairs, both for one decision
    costs: Floats  # [2, t, k]


#: What `counts` counts: calls that wait, unused pods, killed runs, decisions, and the turn of round-robin.
WAITING, UNUSED, KILLED, DECISIONS, TURN = range(5)


def calls(work: FunctionsWork, rng: np.random.Generator) -> Any:
    """The calls of a work."""
    c = work.calls
    out = records(_CALL, len(c))
    out.function, out.arrival, out.deadline, out.input = c.function, c.arrival_s, c.deadline_s, c.size
    out.told = c.size if work.sizes_known else 1.0
    out.noise, out.stolen, out.peak = c.noise, c.stolen, c.peak_mb
    out.place, out.try_ = rng.random((2, len(c)))
    return out


def functions(work: FunctionsWork, user: Ints, least: Ints, least_mb: Floats) -> Any:
    """The functions of a work, with their owners' sizes and the truth about the least ones."""
    out = records(_FUNCTION, len(work.profiles))
    out.bound = [int(profile.memory_bound) for profile in work.profiles]
    out.parallel = [profile.parallel_fraction for profile in work.profiles]
    out.cold = [profile.cold_s for profile in work.profiles]
    out.user, out.least, out.least_mb = user, least, least_mb
    out.user_mb, out.median = work.user_mb, work.median_deadline()
    return out


def idle(work: FunctionsWork) -> State:
    """Nothing runs, and nobody waits.

    There is room for one pod per call: a call has one while it runs and leaves at most one behind.
    """
    kind = work.fleet.node_type
    n, f, c = len(kind), len(work.profiles), len(work.calls)
    cores = work.fleet.each("cores")[kind]
    nodes = records(_NODE, n)
    nodes.free, nodes.next, nodes.oldest, nodes.newest = cores, np.inf, -1, -1
    slots = min(int(cores.max() / work.sizes.min()), c) + 1
    held = int(min((work.fleet.each("memory_mb")[kind] // LEAST_MB).sum() + n, c)) + 1
    pods = records(_POD, held)
    pods.unused = np.arange(held)[::-1]
    runs = records(_RUN, c)
    runs.node, runs.step, runs.pod, runs.expected, runs.end = -1, -1, -1, -1.0, -1.0
    totals = records(_TOTAL, f)
    totals.converged = -1
    counts = np.zeros(5, np.int64)
    counts[UNUSED] = held
    return State(
        nodes, np.full((n, slots), -1, np.int64), np.full((n, f), -1, np.int64), pods, runs, records(_ENTRY, 2 * c), records(_QUEUE, f + 1),
        totals, np.zeros(1), counts, np.zeros((4, len(work.fleet.types))), np.zeros((2, len(work.fleet.types), len(work.sizes))),
    )  # fmt: skip
