"""The APIs of a process under one runtime: streams, pollers, tokens, chains, and graphs whose tasks are kernels.

A kernel goes to a stream of its API's pool: behind its predecessor where the chain says so, else to the next idle stream in turn, else to
the one with the fewest kernels.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError, unknown
from armillary.runtime.dataflow.apis.api import Api, Kernel
from armillary.tasks.data import Data, Piece
from armillary.tasks.events import External

from .chains import Chains, watch
from .launch import finish, task_of
from .poller import MOST_S, Lane, Pending, Poller
from .tokens import Tokens

if TYPE_CHECKING:
    from armillary.tasks import Graph, Run
    from armillary.tasks.graph import Task

#: APIs by name: the module and the class of their adapters.
ADAPTERS = {
    "blas": ("blas", "Blas"), "numba": ("numba", "Numba"), "opencl": ("opencl", "OpenCl"), "torch": ("torch", "Torch"),
    "torch-cuda": ("torch", "TorchCuda"), "cupy": ("cupy", "Cupy"), "triton": ("triton", "Triton"), "sim": ("sim", "Sim"),
}  # fmt: skip
#: Streams per API, unless said otherwise.
POOL = 8


def adapter(name: str, **how: Any) -> Api:
    """The adapter of an API; an unknown name lists the known ones, and a missing package is named."""
    if name not in ADAPTERS:
        raise unknown("API", name, ADAPTERS)
    module, cls = ADAPTERS[name]
    made: Api = getattr(importlib.import_module(f"armillary.runtime.dataflow.apis.{module}"), cls)(**how)
    return made


class Bound:
    """One API within `Apis`: its streams, its poller, and the tokens that its kernels take."""

    def __init__(self, api: Api, owner: Apis, pool: int) -> None:
        self.api, self._owner = api, owner
        self.lanes = [Lane(i, api.stream()) for i in range(pool)] if api.asynchronous else []
        self.poller = Poller(self.lanes, MOST_S if owner.notify == "callback" else owner.period)
        self._lock = threading.Lock()
        self._turn = 0
        #: Kernels that wait for tokens before they are enqueued.
        self.queued = 0
        self._here = threading.local()

    @property
    def name(self) -> str:
        """The API's name."""
        return self.api.name

    def call(self, kernel: Kernel, args: tuple[Any, ...], width: int = 1) -> Any:
        """Runs a kernel on the calling thread, with tokens if there are any."""
        tokens = self._owner.tokens
        with ExitStack() as held:
            if tokens is not None:
                held.enter_context(tokens.hold(width))
                self.api.limit(width)
            elif self._owner.threads is not None and not hasattr(self._here, "limited"):
                # Some libraries keep the number per calling thread.
                self._here.limited = True
                self.api.limit(self._owner.threads)
            return self.api.call(kernel, args)

    def enqueue(self, kernel: Kernel, args: tuple[Any, ...], width: int = 1, lane: Lane | None = None) -> Pending:
        """Enqueues a kernel without waiting; with tokens, as soon as it has them."""
        tokens = self._owner.tokens
        if tokens is None or not self.api.on_cores:
            pending = Pending()
            self._put(pending, kernel, args, lane)
            return pending
        pending = Pending()
        with self._lock:
            self.queued += 1
        tokens.check(width)

        def granted() -> None:
            with self._lock:
                self.queued -= 1
            pending.then(lambda error: tokens.give(width))
            try:
                self._put(pending, kernel, args, lane)
            except BaseException as error:
                pending.end(error)

        tokens.request(width, granted)
        return pending

    def wait(self, kernel: Kernel, args: tuple[Any, ...]) -> float:
        """Enqueues a kernel, waits for its end on this thread, and returns the seconds of waiting."""
        lane = self._free()
        event = lane.stream.enqueue(kernel, args)
        began = time.perf_counter()
        event.wait()
        waited = time.perf_counter() - began
        with self._lock:
            self.api.waited += waited
        return waited

    def _put(self, pending: Pending, kernel: Kernel, args: tuple[Any, ...], lane: Lane | None) -> None:
        with self._lock:
            target = lane or self._idle()
            # The order in the lane must be the order in the stream, so both change under one lock.
            pending.event = target.stream.enqueue(kernel, args)
            self.poller.add(target, pending)
        pending.lane = target
        if self._owner.notify == "callback":
            # Callbacks come in the order of the stream, or say so only when asked again.
            self.api.notify(pending.event, self.poller.ask)

    def _free(self) -> Lane:
        with self._lock:
            return self._idle()

    def _idle(self) -> Lane:
        """The next idle lane in turn, or the shortest."""
        count = len(self.lanes)
        for step in range(count):
            lane = self.lanes[(self._turn + step) % count]
            if not lane.pending:
                break
        else:
            lane = min(self.lanes, key=lambda one: len(one.pending))
        self._turn = (lane.number + 1) % count
        return lane


