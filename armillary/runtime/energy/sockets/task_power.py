"""`TaskPower`: the published model as an estimator with `fit` and `predict`, for traces of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError, unknown
from armillary.runtime.energy.auto_lag import AutoLag
from armillary.runtime.energy.meters.readings import Readings
from armillary.runtime.energy.model.fitted import Fitted
from armillary.runtime.energy.model.observed import IDLE, Metered, Observed
from armillary.runtime.energy.model.uncertainty import bootstrap, standard_errors
from armillary.runtime.energy.taskwise import Taskwise
from armillary.runtime.energy.traces.reading import domains_of
from armillary.runtime.energy.traces.tasks import Real, TaskTrace, of_run

if TYPE_CHECKING:
    import polars as pl

_PARAMETERS = ("weights", "nonnegative", "huber", "merging", "base_w", "auto_lag", "domain")


class TaskPower:
    """Watts per type of task from a trace and a meter's readings.

    `fit(trace, readings)` takes a trace of `armillary.tasks` or of `read_trace` and one `Readings` or a mapping of domains to them.
    `fit(X, E)` takes worker-seconds per interval and column, and joules. After it `power_` has the watts by column, and `model_` all
    that is known.
    """

    def __init__(
        self, *, weights: bool = True, nonnegative: bool = True, huber: bool = True, merging: bool = True, base_w: float = 0.0,
        auto_lag: bool = False, domain: str = "",
    ) -> None:  # fmt: skip
        self.weights, self.nonnegative, self.huber, self.merging = weights, nonnegative, huber, merging
        self.base_w, self.auto_lag, self.domain = base_w, auto_lag, domain

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, as scikit-learn asks for them."""
        del deep
        return {name: getattr(self, name) for name in _PARAMETERS}

    def set_params(self, **values: Any) -> TaskPower:
        """Sets parameters."""
        for name, value in values.items():
            if name not in _PARAMETERS:
                raise unknown("parameter", name, _PARAMETERS, where="TaskPower")
            setattr(self, name, value)
        return self

    def fit(
        self, trace: Any, readings: Any, *, map: Mapping[str, str] | None = None, columns: Sequence[str] | None = None
    ) -> TaskPower:
        """Learns the powers. `map` says to which domain of the meter each worker belongs; `columns` names those of a matrix."""
        technique = Taskwise(self.weights, self.nonnegative, self.huber, self.merging, self.base_w)
        if isinstance(trace, np.ndarray) or (isinstance(trace, Sequence) and not isinstance(trace, str)):
            self._keep(technique.fit_observed(_observed(trace, readings, columns)), None)
            return self
        tasks = tasks_of(trace)
        run = self._metered(tasks, readings, map)
        self._keep(AutoLag().fit(run) if self.auto_lag else technique.fit(run), run)
        return self

    def _keep(self, model: Fitted, run: Metered | None) -> None:
        self.model_, self.run_ = model, run
        self.power_ = model.power

    def _metered(self, tasks: TaskTrace, readings: Any, map: Mapping[str, str] | None) -> Metered:
        named: dict[str, Readings] = {readings.domain: readings} if isinstance(readings, Readings) else dict(readings)
        if self.domain and self.domain not in named:
            raise unknown("domain", self.domain, named)
        belongs = domains_of(tasks, {self.domain: named[self.domain]} if self.domain and map is None else named, map)
        chosen = self.domain or next(iter(belongs))
        if not self.domain and len(belongs) > 1:
            raise InputError(f"found the domains {', '.join(belongs)}; expected TaskPower(domain=...), as each has its own powers")
        if chosen not in belongs:
            raise InputError(f'no worker belongs to the domain "{chosen}"; expected a map')
        return Metered(tasks, named[chosen], belongs[chosen])

    def predict(self, trace: Any, workers: Sequence[int] | None = None) -> Any:
        """Joules: of a whole trace as one number; of a `Metered` run or a matrix per interval."""
        if isinstance(trace, Metered | Observed):
            return self.model_.predict(trace)
        if isinstance(trace, np.ndarray) or (isinstance(trace, Sequence) and not isinstance(trace, str)):
            seen = self.model_.observed
            assert seen is not None
            return self.model_.predict(_observed(trace, None, seen.columns))
        from armillary.runtime.energy.meters.readings import Intervals
        from armillary.runtime.energy.model.observed import observe

        tasks = tasks_of(trace)
        low, high = tasks.span
        if workers is None:
            same = self.run_ is not None and len(self.run_.trace.workers) == len(tasks.workers)
            workers = self.run_.workers if self.run_ is not None and same else range(len(tasks.workers))
        whole = Intervals(np.array([low]), np.array([high]), np.array([np.nan]))
        return float(self.model_.predict(observe(tasks, tuple(workers), whole))[0])

    def energy_of(self, key: str) -> float:
        """Joules of one task of the fitted trace: the power of its type times its seconds."""
        if self.run_ is None:
            raise InputError("the model was fitted to a matrix; expected a trace, whose tasks have keys")
        tasks = self.run_.trace
        row = tasks.row_of(key)
        name = tasks.types[int(tasks.type[row])]
        column = name if name in self.power_ else f"{name}@{tasks.kinds[int(tasks.worker[row])]}"
        if column not in self.power_:
            raise InputError(f'task "{key}" ran on no worker of the domain "{self.run_.readings.domain}"')
        return self.power_[column] * float(tasks.end[row] - tasks.start[row]) * 1e-9 * float(tasks.weight[row])

    def table(self) -> pl.DataFrame:
        """One row per column: watts, its 95 % interval, standard error, seconds, joules, the share of all joules, and its group."""
        import polars as pl

        return pl.DataFrame(table_rows(self.model_), infer_schema_length=None)


