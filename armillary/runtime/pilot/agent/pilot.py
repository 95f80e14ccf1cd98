"""The pilot as a user meets it: a `concurrent.futures.Executor` over an allocation.

    with Pilot(nodes=4, backends=["srun", "pool"]) as p:
        fs = [p.submit(score, x) for x in items]                    # function tasks
        f = p.launch(["./md", "-n", "8"], nodes=2, ranks=16)        # an executable task; f.result() is a Finished

An allocation is acquired once, and tasks are scheduled inside it. Within a Slurm job it is that job's nodes. Otherwise, if a backend needs
Slurm, it is asked for; else the nodes are places on this machine.
"""

from __future__ import annotations

import itertools
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError, unknown
from armillary.runtime.pilot.backends.backend import EXECUTABLE, FUNCTION

from .agent import Agent
from .scheduler import Instance, Scheduler
from .stamps import Stamps
from .task import Live, Task

if TYPE_CHECKING:
    import polars

    from armillary.runtime.pilot.backends.backend import Backend
    from armillary.runtime.pilot.backends.slurm import Allocation, Slurm
    from armillary.tasks import Trace

#: Backends in the order in which each kind of task prefers them.
ROUTES = {EXECUTABLE: ("srun", "local", "dragon", "dask"), FUNCTION: ("dragon", "pool", "dask")}
BACKENDS = ("local", "pool", "srun", "dragon", "dask")
#: Rows of the table of stamps, 112 bytes each.
ROWS = 1_000_000
OUTPUT_BYTES = 1 << 20


