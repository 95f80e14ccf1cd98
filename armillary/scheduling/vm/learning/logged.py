"""Learning from what was observed: each VM's QoS on the host where it was, and nothing about other hosts.

Training goes on from a trained model, because observed placements alone say little about hosts where nobody was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.learn import Model, Recipe, obtain
from armillary.scheduling.vm.problem.fleet import Ints
from armillary.scheduling.vm.problem.metrics import VM, VM_FEATURES
from armillary.scheduling.vm.problem.state import State
from armillary.scheduling.vm.readers.tables import METRICS, MetricTable
from armillary.scheduling.vm.workload import HOURS, TEST_DAY, VmWork, digest

from .samples import Snapshot, of_state

#: VMs of a snapshot, and snapshots at the most.
LISTED, MOST = 64, 400
#: Hours between the snapshots of a work's own first days.
EVERY = 3


def observed(state: State, qos: Any, rng: np.random.Generator) -> Snapshot:
    """A snapshot of which only the QoS of VMs where they are is known."""
    known = np.flatnonzero((state.host >= 0) & np.isfinite(qos))
    vms: Ints = known if len(known) <= LISTED else np.sort(rng.choice(known, LISTED, replace=False))
    return of_state(state, vms, np.zeros(1, np.int64), np.zeros((len(vms), 0), np.int64), np.zeros((len(vms), 0)), qos[vms])


def retrained(recipe: Recipe, work: VmWork) -> Model:
    """The model of a recipe, trained further on days 1 to 4 of a work and chosen by day 5, in which nothing moved."""
    from .train import trained

    start = obtain(recipe)

    def train(own: Recipe, progress: Any) -> Model:
        rng = np.random.default_rng(own.seed)
        last = work.start - 1
        cut = max(1, last * (TEST_DAY - 1) // TEST_DAY)
        hours = range(1, last, EVERY if last >= HOURS else 1)
        parts: tuple[list[Snapshot], list[Snapshot]] = ([], [])
        for hour in hours:
            host = np.where(work.present(hour), work.host, -1)
            state = work.state(hour, host, work.judge.played(hour, host))
            parts[hour >= cut].append(observed(state, work.judge.played(hour + 1, host).qos, rng))
        if not parts[0]:
            raise InputError("found no hour before the test; expected some to train on")
        return trained(*parts, own.parameters, own.seed, progress, start=start)

    return obtain(replace(recipe, train=train, cases=(digest(work),), name=f"{recipe.name}-own", shipped="", expected_s=30))


def fitted(start: Model, table: MetricTable, epochs: int) -> Model:
    """A model that has gone on training on a table of metrics with QoS: the first 70 % of its times train, the next 15 % choose."""
    from .train import trained

    if "qos" not in table.columns:
        raise InputError("found no column qos; expected the QoS that was observed")
    missing = [name for name, *_ in METRICS if name not in table.columns]
    if missing:
        raise InputError(f"found no column {missing[0]}; expected every metric of the model")
    times = np.unique(table.time_s)
    if len(times) < 2:
        raise InputError(f"found {len(times)} time; expected two at least")
    chosen = times[np.unique(np.linspace(0, len(times) - 1, min(len(times), MOST)).astype(np.int64))]
    cuts = (chosen[max(0, int(0.7 * len(chosen)) - 1)], chosen[max(0, int(0.85 * len(chosen)) - 1)])
    rng = np.random.default_rng(0)
    rows: list[Snapshot] = []
    held: list[Snapshot] = []
    for time in chosen:
        if time <= cuts[0] or time <= cuts[1]:
            state, qos = state_at(table, float(time))
            (rows if time <= cuts[0] else held).append(observed(state, qos, rng))
    parts = getattr(start.config, "parts", {})
    how = {"sets": "set" in parts, "cross": bool(parts["vm"].cross), "epochs": epochs}
    return trained(rows, held, how, 0, start=start)


def state_at(table: MetricTable, time: float, day_s: float = 86400.0) -> tuple[State, Any]:
    """The state that the rows of one time show, and the QoS of each of its VMs."""
    rows = np.flatnonzero(table.time_s == time)
    recent = np.flatnonzero((table.time_s <= time) & (table.time_s > time - day_s))
    x = np.zeros((len(rows), len(VM_FEATURES)))
    for name, values in table.columns.items():
        if name in VM:
            x[:, VM[name]] = values[rows]
    slot = {int(v): i for i, v in enumerate(table.vm[rows])}
    past: list[list[float]] = [[] for _ in rows]
    for v, cpu in zip(table.vm[recent].tolist(), table.columns["cpu"][recent].tolist()):
        if v in slot:
            past[slot[v]].append(cpu)
    x[:, VM["cpu_mean"]] = [float(np.mean(one)) for one in past]
    x[:, VM["cpu_p95"]] = [float(np.percentile(one, 95)) for one in past]
    angle = 2 * np.pi * (time / 3600 % 24) / 24
    x[:, VM["hour_sin"]], x[:, VM["hour_cos"]] = float(np.sin(angle)), float(np.cos(angle))
    n = len(table.hosts)
    qos = table.columns["qos"][rows]
    return State(x, table.host[rows], table.hosts, np.full(n, np.inf), np.full(n, np.inf), qos), qos
