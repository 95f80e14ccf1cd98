"""Units on a Dask cluster: the user's own scheduler, or two local workers with `--engine dask`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from armillary import extras
from armillary.study.execute import execute
from armillary.study.plan import Recipe
from armillary.study.store import Report
from armillary.study.unit import Unit
from armillary.tasks.dask_clients import client_at, local_client


@dataclass
class Dask:
    """A Dask client. A lost worker's units are submitted once more, then failed."""

    address: str

    def __post_init__(self) -> None:
        """Refuses an address at which no scheduler answers, before anything is written."""
        if self.address == "dask":
            extras.need("distributed")
            return
        with client_at(self.address):
            pass

    def run(self, units: Sequence[Unit], recipe: Recipe) -> Iterator[tuple[Unit, Report | None]]:
        """Runs shared units wherever there is room, then exclusive ones where a worker offers `exclusive`, one at a time else."""
        with local_client() if self.address == "dask" else client_at(self.address) as client:
            shared, exclusive = [u for u in units if not u.exclusive], [u for u in units if u.exclusive]
            yield from _stream(client, shared, recipe, most=None, resources=None)
            if exclusive:
                workers = client.scheduler_info(n_workers=-1)["workers"].values()
                offered = any("exclusive" in worker.get("resources", {}) for worker in workers)
                resources = {"exclusive": 1} if offered else None
                yield from _stream(client, exclusive, recipe, most=None if offered else 1, resources=resources)


def _stream(
    client: Any, units: Sequence[Unit], recipe: Recipe, most: int | None, resources: dict[str, int] | None
) -> Iterator[tuple[Unit, Report | None]]:
    from distributed import as_completed

    waiting, tries = list(reversed(units)), dict.fromkeys((u.id for u in units), 0)
    flying: dict[str, tuple[Unit, Any]] = {}
    done = as_completed(loop=client.loop, raise_errors=False)
    limit = most or max(4, 4 * sum(client.ncores().values()))
    while waiting or flying:
        while waiting and len(flying) < limit:
            unit = waiting.pop()
            tries[unit.id] += 1
            if tries[unit.id] == 1:
                yield unit, None
            key = f"{unit.id}-{tries[unit.id]}"
            future = client.submit(execute, unit, recipe, key=key, pure=False, retries=0, resources=resources)
            flying[future.key] = (unit, future)
            done.add(future)
        finished = next(done)
        unit, _ = flying.pop(finished.key)
        if finished.status == "finished":
            yield unit, finished.result()
        elif tries[unit.id] < 2:
            waiting.append(unit)
        else:
            yield unit, Report("failed", {}, error=f"lost twice by the Dask cluster ({finished.status})")
        finished.release()
