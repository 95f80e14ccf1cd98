"""Functions on a Dask cluster: the backend `dask`, over a local one or a scheduler of the user's.

All tasks that have a place are submitted at once, and each future's end is a callback. A worker that dies is Dask's affair at first: the
task is run again by another one up to `retries` times, and then it fails here. `distributed` keeps two runs of one task apart by itself.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

from armillary.runtime.pilot.agent.task import Live, Lost

from .backend import FUNCTION, Backend

if TYPE_CHECKING:
    from armillary.runtime.pilot.agent.agent import Agent
    from armillary.runtime.pilot.agent.scheduler import Instance


def call(pickled: bytes) -> tuple[int, int, Any]:
    """Runs a pickled call on a worker; returns when it began and ended, and its result."""
    function, args, kwargs, many = pickle.loads(pickled)  # noqa: S301
    began = time.monotonic_ns()
    result = list(map(function, *args)) if many else function(*args, **kwargs)
    return began, time.monotonic_ns(), result


class Dask(Backend):
    """A client, which is made and used in a thread of its own, because its calls may wait."""

    name: ClassVar[str] = "dask"
    kinds: ClassVar[frozenset[int]] = frozenset({FUNCTION})

    def __init__(self, address: str | None, workers: int) -> None:
        self._address, self._workers = address, workers
        self._given: dict[int, Live] = {}
        self._outgoing: list[Live] = []
        self._futures: dict[int, Any] = {}
        self._clients = contextlib.ExitStack()
        self._client: Any = None
        #: The scheduler is on this machine, so that its workers have the same clock.
        self._here = address is None

    def start(self, agent: Agent, instance: Instance) -> None:
        """Connects in a thread."""
        self.agent, self.instance = agent, instance
        threading.Thread(target=self._connect, name="pilot-dask", daemon=True).start()

    def _connect(self) -> None:
        from armillary.tasks.dask_clients import client_at, local_client

        try:
            client = self._clients.enter_context(client_at(self._address) if self._address else local_client(self._workers))
        except Exception as error:
            reason = str(error)
            self.agent.post(lambda: self.agent.died(self.instance, reason))
            return

        def ready() -> None:
            self._client = client
            self.agent.up(self.instance)

        self.agent.post(ready)

    def launch(self, live: Live) -> None:
        """Collects it for the next flush."""
        self.agent.launching(live)
        self._given[live.id] = live
        self._outgoing.append(live)

    def flush(self) -> None:
        """Submits what was collected."""
        batch, self._outgoing = self._outgoing, []
        for live in batch:
            again = self.agent.retries if live.retries < 0 else live.retries
            future = self._client.submit(call, live.call, pure=False, key=f"pilot-{id(self)}-{live.id}-{live.attempt}", retries=again)
            self._futures[live.id] = future
            future.add_done_callback(lambda done, number=live.id: self._done(number, done))

    def _done(self, number: int, future: Any) -> None:
        """In a thread of Dask's."""
        error = future.exception() if future.status == "error" else None
        value = future.result() if future.status == "finished" else None
        lost = future.status in ("lost", "cancelled") or type(error).__name__ == "KilledWorker"
        self.agent.post(lambda: self._ended(number, value, error, lost))

    def _ended(self, number: int, value: Any, error: BaseException | None, lost: bool) -> None:
        live = self._given.pop(number, None)
        self._futures.pop(number, None)
        if live is None:
            return
        place, live.place = live.place, []
        self.agent.scheduler.release(place)
        now = time.monotonic_ns()
        if lost:
            self.agent.failed(live, Lost(f"Dask's worker that ran it died: {error}"), now, again=True, place=place)
        elif error is not None:
            self.agent.failed(live, error, now, place=place)
        else:
            began, ended, result = value
            self.agent.running(live, began if self._here else 0)
            self.agent.done(live, result, ended if self._here else now, place)

    def lost(self) -> list[Live]:
        """All that it has."""
        found, self._given = list(self._given.values()), {}
        self._outgoing.clear()
        return found

    def stop(self) -> None:
        """Ends the local cluster, or leaves the user's."""
        futures, self._futures = list(self._futures.values()), {}
        with contextlib.suppress(Exception):
            if self._client is not None and futures:
                self._client.cancel(futures)
        self._clients.close()
