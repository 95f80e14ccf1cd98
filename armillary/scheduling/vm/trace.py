"""TRACE: recommend hosts to VMs as a shop recommends goods, from one embedding of each.

One tower embeds a VM, another a host together with the set of VMs on it; a bilinear product of both predicts the QoS that the VM would
have there. The towers are independent, so that N hosts and M new VMs cost N + M embeddings and two matrix products. A VM that is already
placed costs one more, its own host without it. A gate closes for targets that look like the source, and an adaptive mask drops moves whose
gated gain does not pay for the migration or is not among the largest of the moment. What is left is a ranked list with scores and a mask,
which any scheduler can use as it is.

TRACE: A Targeted Recommender for VM Assignment in Cloud Environment, IEEE CLUSTER 2025. Two towers, interaction, gate and mask are
published. Layer sizes, features, the formulas of gate and mask, and the training are our design after the abstract.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.arena import Claim, Gain, Kind, Level, Parity, Technique, parameter
from armillary.learn import Model, Recipe, obtain

from .learning.cases import HELD, SNAPSHOTS, TRAINING
from .learning.towers import Towers
from .problem.fleet import Floats, Ints
from .problem.metrics import VM
from .problem.ranker import Ranker, Recommended, ranked
from .problem.state import State
from .workload import VmWork

if TYPE_CHECKING:
    from .recommender import Recommender

RIVALS = ("first-fit", "best-fit", "dot-product", "least-steal", "linear-qos", "boosted-pairs", "single-tower")
EPOCHS = 10
CONTENDED = (Kind("interfering"), Kind("bursty"))
#: SHA-256 of the shipped models, as `armillary learn rebuild trace` prints them.
SHIPPED: Mapping[str, str] = {
    "trace": "28b5a8c2f8d420ee459f61e6df51d4734b1140bec84f192a9c3131499f9364c1",
    "trace-no-sets": "2df84238223d2c84c1e77c806a081ac1bb01e01ad1a6298a7f43857131331117",
    "trace-no-cross": "828bd5de93a0e3abab8aa0a8194629115620d8294a5108de4ed86a5308c083a2",
}


@dataclass(frozen=True)
class Trace(Technique):
    """Two towers, a gate and a mask."""

    gate: bool = parameter(True, "whether moves to hosts that look like the source are closed")
    mask: bool = parameter(True, "whether moves must pay for themselves and be among the best of the moment")
    sets: bool = parameter(True, "whether the host's tower reads the set of VMs on it")
    cross: bool = parameter(True, "whether the towers have cross layers")
    budget: float = parameter(0.01, "share of the VMs that may move per round", range=(0.0, 1.0))
    c0: float = parameter(0.01, "gain of QoS that any move must bring", range=(0.0, 1.0))
    c1: float = parameter(0.0005, "and per second that copying its memory takes", range=(0.0, 1.0))
    network_gbps: float = parameter(10.0, "Gbit/s of the network over which VMs migrate", range=(0.001, 10_000.0))
    retrain: bool = parameter(False, "go on training on what was observed in the first days of the work itself")
    epochs: int = parameter(EPOCHS, "epochs of the training; any number but the default trains a new model", range=(1, 10_000))

    claims = (
        Claim(
            "qos_mean", over=RIVALS, by=Gain(percent=(6.3, None)), on=CONTENDED, honest=(4, 20), part=1,
            why="the paper's rivals and cloud are not ours, and the best of seven rivals counts here",
            says="at least 6.3 % more QoS", source="abstract", stand_in="modelled contention",
        ),
        Claim(
            "qos_mae", over=("linear-qos", "boosted-pairs", "single-tower"), by=Gain(percent=(2, None)), on=CONTENDED,
            says="predicts QoS better", source="abstract", stand_in="modelled contention",
        ),
        Claim(
            "ndcg@10", over=RIVALS, by=Gain(difference=(0.01, None)), on=CONTENDED, says="ranks hosts better", source="abstract",
            stand_in="modelled contention",
        ),
        Claim("pairs_per_s", over="boosted-pairs", by=Gain(ratio=(50, None)), on=CONTENDED, says="is lightweight", source="abstract"),
        Claim("migrations", by=Level(at_most=0.0), on=Kind("calm"), says="moves nothing where nothing is to gain", source="ours"),
        Claim("qos_mean", over="best-fit", by=Parity(within=0.001), on=Kind("calm"), says="and loses no QoS there", source="ours"),
    )  # fmt: skip

    @property
    def variant(self) -> str:
        """The name of the model file."""
        return "-".join(["trace", *(name for name, on in (("no-sets", self.sets), ("no-cross", self.cross)) if not on)])

    def recipe(self) -> Recipe:
        """How this variant's towers are made from the built-in training fleets."""
        facts = {"sets": self.sets, "cross": self.cross, "epochs": self.epochs, "snapshots": SNAPSHOTS, "held": HELD}
        return Recipe(
            "scheduling/vm/trace", "armillary.scheduling.vm.learning.train:train", parameters=facts, cases=TRAINING, name=self.variant,
            shipped=SHIPPED.get(self.variant, "") if self.epochs == EPOCHS else "", expected_s=50 if self.sets else 15,
        )  # fmt: skip

    def recipes(self) -> list[Recipe]:
        """The shipped models: that of the technique, and one without each trained part."""
        whole = replace(self, sets=True, cross=True)
        return [whole.recipe(), replace(whole, sets=False).recipe(), replace(whole, cross=False).recipe()]

    def model(self, work: VmWork | None = None) -> Model:
        """The trained model: the shipped one, or with `retrain` one that goes on from it with the work's own first days."""
        if self.retrain and work is not None:
            from .learning.logged import retrained

            return retrained(self.recipe(), work)
        return obtain(self.recipe())

    def ranker(self, work: VmWork) -> TraceRanker:
        """The towers with this gate and mask."""
        return TraceRanker(Towers(self.model(work)), self)

    @classmethod
    def load(cls, model: str | Path | None = None, **settings: Any) -> Recommender:
        """A recommender for a running cloud with the shipped model, or with one that `Recommender.save` wrote."""
        from .recommender import Recommender

        made = cls(**settings)
        return Recommender(made, obtain(replace(made, epochs=EPOCHS).recipe(), model))

    @classmethod
    def fit(cls, metrics: Any, hosts: Any = None, **settings: Any) -> Recommender:
        """A recommender that was trained on your own metrics: see `Recommender.fit`."""
        return cls.load(**settings).fit(metrics, hosts)


