"""Which API should run a kernel: each that offers it is tried twice, then the fastest is taken, and the others now and then again.

A kernel and the class of its arguments' sizes have a table of their own. Times are those from launch to end, so an API whose streams are
busy looks slower, which is what counts. A trial grows rarer with the number of calls: the n-th call explores with probability 1/n.
"""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.runtime.dataflow.apis.api import Kernel

    from .apis import Apis

TRIALS = 2
#: The weight of a new time in the running mean.
WEIGHT = 0.25


class Chooser:
    """`Chooser(apis).launch(kernel, *args)` inside a task runs the kernel on the API that it expects to end first."""

    def __init__(self, apis: Apis, seed: int = 0) -> None:
        self._apis = apis
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        #: (kernel, shape class) to API to [calls, mean seconds].
        self._seen: dict[tuple[str, int], dict[str, list[float]]] = {}

    def launch(self, kernel: Kernel, *args: Any, width: int = 1) -> str:
        """Runs the kernel as part of the running task and returns the name of the API that was taken."""
        from armillary.tasks.events import External

        from .launch import finish, task_of

        name = self.pick(kernel, args)
        bound = self._apis[name]
        context = task_of(bound, kernel)
        began = time.perf_counter()
        if not bound.api.asynchronous:
            bound.call(kernel, args, width)
            self.record(kernel, args, name, time.perf_counter() - began)
            return name
        pending = bound.enqueue(kernel, args, width)
        pending.then(lambda error: self.record(kernel, args, name, time.perf_counter() - began) if error is None else None)
        finish(External(context, 1), pending)
        return name

    def pick(self, kernel: Kernel, args: tuple[Any, ...]) -> str:
        """The API for the next call."""
        offered = [bound.name for bound in self._apis if bound.name in kernel.variants]
        if not offered:
            raise InputError(f"no API here offers kernel {kernel.name}; it has {', '.join(kernel.variants)}")
        with self._lock:
            seen = self._seen.setdefault((kernel.name, shape_class(args)), {name: [0.0, 0.0] for name in offered})
            untried = [name for name in offered if seen[name][0] < TRIALS]
            if untried:
                name = min(untried, key=lambda one: seen[one][0])
            elif self._random.random() < 1 / sum(seen[one][0] for one in offered):
                name = self._random.choice(offered)
            else:
                name = min(offered, key=lambda one: seen[one][1] * (1 + self._load(one)))
            seen[name][0] += 1
            return name

    def _load(self, name: str) -> float:
        """Kernels per stream that are pending, and 1 for a library while no token is free."""
        bound, tokens = self._apis[name], self._apis.tokens
        busy = bound.poller.outstanding / len(bound.lanes) if bound.lanes else 0.0
        return busy + (1.0 if tokens is not None and bound.api.on_cores and not tokens.free else 0.0)

    def record(self, kernel: Kernel, args: tuple[Any, ...], name: str, seconds: float) -> None:
        """Notes how long a call took; the first of each API is forgotten, because it may have compiled."""
        with self._lock:
            kept = self._seen[kernel.name, shape_class(args)][name]
            kept[1] = seconds if kept[0] <= TRIALS else (1 - WEIGHT) * kept[1] + WEIGHT * seconds

    def table(self) -> list[dict[str, Any]]:
        """For each kernel, shape class and API: calls and mean microseconds."""
        with self._lock:
            return [
                {"kernel": kernel, "numbers": f"≤ 2^{size}", "api": name, "calls": int(calls), "us": mean * 1e6}
                for (kernel, size), seen in self._seen.items()
                for name, (calls, mean) in seen.items()
            ]


def shape_class(args: tuple[Any, ...]) -> int:
    """The power of two above the numbers in all array arguments."""
    return int(sum(int(getattr(arg, "size", 0) if not callable(getattr(arg, "size", 0)) else arg.numel()) for arg in args)).bit_length()
