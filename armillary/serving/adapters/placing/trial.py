"""Tests a placement by simulating every GPU, and finds the least number of GPUs at which nothing starves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError
from armillary.timing import Stopwatch

from ..engine.gpu_engine import GpuEngine
from ..engine.starvation import ALLOWED, STARVED
from ..engine.twin import load_ms, processed_share
from ..workload import AdapterWork
from .placement import Placement, Placer

if TYPE_CHECKING:
    from armillary.llm import Result

MOST_TRIES = 24


@dataclass(frozen=True)
class Tested:
    """A placement and its simulated result."""

    placement: Placement
    result: Result
    starved: float
    plan_s: float

    @property
    def holds(self) -> bool:
        """Whether nothing starves."""
        return self.starved <= ALLOWED


def homes(technique: Placer, placement: Placement, work: AdapterWork) -> Any:
    """Returns the GPU of each request; a technique that places again sees the rates of each period before the next one."""
    again = getattr(technique, "again", None)
    if again is None:
        return placement.homes(work.requests)
    at, period = work.requests.arrival_s, float(technique.period_s)  # type: ignore[attr-defined]
    out = placement.homes(work.requests)
    for k in range(1, int(np.ceil(work.window_s / period))):
        seen = (at >= (k - 1) * period) & (at < k * period)
        rate = np.bincount(work.requests.adapter[seen], minlength=len(work.adapters)) / period
        now = again(placement, rate).homes(work.requests)
        later = at >= k * period
        out[later] = now[later]
    return out


def trial(technique: Placer, placement: Placement, work: AdapterWork, plan_s: float = 0.0) -> Tested:
    """Simulates every GPU of a placement at full fidelity for the work's window."""
    from armillary.llm import Adapters, Fleet

    placement.check()
    replicas = [placement.engine.replica(gpu.slots, gpu.max_rank, len(gpu.adapters)) for gpu in placement.gpus]
    table = work.adapters
    # An adapter's load is priced for the largest rank of all, because engines differ by a millisecond at most.
    loads = [load_ms(placement.engine.name, int(table.rank.max()), int(r)) / 1e3 for r in table.rank]
    fleet = Fleet(replicas, router="least-tokens")
    result = fleet.run(
        work.requests, until_s=work.window_s, adapters=Adapters(table.rank.tolist(), host_s=loads, disk_s=loads),
        home=homes(technique, placement, work),
    )  # fmt: skip
    done, offered = processed_share(work.requests, result.first_token, result.generated, work.window_s, len(table))
    asked = offered > 0
    return Tested(placement, result, float(np.mean(done[asked] < STARVED * offered[asked])) if asked.any() else 0.0, plan_s)


def least_gpus(technique: Placer, work: AdapterWork) -> Tested:
    """Tests the technique's own number of GPUs and, if adapters starve, finds the least larger number at which its rule passes."""
    engine = GpuEngine(work.model, work.device)
    if work.adapters.base and not _same_model(work.adapters.base, engine.name):
        raise InputError(f'the adapters were made for "{work.adapters.base}"; expected --model to name it, found "{engine.name}"')
    learn = getattr(technique, "judge_of", None)
    if learn is not None:
        # Learning once per engine is not part of a placement's time.
        learn(engine)
    seconds, count = 0.0, 1
    found: Tested | None = None
    for _ in range(MOST_TRIES):
        with Stopwatch() as watch:
            placement = technique.place(work.adapters, engine=engine, min_gpus=count)
        seconds = seconds or watch.seconds
        found = trial(technique, placement, work, seconds)
        if found.holds:
            return found
        count = len(placement) + 1
    assert found is not None
    return found


def _same_model(base: str, model: str) -> bool:
    plain = base.rpartition("/")[2].casefold()
    return model.casefold() in plain or plain in model.casefold() or plain.replace("meta-", "").startswith(model.casefold())


def metrics(found: Tested, work: AdapterWork) -> dict[str, float]:
    """Returns the arena's metrics of a tested placement."""
    r = found.result
    summary = r.summary(until_s=work.window_s)
    latency = r.e2e[np.isfinite(r.e2e)]
    started = max(1, int(np.isfinite(r.first_scheduled).sum() + r.preemptions.sum()))
    quantiles = np.percentile(latency, (50, 90, 99)) if len(latency) else np.full(3, work.window_s)
    return {
        "gpus": float(len(found.placement)), "starved": found.starved, "token_throughput": summary["token_per_s"],
        "mean_latency": float(latency.mean()) if len(latency) else work.window_s, "p50_latency": float(quantiles[0]),
        "p90_latency": float(quantiles[1]), "p99_latency": float(quantiles[2]), "hit_ratio": max(0.0, 1.0 - float(r.loads.sum()) / started),
        "updates_per_h": float(r.loads.sum()) * 3600.0 / work.window_s, "plan_s": found.plan_s,
    }  # fmt: skip
