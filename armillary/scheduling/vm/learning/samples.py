"""What predictors of QoS learn from: snapshots of training fleets, with the QoS that VMs would have on several hosts in the next hour.

Training populations are drawn under names that no case has. Each snapshot packs one of them anew, in another order and more or less
densely, so that hosts of every load are seen. From each, some VMs are taken; each has a list of eight hosts, and its own host without it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.learn import Feature, Features
from armillary.scheduling.contention import Model
from armillary.scheduling.vm.problem.fleet import Floats, Ints
from armillary.scheduling.vm.problem.fleet import built_in as built_in_hosts
from armillary.scheduling.vm.problem.metrics import HOST_FEATURES, VM_FEATURES
from armillary.scheduling.vm.problem.state import State
from armillary.scheduling.vm.simulation.packing import best_fit
from armillary.scheduling.vm.workload import KINDS, VmWork, draw_population, packed
from armillary.streams import stream

from .cases import FLEETS, HELD, HOSTS, SNAPSHOTS, VMS

Singles = npt.NDArray[np.float32]
#: Hosts in a list; VMs with lists and hosts among which lists choose, per snapshot.
LIST, LISTS, POOL = 8, 32, 10
TRAIN_HOURS, HELD_HOURS = (2, 95), (96, 118)


@dataclass(frozen=True)
class Snapshot:
    """One instant: VMs and hosts as a technique sees them, and what came next.

    x: [vms, 20]. host_x: [pool, 24]. sets: VM numbers [pool, n], −1 where there is none. vms: [lists]. lists: numbers in the pool,
    [lists, 8]. source_x, source_sets: each listed VM's own host without it. qos: [lists, 8], and source_qos [lists], where NaN is unknown.
    """

    x: Singles
    host_x: Singles
    sets: Ints
    vms: Ints
    lists: Ints
    source_x: Singles
    source_sets: Ints
    qos: Singles
    source_qos: Singles


def training_fleet(kind: str, number: str) -> VmWork:
    """A training population on hosts of its own; nothing that a case draws."""
    rng = stream(0, "train", "vm", kind, number)
    population = draw_population(rng, kind, VMS)
    model = Model(smt_base=0.0) if kind == "calm" else Model()
    return packed(population, built_in_hosts(HOSTS), kind=kind, model=model, noise_seed=int(rng.integers(1 << 31)), overcommit=4.0)


@functools.lru_cache(maxsize=1)
def snapshots(count: int = SNAPSHOTS, held: int = HELD) -> tuple[tuple[Snapshot, ...], tuple[Snapshot, ...]]:
    """Snapshots for training and for validation, from the built-in training fleets; kept while several models are trained on them."""
    found = []
    for part, many, hours, times in (("train", count, TRAIN_HOURS, 1), ("held", held, HELD_HOURS, 4)):
        names = [(kind, f"{part}-{i}") for kind in KINDS for i in range(max(1, FLEETS[kind] // times))]
        rows: list[Snapshot] = []
        for f, (kind, number) in enumerate(names):
            work = training_fleet(kind, number)
            for i in range(f, many, len(names)):
                rng = stream(0, "train", "vm", "snapshot", part, str(i))
                rows.append(taken(work, rng, int(rng.integers(*hours))))
        found.append(tuple(rows))
    return found[0], found[1]


def taken(work: VmWork, rng: np.random.Generator, hour: int) -> Snapshot:
    """A snapshot of a fleet at the end of an hour, packed anew."""
    p = work.population
    # Half of the time deployments stay together, as they arrive.
    order = np.roll(np.arange(len(p)), int(rng.integers(len(p)))) if rng.random() < 0.5 else rng.permutation(len(p))
    order = order[: int(len(p) * rng.uniform(0.6, 1.0))]
    free_vcpus, free_gb = work.hosts.room(rng.uniform(1.0, 1.8)), work.hosts.memory_gb.copy()
    # Some hosts are kept emptier than others.
    free_vcpus = np.floor(free_vcpus * rng.uniform(0.4, 1.0, len(free_vcpus)))
    host = np.full(len(p), -1, np.int64)
    host[order] = best_fit(p.vcpu[order], p.memory_gb[order], free_vcpus, free_gb)
    state = work.state(hour, host, work.judge.played(hour, host))
    placed = np.flatnonzero(host >= 0)
    vms = rng.choice(placed, min(LISTS, len(placed)), replace=False)
    pool = rng.permutation(len(work.hosts))[:POOL]
    lists = np.stack([rng.permutation(len(pool))[:LIST] for _ in vms])
    # A host that has the VM already is no target.
    mine = pool[lists] == host[vms][:, None]
    spare = np.array([np.setdiff1d(np.arange(len(pool)), row)[0] for row in lists])
    lists = np.where(mine, spare[:, None], lists)
    every = np.concatenate([pool[lists].reshape(-1), host[vms]])
    qos = work.judge.pairs(hour + 1, host, np.concatenate([np.repeat(vms, lists.shape[1]), vms]), every)
    return of_state(state, vms, pool, lists, qos[: lists.size].reshape(lists.shape), qos[lists.size :])


def of_state(state: State, vms: Ints, pool: Ints, lists: Ints, qos: Floats, source_qos: Floats) -> Snapshot:
    """What of a state is needed."""
    index = np.arange(len(state.x), dtype=np.float32)[:, None]
    held, real = state.sets(index, pool)
    own, own_real = state.sets(index, state.host[vms], vms)
    return Snapshot(
        state.x.astype(np.float32), state.host_x[pool].astype(np.float32), np.where(real, held[..., 0], -1).astype(np.int64), vms, lists,
        state.without(vms).astype(np.float32), np.where(own_real, own[..., 0], -1).astype(np.int64), qos.astype(np.float32),
        source_qos.astype(np.float32),
    )  # fmt: skip


def pairs(rows: Sequence[Snapshot]) -> tuple[Singles, Singles]:
    """VM and host features side by side, [pairs, 44], and their QoS, of all that the snapshots know; own hosts are among them."""
    inputs, target = [], []
    for one in rows:
        vm = np.repeat(one.x[one.vms], one.lists.shape[1], axis=0)
        inputs += [np.concatenate([vm, one.host_x[one.lists.reshape(-1)]], 1), np.concatenate([one.x[one.vms], one.source_x], 1)]
        target += [one.qos.reshape(-1), one.source_qos]
    x, y = np.concatenate(inputs), np.concatenate(target)
    known = np.isfinite(y)
    return x[known], y[known]


def schema(rows: Sequence[Snapshot]) -> Features:
    """The features of VMs and hosts with their means and scales over the listed pairs."""
    x, _ = pairs(rows)
    names: tuple[tuple[str, str], ...] = (*VM_FEATURES, *HOST_FEATURES)
    columns: dict[str, Any] = {name: x[:, i] for i, (name, _) in enumerate(names)}
    return Features.fit(columns, [Feature(name=name, unit=unit) for name, unit in names])
