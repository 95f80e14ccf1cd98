"""When each attempt at a task reached each state, as one row of whole numbers, and the trace that other parts of the package read."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .task import CANCELED, DONE, STATES, Live

if TYPE_CHECKING:
    import polars

    from armillary.tasks import Trace

FIELDS = (
    "task", "attempt", "state", "backend", "node", "slot", "cores", "kind",
    "NEW", "SCHEDULING", "SCHEDULED", "LAUNCHING", "RUNNING", "ended",
)  # fmt: skip


class Stamps:
    """Rows of attempts, 112 bytes each, the first `most` of them; nanoseconds of the monotonic clock since `began`."""

    def __init__(self, began: int, most: int) -> None:
        self.began = began
        self._rows = array("q")
        self._most = most * len(FIELDS)
        #: Attempts that ended after the table was full.
        self.left_out = 0

    def add(self, live: Live, state: int, backend: int, ended: int, place: Sequence[Any]) -> None:
        """The row of an attempt that has ended."""
        if len(self._rows) >= self._most:
            self.left_out += 1
            return
        node, slot = (place[0][0], place[0][1][0]) if place else (-1, -1)
        cores = sum(len(slots) for _, slots, _ in place)
        kind = 1 if live.call else 0
        stamps = [stamp - self.began if stamp else 0 for stamp in live.stamps]
        self._rows.extend((live.id, live.attempt, state, backend, node, slot, cores, kind, *stamps, ended - self.began))

    def rows(self) -> np.ndarray:
        """All rows so far, a copy."""
        return np.array(self._rows, np.int64).reshape(-1, len(FIELDS))

    def table(self, backends: Sequence[str], nodes: Sequence[str]) -> polars.DataFrame:
        """All rows as a Polars table, states, backends and nodes as text, and times in seconds; null where a state was never reached."""
        import polars

        rows = self.rows()
        column = {name: rows[:, i] for i, name in enumerate(FIELDS)}
        times = {name: polars.Series(np.where(column[name] > 0, column[name] * 1e-9, np.nan)).fill_nan(None) for name in FIELDS[8:]}
        return polars.DataFrame({
            "task": column["task"], "attempt": column["attempt"], "state": [STATES[s] for s in column["state"]],
            "kind": ["function" if k else "executable" for k in column["kind"]],
            "backend": [backends[b] if b >= 0 else None for b in column["backend"]],
            "node": [nodes[n] if n >= 0 else None for n in column["node"]], "slot": column["slot"], "cores": column["cores"], **times,
        })  # fmt: skip

    def trace(self, nodes: Sequence[str], cores: int) -> Trace:
        """The rows as `armillary.tasks.Trace`: a worker is a core, and a task of several cores is its first one's."""
        from armillary.tasks import Trace
        from armillary.tasks.progress import CANCELLED as TRACE_CANCELLED
        from armillary.tasks.progress import DONE as TRACE_DONE
        from armillary.tasks.progress import FAILED as TRACE_FAILED

        found = dict(zip(FIELDS, self.rows().T, strict=True))
        ended, running = found["ended"], found["RUNNING"]
        started = np.where(running > 0, running, ended)
        ready = np.where(found["SCHEDULING"] > 0, found["SCHEDULING"], started)
        ran = (running > 0) & (found["node"] >= 0)
        worker = np.where(ran, found["node"] * cores + found["slot"], -1)
        state = np.select([found["state"] == DONE, found["state"] == CANCELED], [TRACE_DONE, TRACE_CANCELLED], TRACE_FAILED)
        attempt = np.where(ran, found["attempt"], 0)
        nothing = np.zeros(len(ended), np.int64)
        rows = np.stack([
            found["task"], worker, np.maximum(found["node"], 0), nothing, state, attempt, found["cores"], found["NEW"], ready, started,
            ended, ended, nothing, nothing,
        ], axis=1)  # fmt: skip
        count = int(found["task"].max(initial=-1)) + 1
        return Trace(rows, _Numbers(count), _Numbers(count), tuple(nodes), len(nodes) * cores, {"cores": float(cores)})


class _Numbers(Sequence[str]):
    """The numbers of tasks as their keys."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        return str(at)
