"""The abilities of every technique of the arena: planning for a cluster, and serving requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.arena import Technique
from armillary.errors import InputError

from ..planning.placement import Plan, Slo
from ..simulation.bursts import CALM, Bursts
from .path import Path
from .wires import Wires

if TYPE_CHECKING:
    from armillary.cluster import Cluster

    from ..simulation.serving_run import Found, Served
    from ..workload import ServingWork


class Collective(Technique):
    """A way to send all-reduces; subclasses give `path`."""

    #: Whether planning considers the switches (homes by load, reserved slots) and requests go where they are expected to end first.
    aware: ClassVar[bool] = False
    by_finish: ClassVar[bool] = False

    @property
    def path(self) -> Path:
        """The rule by which its collectives are sent."""
        raise NotImplementedError

    def plan(
        self, config: str, cluster: Cluster | Wires | str, slo: Slo, *, like: str = "chat", count: int = 2000, seed: int = 0,
        bursts: Bursts = CALM,
    ) -> Plan:  # fmt: skip
        """Plans prefill and decode instances for a model (`config` is a preset or a config.json) on a cluster within `slo`.

        The plan is for `count` requests `like` chats or summaries, drawn from `seed`; ten candidates are simulated for a minute each.
        """
        from ..workload import synthetic

        if not isinstance(slo, Slo):
            raise InputError(f"slo: found {slo!r}; expected Slo(ttft_s, tpot_s)")
        wires = cluster if isinstance(cluster, Wires) else Wires.of(cluster, aggregates=self.path.switched)
        rng = np.random.default_rng(seed)
        return self.plan_work(synthetic(wires, config, like, count, rng, bursts=bursts, slo=slo))

    def plan_work(self, work: ServingWork, *, best: int | None = None, seconds: float | None = None) -> Plan:
        """Returns the plan for given requests, or the placement that they come with."""
        from ..planning.planner import BEST, SIMULATED_S, plan_for

        return plan_for(work, self.path, aware=self.aware, best=best or BEST, seconds=seconds or SIMULATED_S)

    def serve(self, work: ServingWork, plan: Plan, rate: float, *, slo: Slo | None = None) -> Served:
        """Serves the work at `rate` requests per second; with an `slo`, only for as long as it can be met."""
        from ..simulation.serving_run import serve

        arrival, prompt, output = work.at(rate)
        return serve(
            work.wires, plan, self.path, work.model, arrival, prompt, output, slo, bursts=work.bursts, seed=work.seed,
            by_finish=self.by_finish,
        )  # fmt: skip

    def max_rate(self, work: ServingWork, plan: Plan | None = None) -> Found:
        """Returns the highest rate of requests at which the work's bounds are met."""
        from ..planning.planner import compute_bound
        from ..simulation.serving_run import max_rate

        made = plan or self.plan_work(work)
        # The bound rests on means, and a short window hides some overload.
        bound = 1.5 * compute_bound(work)
        return max_rate(
            lambda rate, whole: self.serve(work, made, rate, slo=None if whole else work.slo), work.slo, work.rate, made.score, bound
        )