class TraceRanker(Ranker):
    """Scores by the towers, kept by gate and mask."""

    predicts = True

    def __init__(self, towers: Towers, how: Trace) -> None:
        self.towers, self.how = towers, how

    def scores(self, state: State, vms: Ints) -> Floats:
        standard = self.towers.standard(state.x)
        found, *_ = self._parts(state, standard, vms)
        return found

    def new_scores(self, state: State, vms: Ints) -> Floats:
        t = self.towers
        standard = t.standard(state.x)
        return t.scores(t.encode_vms(standard[vms]), t.hosts_of(state, standard))  # type: ignore[return-value]

    def recommend(self, state: State, vms: Ints) -> Recommended:
        """Ranks hosts by q̂; keeps p if g·(q̂(v, p) − q̂(v, s)) > m(v)."""
        found, e_s, e_p = self._parts(state, self.towers.standard(state.x), vms)
        own = state.host[vms]
        gain = found - found[np.arange(len(vms)), own][:, None]
        gated = gain * self.towers.openness(e_s, e_p) if self.how.gate else gain
        keep = gated > self.threshold(state, vms, gated)[:, None]
        keep &= np.arange(found.shape[1])[None, :] != own[:, None]
        return ranked(found, keep, gain)

    def threshold(self, state: State, vms: Ints, gated: Floats) -> Floats:
        """m(v) = max(0, c₀ + c₁·seconds of the copy + the (1 − budget) quantile of the current gains), [vms]; 0 without the mask.

        The current gain of a VM that is offered is that of its best host with room; the others cannot move now and have none.
        """
        how = self.how
        if not how.mask:
            return np.zeros(len(vms))
        x = state.x[vms]
        room = (state.free_vcpus >= x[:, VM["vcpu"], None]) & (state.free_gb >= x[:, VM["memory_gb"], None])
        current = np.zeros(max(int((state.host >= 0).sum()), len(vms)) + 1)
        current[: len(vms)] = np.where(room, gated, 0.0).max(1)
        level = float(np.quantile(current, 1.0 - how.budget, method="lower"))
        return np.maximum(0.0, how.c0 + how.c1 * x[:, VM["memory_gb"]] * 8.0 / how.network_gbps + level)

    def _parts(self, state: State, standard: Any, vms: Ints) -> tuple[Floats, Any, Any]:
        """(q̂ [vms, hosts] with own hosts scored without the VM, e_s, e_p)."""
        t = self.towers
        e_v, e_p = t.encode_vms(standard[vms]), t.hosts_of(state, standard)
        found = t.scores(e_v, e_p).astype(np.float64)
        placed = np.flatnonzero(state.host[vms] >= 0)
        e_s = np.zeros_like(e_v)
        if len(placed):
            e_s[placed] = t.sources_of(state, standard, vms[placed])
            found[placed, state.host[vms[placed]]] = t.pair_scores(e_v[placed], e_s[placed])
        return found, e_s, e_p

