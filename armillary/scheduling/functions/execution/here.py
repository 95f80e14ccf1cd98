"""The case `here`: calls of four Python functions that really run on this machine's cores, with deadlines from their measured times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.scheduling.functions.fixed_least_loaded import FixedLeastLoaded
from armillary.scheduling.functions.planning.policy import TIGHT, TUNED
from armillary.scheduling.functions.problem.functions import smallest
from armillary.scheduling.functions.sockets.local_runner import LocalCall, LocalRunner, Ran
from armillary.scheduling.functions.workload import LOOSE
from armillary.scheduling.functions.workload import TIGHT as TIGHTEST

from .callables import digest, product, rest, touch

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "digest": (digest, (2000,)),
    "product": (product, (700, 12)),
    "rest": (rest, (0.2,)),
    "touch": (touch, (32, 100)),
}
#: Runs of each function at each size from which its time alone is the median.
TRIED = 3


@dataclass(frozen=True)
class HereWork:
    """Calls in the order of arrival; `sizes` in cores, `alone_s` `[function, size]` as measured, owners' sizes as in `FunctionsWork`."""

    cores: tuple[int, ...]
    sizes: tuple[float, ...]
    alone_s: np.ndarray[Any, np.dtype[np.float64]]
    calls: tuple[LocalCall, ...]
    user: tuple[int, ...]
    tuned: tuple[int, ...]
    tight: tuple[int, ...]


def drawn(rng: np.random.Generator, *, calls: int, load: float, cores: tuple[int, ...] | None = None) -> HereWork:
    """Times the functions on this machine, and draws Poisson arrivals at a load, deadlines and owners' misjudgements."""
    with LocalRunner(FixedLeastLoaded(), cores) as runner:
        sizes = tuple(float(v) for v in runner.allocator.sizes)
        timed = [
            [float(np.median([_alone(runner, name, v) for _ in range(TRIED + 1)][1:])) for v in sizes] for name in FUNCTIONS
        ]  # the first run imports
        have = runner.cores
    alone = np.array(timed)
    # As for the built-in functions: deadlines are multiples of the time with the most cores of which half are put to use.
    half = [max(k for k, v in enumerate(sizes) if alone[f, 0] / alone[f, k] >= 0.5 * v) for f in range(len(FUNCTIONS))]
    names = list(FUNCTIONS)
    which = rng.integers(0, len(names), calls)
    at = np.cumsum(rng.exponential(float(alone[:, 0].mean()) / (load * len(have)), calls))
    within = np.array([alone[f, half[f]] for f in which]) * rng.uniform(TIGHTEST, LOOSE, calls)
    tuned, tight = (
        tuple(smallest(alone[f], float(np.quantile(mine, share))) if len(mine := within[which == f]) else 0 for f in range(len(names)))
        for share in (0.5, 0.05)
    )  # fmt: skip
    user = tuple(int(np.clip(k + shift, 0, len(sizes) - 1)) for k, shift in zip(tuned, rng.integers(-1, 2, len(names))))
    asked = tuple(
        LocalCall(names[f], *FUNCTIONS[names[f]], within_s=float(w), at_s=float(a)) for f, a, w in zip(which, at, within)
    )  # fmt: skip
    return HereWork(have, sizes, alone, asked, user, tuned, tight)


def play(technique: Any, work: HereWork) -> tuple[dict[str, float], list[Ran]]:
    """Run the calls under a technique's rules; metrics and what became of each call."""
    policy = technique.policy(None)
    owner = {TUNED: work.tuned, TIGHT: work.tight}.get(policy.size, work.user)
    index = {name: f for f, name in enumerate(FUNCTIONS)}
    calls = []
    for call in work.calls:
        f = index[call.name]
        calls.append(replace(call, vcpu=work.sizes[owner[f]], alone_s=float(work.alone_s[f, owner[f]])))
    with LocalRunner(technique, work.cores) as runner:
        ran = runner.run(calls)
    failed = next((one for one in ran if one.error), None)
    if failed:
        raise InputError(f"{failed.name}: {failed.error}")
    met, held = sum(one.in_time for one in ran), sum(one.core_s for one in ran)
    return {
        "deadline_missed": 1 - met / len(ran), "deadline_met": met / len(ran), "core_s_allocated": held,
        "core_s_per_met": held / max(met, 1), "efficiency": sum(one.cpu_s for one in ran) / held,
        "latency_p95": float(np.quantile([one.end_s for one in ran], 0.95)),
    }, ran  # fmt: skip


def _alone(runner: LocalRunner, name: str, vcpu: float) -> float:
    return runner.run([LocalCall(name, *FUNCTIONS[name], within_s=600, vcpu=vcpu)])[0].wall_s
