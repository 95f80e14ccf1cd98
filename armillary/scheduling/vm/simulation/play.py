"""Plays rounds of migration: every hour the worst VMs are offered, and the best recommended host that has room takes each.

The VMs that suffer most go first. A move takes effect for the next hour, whose QoS the contention model gives for all VMs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from armillary.scheduling.vm.problem.fleet import Floats, Ints
from armillary.scheduling.vm.problem.metrics import VM
from armillary.scheduling.vm.problem.ranker import Ranker, Recommended
from armillary.scheduling.vm.problem.state import State
from armillary.scheduling.vm.workload import VmWork


@dataclass(frozen=True)
class Move:
    """One migration: when, which VM, from where to where, and the gain of QoS promised and delivered in the next hour."""

    hour: int
    vm: int
    source: int
    target: int
    promised: float
    delivered: float


@dataclass(frozen=True)
class Played:
    """QoS of every VM in every hour that was played, [rounds, vms] (NaN where it was not there), the moves, and the last placement."""

    qos: Floats
    moves: list[Move]
    host: Ints

    @property
    def promise_error(self) -> float:
        """Σ|promised − delivered| over Σ|delivered|, 0 without moves."""
        off = sum(abs(move.promised - move.delivered) for move in self.moves)
        return off / max(sum(abs(move.delivered) for move in self.moves), 1e-9) if self.moves else 0.0

    def metrics(self) -> dict[str, float]:
        """The arena's figures."""
        known = self.qos[np.isfinite(self.qos)]
        return {
            "qos_mean": float(known.mean()), "qos_p5": float(np.percentile(known, 5)), "migrations": float(len(self.moves)),
            "promise_error": self.promise_error,
        }  # fmt: skip


def play(work: VmWork, ranker: Ranker) -> Played:
    """All rounds of a work with one technique."""
    judge = work.judge
    host = work.host.copy()
    quality = judge.played(work.start - 1, host)
    seen, moves = [], []
    for hour in range(work.start, work.start + work.rounds):
        state = work.state(hour - 1, host, quality)
        vms = offered(state, work.offered)
        ranker.look(hour)
        asked = accepted(state, vms, ranker.recommend(state, vms)) if len(vms) else []
        host = host.copy()
        for vm, target, _ in asked:
            host[vm] = target
        host = work.arrive(hour, host)
        quality = judge.played(hour, host)
        seen.append(quality.qos)
        made = [(vm, target, gain) for vm, target, gain in asked if host[vm] == target]
        if made:
            moved = np.array([vm for vm, _, _ in made], np.int64)
            stayed = judge.pairs(hour, host, moved, state.host[moved])
            moves += [
                Move(hour, vm, int(state.host[vm]), target, gain, float(quality.qos[vm] - stay))
                for (vm, target, gain), stay in zip(made, stayed)
            ]  # fmt: skip
    return Played(np.array(seen), moves, host)


def offered(state: State, share: float) -> Ints:
    """The VMs with the worst QoS, at least one, the worst first."""
    here = np.flatnonzero((state.host >= 0) & np.isfinite(state.qos))
    many = min(len(here), max(1, math.ceil(share * len(here)))) if share else 0
    return here[np.argsort(state.qos[here], kind="stable")[:many]]


def accepted(state: State, vms: Ints, found: Recommended) -> list[tuple[int, int, float]]:
    """(VM, host, promised gain) of the moves: for each VM in turn the first host on its list that is kept and has room left."""
    free_vcpus, free_gb = state.free_vcpus.copy(), state.free_gb.copy()
    made = []
    for i, vm in enumerate(vms.tolist()):
        vcpu, memory = state.x[vm, VM["vcpu"]], state.x[vm, VM["memory_gb"]]
        order = found.hosts[i]
        ok = np.flatnonzero(found.keep[i] & (free_vcpus[order] >= vcpu) & (free_gb[order] >= memory))
        if not len(ok):
            continue
        target, source = int(order[ok[0]]), int(state.host[vm])
        free_vcpus[target] -= vcpu
        free_gb[target] -= memory
        free_vcpus[source] += vcpu
        free_gb[source] += memory
        made.append((vm, target, float(found.gain[i, ok[0]])))
    return made
