"""TRACE's trained towers over plain arrays, without PyTorch: embeddings of VMs and hosts, all scores by two matrix products, the gate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.learn import Model
from armillary.learn.products import product
from armillary.scheduling.vm.problem.fleet import Floats, Ints
from armillary.scheduling.vm.problem.metrics import HOST_FEATURES, VM_FEATURES
from armillary.scheduling.vm.problem.state import WIDTH_V, State

from .standard import standardised

Singles = npt.NDArray[np.float32]
#: Sets that are encoded together, and VMs whose scores are computed together.
SETS, ROWS = 512, 4096
NAMES = tuple(name for name, _ in (*VM_FEATURES, *HOST_FEATURES))


class Towers:
    """A trained model of TRACE."""

    def __init__(self, model: Model, where: str | None = None) -> None:
        found = None if model.features is None else model.features.names
        if found != NAMES:
            missing = sorted(set(NAMES) - set(found or ())) or sorted(set(found or ()) - set(NAMES)) or ["another order"]
            said = f"found a model whose features differ in {missing[0]}; expected {len(NAMES)} features of VMs and hosts"
            raise InputError(said, where=where)
        assert model.features is not None
        self.features = model.features
        self.mean, self.scale = np.array(model.features.mean, np.float32), np.array(model.features.scale, np.float32)
        parts, arrays = (getattr(model.config, name, {}) for name in ("parts", "arrays"))
        if {"vm", "host"} - set(parts) or {"matrix", "u", "w", "bias", "gate"} - set(arrays):
            raise InputError("found a model without TRACE's towers; expected one that TRACE trained", where=where)
        frozen = model.frozen()
        self.vm, self.host = frozen["vm"], frozen["host"]
        self.set: Any = frozen["set"] if "set" in parts else None
        self.arrays = {name: frozen[name] for name in arrays}

    def standard(self, x: Floats) -> Singles:
        """VM features, standardised, [vms, 20]."""
        return standardised(x, self.mean[:WIDTH_V], self.scale[:WIDTH_V])

    def encode_vms(self, standard: Singles) -> Singles:
        """e_v, [vms, 32]."""
        return np.asarray(self.vm(standard), np.float32)

    def encode_hosts(self, host_x: Floats, sets: Singles, real: npt.NDArray[np.bool_]) -> Singles:
        """e_p, [hosts, 32]."""
        found = self.host(standardised(host_x, self.mean[WIDTH_V:], self.scale[WIDTH_V:]))
        if self.set is None:
            return np.asarray(found, np.float32)
        joined = np.concatenate([found, self.set(sets, real)], axis=1)
        return np.asarray(product(joined, self.arrays["join.weight"].T) + self.arrays["join.bias"], np.float32)

    def hosts_of(self, state: State, standard: Singles) -> Singles:
        """e_p of all hosts as they are."""
        out = np.empty((len(state.hosts), len(self.arrays["u"])), np.float32)
        for which in alike(np.diff(state.residents[1])):
            out[which] = self.encode_hosts(state.host_x[which], *state.sets(standard, which))
        return out

    def sources_of(self, state: State, standard: Singles, vms: Ints) -> Singles:
        """e_s: each VM's own host without it."""
        out = np.empty((len(vms), len(self.arrays["u"])), np.float32)
        for which in alike(np.diff(state.residents[1])[state.host[vms]]):
            some = vms[which]
            out[which] = self.encode_hosts(state.without(some), *state.sets(standard, state.host[some], some))
        return out

    def scores(self, e_v: Singles, e_p: Singles) -> Singles:
        """q̂ of all pairs, [vms, hosts]: two matrix products, in place."""
        a = self.arrays
        # The vectors u and w and the number b become one more column on both sides.
        right = np.concatenate([e_p, np.ones((len(e_p), 1), np.float32), (product(e_p, a["w"]) + a["bias"])[:, None]], axis=1).T
        out = np.empty((len(e_v), len(e_p)), np.float32)
        for start in range(0, len(e_v), ROWS):
            some = e_v[start : start + ROWS]
            left = np.concatenate([product(some, a["matrix"]), product(some, a["u"])[:, None], np.ones((len(some), 1), np.float32)], axis=1)
            block = out[start : start + ROWS]
            block[:] = product(left, right)
            squash(block)
        return out

    def pair_scores(self, e_v: Singles, e_p: Singles) -> Singles:
        """q̂ of rows that belong together, [n]."""
        a = self.arrays
        logit = (product(e_v, a["matrix"]) * e_p).sum(-1) + product(e_v, a["u"]) + product(e_p, a["w"]) + a["bias"]
        squash(logit)
        return np.asarray(logit, np.float32)

    def openness(self, e_s: Singles, e_p: Singles) -> Singles:
        """g of every move from the source of a VM to a host, [vms, hosts]."""
        k, tau = self.arrays["gate"]
        left = e_s / np.maximum(np.linalg.norm(e_s, axis=1, keepdims=True), 1e-8)
        right = e_p / np.maximum(np.linalg.norm(e_p, axis=1, keepdims=True), 1e-8)
        found = k * (tau - product(left, right.T))
        squash(found)
        return np.asarray(found, np.float32)


def alike(counts: Ints) -> Iterator[Ints]:
    """Sets by number in groups of similar size, so that little of a group is padding."""
    order = np.argsort(counts, kind="stable")
    each = max(16, min(SETS, -(-len(order) // 4)))
    for start in range(0, len(order), each):
        yield order[start : start + each]


def squash(logit: Singles) -> None:
    """The logistic function, in place."""
    np.negative(logit, out=logit)
    np.minimum(logit, 80.0, out=logit)
    np.exp(logit, out=logit)
    logit += 1.0
    np.reciprocal(logit, out=logit)