class Apis:
    """`Apis("blas", "opencl", tokens=2)`: the APIs by name (or adapter objects), as attributes and items.

    `tokens` turns unified thread management on. `chain` lets a kernel be enqueued behind unfinished predecessors in one stream. `period`
    fixes the polling period in seconds. `notify="callback"` also asks when the API calls back. Without tokens, each call may use
    `threads` threads of its library, or the full pool. It is a context manager that drains at its end.
    """

    def __init__(
        self, *apis: str | Api, tokens: int | None = None, chain: bool = True, period: float | None = None, notify: str = "poll",
        pool: int = POOL, threads: int | None = None,
    ) -> None:  # fmt: skip
        if notify not in ("poll", "callback"):
            raise unknown("notify", notify, ("poll", "callback"))
        if period is not None and not 1e-6 <= period <= 1:
            raise InputError(f"period: found {period}; expected 1e-6 to 1 seconds", where="Apis")
        if not 1 <= pool <= 1024:
            raise InputError(f"pool: found {pool}; expected 1 to 1024 streams", where="Apis")
        self.tokens = None if tokens is None else Tokens(tokens)
        self.period, self.notify, self.pool, self.threads = period, notify, pool, threads
        self._bound: dict[str, Bound] = {}
        self.chains = Chains() if chain else None
        for one in apis:
            self.bind(one)

    def bind(self, api: str | Api) -> Bound:
        """Adds an API."""
        made = adapter(api) if isinstance(api, str) else api
        self._bound[made.name] = bound = Bound(made, self, self.pool)
        return bound

    def wrap_torch(self, stream_pool: int = POOL) -> Bound:
        """PyTorch's CUDA streams as an API named torch, in place of PyTorch on the CPU."""
        self.pool = stream_pool
        return self.bind(adapter("torch-cuda"))

    def wrap_cupy(self, stream_pool: int = POOL) -> Bound:
        """CuPy's CUDA streams as an API named cupy."""
        self.pool = stream_pool
        return self.bind(adapter("cupy"))

    def __getitem__(self, name: str) -> Bound:
        if name not in self._bound:
            raise unknown("API", name, self._bound, where="Apis")
        return self._bound[name]

    def __getattr__(self, name: str) -> Bound:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except InputError as error:
            raise AttributeError(str(error)) from None

    def __iter__(self) -> Any:
        return iter(self._bound.values())

    def add(
        self, graph: Graph, api: str | Bound, kernel: Kernel, *args: Any, width: int = 1, reads: Iterable[Data | Piece] = (),
        writes: Iterable[Data | Piece] = (), updates: Iterable[Data | Piece] = (), **how: Any,
    ) -> Task:  # fmt: skip
        """Submits a kernel as a task of its own, which may be chained; further parameters are those of `Graph.add`."""
        bound = api if isinstance(api, Bound) else self[api]
        kernel.variant(bound.name)
        if self.tokens is not None:
            self.tokens.check(width)
        how.setdefault("name", kernel.name)
        body = _Body(self, bound, kernel, width)
        task = graph.add(body, *args, reads=reads, writes=writes, updates=updates, **how)
        body.task = task
        return task

    def run(self, graph: Graph, executor: Any, *, policy: Any = None, on_error: str = "stop", seed: int = 0) -> Run:
        """Runs a graph whose tasks launch kernels, on `Threads`; drains what a failed run left in the streams."""
        from armillary.tasks.policies import policy_for

        if self.chains is not None:
            self.chains.begin(graph)
            policy = watch(policy_for(policy, executor.count, seed), self.chains)
        try:
            return graph.run(executor, policy=policy, on_error=on_error, seed=seed)
        finally:
            self.drain()
            if self.chains is not None:
                self.chains.begin(None)

    def limit(self, threads: int | None) -> None:
        """Sets the pools of all libraries from this thread on."""
        for bound in self:
            bound.api.limit(threads)

    @property
    def outstanding(self) -> int:
        """Kernels that have not been seen to end, those included that wait for tokens."""
        return sum(bound.poller.outstanding + bound.queued for bound in self)

    def drain(self) -> None:
        """Waits until nothing is pending."""
        while self.outstanding:
            for bound in self:
                bound.poller.drain()

    def close(self) -> None:
        """Drains, and closes the adapters."""
        self.drain()
        for bound in self:
            bound.api.close()

    def __enter__(self) -> Apis:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Body:
    """The body of a kernel's task; it also enqueues successors that may follow in the same stream."""

    __slots__ = ("apis", "bound", "kernel", "pending", "task", "width")

    def __init__(self, apis: Apis, bound: Bound, kernel: Kernel, width: int) -> None:
        self.apis, self.bound, self.kernel, self.width = apis, bound, kernel, width
        self.task: Task | None = None
        #: What was enqueued ahead of the task's start.
        self.pending: Pending | None = None

    def __call__(self, *args: Any) -> Any:
        context = task_of(self.bound, self.kernel)
        if not self.bound.api.asynchronous:
            return self.bound.call(self.kernel, args, self.width)
        chains = self.apis.chains
        ahead, self.pending = self.pending, None
        if ahead is None:
            ahead = self.bound.enqueue(self.kernel, args, self.width)
            if chains is not None:
                chains.released += 1
                chains.follow(self, ahead)
        if ahead.ended and ahead.error is None:
            return None
        finish(External(context, 1), ahead)
        return None
