"""Fits the cost of an engine's iterations to the engine's own benchmark, by running the simulator until both agree.

A record of `vllm bench serve --save-result --save-detailed` (or SGLang's, or `tiny.recording.record`) says when tokens came, but not which
tokens each iteration held. So the fit searches the constants with which a simulated run of the same requests has the same latencies and
throughput.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown

from ..cost.iteration import CostArrays
from .replica import Replica
from .request_files import bench, requests_of
from .requests import Requests

#: The constants that can be fitted: seconds per iteration, seconds per running sequence, and factors on the cost of tokens and of context.
CONSTANTS = ("host_s", "running_s", "tokens", "context")
#: The range around the start in which a constant is searched, as a factor; constants that start at zero are searched up to 50 ms.
REACH = 30.0
EVALUATIONS = 250


@dataclass(frozen=True)
class FittedCost:
    """A cost with changed constants: `host_s` and `running_s` in seconds, `tokens` and `context` as factors on those of `base`."""

    base: CostArrays
    host_s: float
    running_s: float
    tokens: float = 1.0
    context: float = 1.0

    def arrays(self) -> CostArrays:
        """The numbers that the compiled loop uses."""
        b = self.base
        return b._replace(
            body_s=b.body_s * self.tokens, head_s=b.head_s * self.tokens, pair_s=b.pair_s * self.context,
            context_s=b.context_s * self.context, computed_s=b.computed_s * self.context, host_s=self.host_s, running_s=self.running_s,
        )  # fmt: skip


@dataclass(frozen=True)
class Fitted:
    """A replica with fitted constants, and its relative errors against the measurement, by run and figure."""

    replica: Replica
    constants: Mapping[str, float]
    errors: tuple[Mapping[str, float], ...]
    #: The mean of |log(simulated / measured)| over runs and figures, and the value it rises to when each constant is reset.
    loss: float
    without: Mapping[str, float]

    @property
    def explains_most(self) -> str:
        """The constant without which the agreement would be the worst."""
        return max(self.without, key=lambda name: self.without[name])


def measured(record: Mapping[str, Any]) -> dict[str, float]:
    """The mean TTFT and TPOT (s) and the output tokens per second of a benchmark's record."""
    outputs = np.asarray(record["output_lens"], float)
    ttft = np.asarray(record.get("ttfts") or [], float)
    gaps = record.get("itls") or []
    if len(ttft) != len(outputs) or len(gaps) != len(outputs) or not len(outputs):
        raise InputError("expected ttfts and itls for every request (was the run saved with --save-detailed?)")
    tpot = [float(np.sum(g)) / (n - 1) for g, n in zip(gaps, outputs, strict=True) if n > 1 and len(g)]
    duration = float(record.get("duration") or 0.0)
    if duration <= 0 or not tpot:
        raise InputError("expected a positive duration and answers of more than one token")
    return {"ttft_s": float(ttft.mean()), "tpot_s": float(np.mean(tpot)), "output_per_s": float(outputs.sum()) / duration}


def simulated(replica: Replica, work: Requests) -> dict[str, float]:
    """The same figures of a simulated run."""
    result = replica.run(work)
    end = float(np.nanmax(result.finish))
    return {
        "ttft_s": float(np.nanmean(result.ttft)), "tpot_s": float(np.nanmean(result.tpot)),
        "output_per_s": float(work.output.sum(dtype=np.int64)) / (end - float(np.nanmin(result.arrived))),
    }  # fmt: skip


def errors(replica: Replica, record: Mapping[str, Any]) -> dict[str, float]:
    """The relative error simulated/measured − 1 of each figure of a run."""
    truth, ours = measured(record), simulated(replica, requests_of(record))
    return {name: ours[name] / truth[name] - 1.0 for name in truth}


def fit(replica: Replica, runs: Sequence[str | Path | Mapping[str, Any]], constants: Sequence[str] = CONSTANTS) -> Fitted:
    """The replica with the constants that bring its simulated runs nearest to the measured `runs` (files or records)."""
    from scipy.optimize import minimize

    for name in constants:
        if name not in CONSTANTS:
            raise unknown("constant", name, CONSTANTS)
    records = [run if isinstance(run, Mapping) else bench(run) for run in runs]
    if not records or not constants:
        raise InputError("fit: expected at least one run and one constant")
    base = replica.priced().arrays()
    works, truths = [requests_of(r) for r in records], [measured(r) for r in records]
    start = {"host_s": base.host_s, "running_s": base.running_s, "tokens": 1.0, "context": 1.0}
    least = {"host_s": 1e-4, "running_s": 1e-6}

    def with_(values: Mapping[str, float]) -> Replica:
        return replace(replica, cost=FittedCost(base, **values))

    def loss(values: Mapping[str, float]) -> float:
        made = with_(values)
        parts = []
        for work, truth in zip(works, truths, strict=True):
            ours = simulated(made, work)
            parts += [abs(np.log(ours[name] / truth[name])) for name in truth]
        return float(np.mean(parts))

    def of(x: np.ndarray) -> dict[str, float]:
        moved = {name: max(start[name], least.get(name, 0.0)) * float(np.exp(np.clip(v, -np.log(REACH), np.log(REACH))))
                 for name, v in zip(constants, x, strict=True)}  # fmt: skip
        return {**start, **moved}

    simplex = np.vstack([np.zeros(len(constants)), 1.2 * np.eye(len(constants))])
    options: Any = {"initial_simplex": simplex, "maxfev": EVALUATIONS, "xatol": 1e-3, "fatol": 1e-5}
    search: Any = minimize
    best = search(lambda x: loss(of(x)), simplex[0], method="Nelder-Mead", options=options)
    values = of(best.x)
    made = with_(values)
    without = {name: loss({**values, name: start[name]}) for name in constants}
    return Fitted(made, values, tuple(errors(made, record) for record in records), loss(values), without)
