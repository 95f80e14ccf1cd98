"""The work: jobs on a cluster with a range of VNIs, scenes of attack, and what a user's file holds instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError

from .simulation.jobs import JobsWork
from .simulation.pods import NOISES, Kubernetes, ramp_times

if TYPE_CHECKING:
    from .readers.traces import Trace

#: VNIs of the range that the paper's service hands out.
LOW, HIGH = 100, 65535
#: Pods and jobs of one work.
MOST_PODS, MOST_JOBS = 2_000_000, 500_000


def ramp(rng: np.random.Generator, most: int, sustain: int) -> JobsWork:
    """Batches of 1, 2, …, most jobs of one pod, then most again and again, then down to 1, about 1.2 s apart, on one node."""
    times = ramp_times(most, sustain, 1.2)
    return _short(rng, times + rng.uniform(0.0, 0.2, len(times)), LOW, HIGH)


def spike(rng: np.random.Generator, jobs: int) -> JobsWork:
    """All jobs of one pod at once on one node."""
    return _short(rng, np.zeros(jobs), LOW, HIGH)


def churn(rng: np.random.Generator, jobs: int, vnis: int, *, nodes: int = 4, per_s: float = 3.0) -> JobsWork:
    """Short jobs of eight tenants as a Poisson stream; three of ten are deleted while they run, and one of ten joins a claim."""
    submit = np.sort(rng.uniform(0.0, jobs / per_s, jobs))
    run = rng.uniform(1.0, 60.0, jobs)
    tenant = rng.integers(0, 8, jobs)
    deleted = np.where(rng.random(jobs) < 0.3, rng.uniform(0.0, 30.0, jobs), np.inf)
    claims = tuple("mesh" if joins else "" for joins in rng.random(jobs) < 0.1)
    pods = np.ones(jobs, np.int64)
    lingers = rng.uniform(0.0, 30.0, jobs)
    kubernetes = Kubernetes(nodes=nodes)
    noise = rng.random((jobs, NOISES))
    return JobsWork(submit, pods, run, tenant, claims, deleted, lingers, noise, kubernetes, LOW, LOW + vnis - 1)


def _short(rng: np.random.Generator, submit: np.ndarray, low: int, high: int) -> JobsWork:
    n = len(submit)
    never = np.full(n, np.inf)
    ones, noise = np.ones(n, np.int64), rng.random((n, NOISES))
    return JobsWork(submit, ones, np.zeros(n), np.zeros(n, np.int64), ("",) * n, never, np.zeros(n), noise, Kubernetes(), low, high)


def own(trace: Trace, how: Mapping[str, Any], rng: np.random.Generator | None) -> JobsWork:
    """The jobs of a user's trace on a cluster of `nodes` nodes; without `rng` it is only checked."""
    n, pods = len(trace.submit_s), int(trace.pods.sum())
    room = Kubernetes().pods_per_node * int(how["nodes"])
    if int(trace.pods.max()) > room:
        where = int(trace.pods.argmax()) + 1
        raise InputError(f"job {where}: found {trace.pods.max():,} pods; expected at most {room:,}, which {how['nodes']} nodes hold")
    kubernetes = replace(Kubernetes(), nodes=int(how["nodes"]))
    noise = np.empty((0, NOISES)) if rng is None else rng.random((pods, NOISES))
    return JobsWork(
        trace.submit_s, trace.pods, trace.run_s, trace.tenant, trace.claim, np.full(n, np.inf), np.zeros(n), noise,
        kubernetes, int(how["low"]), int(how["high"]),
    )  # fmt: skip