class Pilot(Executor):
    """Holds nodes and starts tasks on them.

    nodes, cores, gpus: the size of the allocation; by default this machine as one node. backends: names among local, pool, srun, dragon and
    dask. partitions: contiguous parts of the nodes, each with instances of its own. retries: further attempts after the death of a worker
    or a runtime. rows: attempts whose stamps are kept, 0 for none. slurm: which Slurm `srun` speaks to. python: the interpreter of `pool`'s
    workers. peers: the interpreter that has dragonhpc. client: the address of a Dask scheduler.
    """

    def __init__(
        self, nodes: int | None = None, backends: Sequence[str] = ("local", "pool"), *, cores: int | None = None, gpus: int = 0,
        partitions: int = 1, retries: int = 0, rows: int = ROWS, output_bytes: int = OUTPUT_BYTES, slurm: Slurm | None = None,
        python: str = sys.executable, peers: str = "", client: str | None = None, minutes: int = 60, backfill: bool = True,
        route: str = "hybrid",
    ) -> None:  # fmt: skip
        started = time.monotonic_ns()
        self._backends = list(dict.fromkeys(backends))
        for name in self._backends:
            if name not in BACKENDS:
                raise unknown("backend", name, BACKENDS)
        if not self._backends:
            raise InputError(f"backends: found none; expected some of {', '.join(BACKENDS)}")
        if route not in ("hybrid", *self._backends):
            raise unknown("route", route, ("hybrid", *self._backends))
        counts = {"nodes": nodes, "cores": cores, "partitions": partitions, "minutes": minutes}
        for name, value in (counts | {"gpus": gpus, "retries": retries, "rows": rows, "output_bytes": output_bytes}).items():
            least = 1 if name in counts else 0
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise InputError(f"{name}: found {value!r}; expected a whole number of at least {least}")
        self._settings = {"backends": self._backends, "gpus": gpus, "partitions": partitions, "retries": retries, "minutes": minutes}
        self._python, self._peers, self._client, self._output_bytes = python, peers, client, output_bytes
        self._allocation = self._acquire(nodes, cores, gpus, slurm, minutes)
        try:
            self._set_up(gpus, partitions, retries, rows, route, backfill, started)
        except BaseException:
            if self._allocation is not None:
                self._allocation.release()
            raise

    def _acquire(self, nodes: int | None, cores: int | None, gpus: int, slurm: Slurm | None, minutes: int) -> Allocation | None:
        if slurm is None and "srun" not in self._backends and "SLURM_JOB_ID" not in os.environ:
            self.nodes, self.cores = nodes or 1, cores or len(os.sched_getaffinity(0))
            self.node_names = [f"here{i}" for i in range(self.nodes)]
            return None
        from armillary.runtime.pilot.backends.slurm import Slurm as Commands

        found = (slurm or Commands()).allocate(nodes, cores, gpus, minutes)
        self.node_names, self.cores = found.nodes, cores or found.cores
        self.nodes = len(found.nodes)
        return found

    def _set_up(self, gpus: int, partitions: int, retries: int, rows: int, route: str, backfill: bool, started: int) -> None:
        if partitions > self.nodes:
            raise InputError(f"partitions: found {partitions} of {self.nodes} nodes; expected at most one per node")
        able: dict[int, list[str]] = {kind: [name for name in ROUTES[kind] if name in self._backends] for kind in (EXECUTABLE, FUNCTION)}
        if route != "hybrid":
            able = {kind: [route] if route in ROUTES[kind] else [] for kind in able}
        self._scheduler = Scheduler(self.nodes, self.cores, gpus, (able[EXECUTABLE], able[FUNCTION]), backfill=backfill)
        self._stamps = Stamps(started, rows) if rows else None
        self._agent = Agent(self._scheduler, self._stamps, retries)
        edges = [self.nodes * i // partitions for i in range(partitions + 1)]
        for name in self._backends:
            for low, high in itertools.pairwise(edges):
                backend = self._make(name, low, high)
                instance = Instance(backend, low, high, backend.kinds)
                self._scheduler.join(instance)
                self._agent.instances.append(instance)
        self._count = 0
        self._closed = False
        self._by_value: dict[Any, bool] = {}
        self._agent.thread.start()

    def _make(self, name: str, low: int, high: int) -> Backend:
        names = self.node_names
        if name == "local":
            from armillary.runtime.pilot.backends.spawner import Spawner

            return Spawner(names, self._output_bytes)
        if name == "pool":
            from armillary.runtime.pilot.backends.pool import Pool

            if self._allocation is None:
                return Pool(self._python)
            steps = [self._allocation.step([names[node]], 1, self.cores) for node in range(low, high)]
            return Pool(self._python, steps, self._allocation.environment)
        if name == "srun":
            from armillary.runtime.pilot.backends.srun import Srun

            assert self._allocation is not None
            return Srun(names, self._output_bytes, self._allocation)
        if name == "dragon":
            from armillary.runtime.pilot.backends.dragon import Dragon

            return Dragon(self._peers, names, (high - low) * self.cores)
        from armillary.runtime.pilot.backends.dask import Dask

        return Dask(self._client, (high - low) * self.cores)

    # An Executor

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Runs `fn(*args, **kwargs)` on one core."""
        return self._hand_over(None, self._pickled(fn, args, kwargs), _key(fn), (FUNCTION, 1, 1, 0))

    def launch(self, command: Sequence[str], **needs: Any) -> Future[Any]:
        """Runs a command; `needs` are the fields of `Task`. The result is a `Finished`, whatever its exit status."""
        return self.run(Task(command=command, **needs))

    def run(self, task: Task) -> Future[Any]:
        """Runs a described task."""
        retries = -1 if task.retries is None else task.retries
        if task.function is None:
            return self._hand_over(task, b"", None, (EXECUTABLE, task.nodes, task.cores, task.gpus), retries)
        call = self._pickled(task.function, tuple(task.args), task.kwargs)
        return self._hand_over(task, call, _key(task.function), (FUNCTION, 1, task.cores, task.gpus), retries)

    def map(
        self, fn: Callable[..., Any], /, *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 0,
    ) -> Iterator[Any]:  # fmt: skip
        """`map(fn, *iterables)` on the cores; a task runs `chunksize` calls one after another, by default a fourth of a core's share."""
        # One iterable, which is the common case, is cut as it stands.
        calls = list(iterables[0]) if len(iterables) == 1 else list(zip(*iterables, strict=False))
        size = chunksize or max(1, -(-len(calls) // (4 * self.nodes * self.cores)))
        key = ("map", *_key(fn))
        found = [
            self._hand_over(
                None, self._pickled(fn, _columns(calls[at : at + size], len(iterables)), {}, many=True), key, (FUNCTION, 1, 1, 0)
            )
            for at in range(0, len(calls), size)
        ]
        return _results(found, None if timeout is None else time.monotonic() + timeout)

    def _hand_over(self, task: Task | None, call: bytes, key: Any, shape: Any, retries: int = -1) -> Future[Any]:
        if self._closed:
            raise RuntimeError("this pilot takes no more tasks, because it was shut down")
        if self._agent.fault is not None:
            raise RuntimeError(f"the pilot's loop failed: {self._agent.fault!r}")
        if not self._scheduler.able(shape):
            dead = [one.backend.died for one in self._agent.instances if one.dead]
            raise (
                InputError(f"no backend is left: {dead[0]}")
                if dead and len(dead) == len(self._agent.instances)
                else self._scheduler.refuse(shape)
            )
        future: Future[Any] = Future()
        live = Live(self._count, task, call, key, future, retries, time.monotonic_ns())
        live.shape = shape
        self._count += 1
        self._agent.post(live)
        return future

    def _pickled(self, fn: Callable[..., Any], args: Any, kwargs: Any, *, many: bool = False) -> bytes:
        what = (fn, args, kwargs, many)
        key = getattr(fn, "__qualname__", ""), getattr(fn, "__module__", "")
        if key[1] != "__main__" and "<" not in key[0]:
            try:
                return pickle.dumps(what, 5)
            except (pickle.PicklingError, AttributeError, TypeError):
                pass
        try:
            import cloudpickle  # type: ignore[import-untyped]
        except ModuleNotFoundError:
            raise InputError(
                f"function {key[0] or fn!r}: a worker cannot import it; put it into a module, or install cloudpickle"
            ) from None
        made: bytes = cloudpickle.dumps(what, 5)
        return made

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more tasks; with `wait`, returns when all have ended and every process that was started is gone.

        cancel_futures: tasks that have no place yet are cancelled. Without `wait`, the pilot ends by itself in the background.
        """
        self._closed = True
        if cancel_futures:
            self._agent.post(self._cancel_waiting)
        if wait:
            self._finish()
        else:
            import threading

            threading.Thread(target=self._finish, name="pilot-end", daemon=False).start()

    def _cancel_waiting(self) -> None:
        from .task import CANCELED

        for shape in self._scheduler.shapes():
            for live in self._scheduler.drop(shape):
                live.future.cancel()
                self._agent.end(live, CANCELED)

    def _finish(self) -> None:
        if self._agent.thread.is_alive():
            self._agent.wait_until_empty()
            self._agent.stop()
        if self._allocation is not None:
            self._allocation.release()
            self._allocation = None

    # What happened

    def wait_ready(self, timeout: float | None = None) -> float:
        """Waits until every backend is up or has failed; returns the seconds that it took, or raises InputError if none is up."""
        if not self._agent.settled.wait(timeout):
            raise TimeoutError(f"the backends were not up within {timeout} s")
        if all(one.dead for one in self._agent.instances):
            raise InputError("; ".join(f"{one.backend.name}: {one.backend.died}" for one in self._agent.instances))
        return self._agent.bootstrap

    @property
    def failures(self) -> dict[str, str]:
        """The backends that died, each with its reason."""
        return {one.backend.name: one.backend.died for one in self._agent.instances if one.dead}

    @property
    def trace(self) -> Trace:
        """Every attempt that has ended, in the package's trace schema."""
        return self._table().trace(self.node_names, self.cores)

    @property
    def states(self) -> polars.DataFrame:
        """Every attempt that has ended, with the seconds at which it reached each state."""
        return self._table().table([one.backend.name for one in self._agent.instances], self.node_names)

    def _table(self) -> Stamps:
        if self._stamps is None:
            raise InputError("rows: this pilot keeps no stamps; expected Pilot(rows=...) above 0")
        return self._stamps

    def write_slurm_script(self, path: str | Path, program: str = "campaign.py") -> Path:
        """Writes a batch script that runs a Python program in an allocation of this size; `Pilot()` in it finds the nodes by itself."""
        from .script import slurm_script

        target = Path(path)
        target.write_text(slurm_script(program, self.nodes, self.cores, self._settings))
        return target


def _columns(calls: list[Any], iterables: int) -> tuple[Any, ...]:
    return (calls,) if iterables == 1 else tuple(zip(*calls, strict=True))


def _key(fn: Callable[..., Any]) -> tuple[str, str]:
    return getattr(fn, "__module__", "") or "", getattr(fn, "__qualname__", "") or repr(type(fn))


def _results(futures: list[Future[Any]], end: float | None) -> Iterator[Any]:
    futures.reverse()
    try:
        while futures:
            yield from futures.pop().result(None if end is None else end - time.monotonic())
    finally:
        for future in futures:
            future.cancel()