def table_rows(model: Fitted) -> list[dict[str, Any]]:
    """The rows of `TaskPower.table`, the largest share of energy first."""
    seen = model.observed
    assert seen is not None
    spread, sure = bootstrap(model), standard_errors(model)
    seconds = dict(zip(seen.columns, seen.seconds.sum(axis=0).tolist()))
    joules = {name: model.power[name] * spent for name, spent in seconds.items()}
    total = sum(joules.values()) + model.base_w * float(seen.lengths.sum())
    group = {name: " + ".join(one) if len(one) > 1 else "" for one in model.groups for name in one}
    rows = [
        {
            "type": name, "watts": model.power[name], "low": spread[name][0], "high": spread[name][1], "standard_error": sure[name],
            "seconds": seconds[name], "joules": joules[name], "share": joules[name] / total if total else 0.0, "group": group.get(name, ""),
        }
        for name in seen.columns
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -float(row["joules"]))


def tasks_of(trace: Any) -> TaskTrace:
    """A trace in the arena's form, on the monotonic clock of this machine where the trace says when it began."""
    tasks = trace if isinstance(trace, TaskTrace) else of_run(trace)
    return tasks.shifted(tasks.origin_ns) if tasks.origin_ns is not None else tasks


def _observed(seconds: Any, energy: Any, columns: Sequence[str] | None) -> Observed:
    a: Real = np.atleast_2d(np.asarray(seconds, float))
    e = np.full(len(a), np.nan) if energy is None else np.asarray(energy, float)
    if a.ndim != 2 or e.shape != (len(a),) or not np.isfinite(a).all() or (a < 0).any() or (energy is not None and not (e > 0).all()):
        raise InputError(f"found shapes {a.shape} and {e.shape}; expected intervals × columns of worker-seconds, and joules above 0")
    names = tuple(columns) if columns is not None else (*(f"x{j}" for j in range(a.shape[1] - 1)), IDLE)
    if len(names) != a.shape[1] or len(set(names)) < len(names):
        raise InputError(f"found {a.shape[1]} columns and {len(set(names))} different names; expected as many")
    busy = tuple(name != IDLE for name in names)
    # Without a trace the length of an interval is not known, and nothing but the base needs it.
    return Observed(names, a, np.zeros(len(a)), e, 1, busy)
