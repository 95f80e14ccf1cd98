"""A fitted GMPpredictor: it scores drives, names those at risk and says why. It needs PyTorch for nothing but `drift`.

predictor = GmpPredictor(horizon=30).fit(read_alibaba("smartlog/"))
predictor.predict(read_alibaba("smartlog/", last=30))
predictor.at_risk(top=50)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError, unknown

from ..features.daily import Daily, daily, names_of
from ..features.windows import places
from ..fleets.fleet import Array, Fleet
from ..judging.alarms import RECENT, Scored
from ..judging.split import MIN_DAYS
from ..networks.partition import place
from ..networks.scorer import Networks
from .costs import Held, thresholds
from .survival import Survival

if TYPE_CHECKING:
    import polars as pl

    from .drift import Drift


@dataclass(eq=False)
class Predictor:
    """What was learned from a fleet. `horizon` is in days, `threshold` a calibrated logit; both belong to all models of drives.

    `predict` remembers the fleet that it was given, so that `at_risk` and `explain` can speak about it.
    """

    networks: Networks
    #: The SMART attributes in the order in which features were made of them.
    attributes: tuple[int, ...]
    horizon: int
    threshold: float
    #: For how many healthy drives of the real fleet a healthy drive of the training fleet stands.
    weight: float
    survival_curves: Survival
    #: What the validation drives showed, for thresholds by cost.
    held: Held
    #: Per partition, how the attention of each failing drive of the training fleet is shared out over attributes.
    attention: dict[str, Array]
    trained_on: dict[str, Any] = field(default_factory=dict)
    #: The fleet that was scored last, its features and the answer.
    _seen: tuple[Fleet, Daily, pl.DataFrame] | None = field(default=None, repr=False)

    def predict(self, fleet: Fleet) -> pl.DataFrame:
        """One row per drive that is not known to have failed by the end of the log, for its last day in it.

        `probability` is that of a failure within the horizon, `flagged` what the threshold says of the last three days together, and
        `survival_7_days` and so on the probability of lasting so long, where the training log was long enough to tell. A drive with fewer
        than seven days of history has no score.
        """
        import polars as pl

        given = self.aligned(fleet)
        days = daily(given)
        last = days.end - 1
        enough = days.history[last] >= MIN_DAYS
        rows = _recent(days, last[enough])
        score = self.networks.scores(given, days, rows)
        alarm = Scored(days.drive[rows], days.day[rows], score).alarms()
        final = np.append(np.diff(days.drive[rows]) != 0, True) if len(rows) else np.zeros(0, bool)
        scores, alarms = np.full(len(given), np.nan), np.full(len(given), -np.inf)
        scores[days.drive[rows[final]]], alarms[days.drive[rows[final]]] = score[final], alarm[final]
        columns: dict[str, Any] = {
            "model": [given.models[int(m)] for m in given.model], "serial": list(given.serial),
            "date": [given.date(int(day)) for day in days.day[last]], "history_days": days.history[last], "scored": enough, "score": scores,
            "probability": 1 - self.survival_curves(self.horizon, scores), "flagged": alarms >= self.threshold,
        }  # fmt: skip
        columns |= {f"survival_{h}_days": self.survival_curves(h, scores) for h in self.survival_curves.known}
        gone = (given.failure > days.day[last]) & (given.failure < given.days)
        found = pl.DataFrame(columns).with_columns(pl.col(pl.Float64).fill_nan(None)).filter(~gone)
        self._seen = given, days, found
        return found

    def predict_proba(self, fleet: Fleet) -> Array:
        """[drive-days, 2] probabilities of surviving the horizon and of failing, for every day with enough history; see `windows`."""
        given = self.aligned(fleet)
        days = daily(given)
        rows = np.flatnonzero(days.history >= MIN_DAYS)
        lasts = self.survival_curves(self.horizon, self.networks.scores(given, days, rows))
        return np.stack([lasts, 1 - lasts], 1)

    def windows(self, fleet: Fleet) -> pl.DataFrame:
        """The drive and date of each row of `predict_proba`."""
        import polars as pl

        days = daily(fleet)
        rows = np.flatnonzero(days.history >= MIN_DAYS)
        drive, day = days.drive[rows], days.day[rows]
        named = {"model": [fleet.models[int(m)] for m in fleet.model[drive]], "serial": [fleet.serial[int(i)] for i in drive]}
        return pl.DataFrame(named | {"date": [fleet.date(int(one)) for one in day]})

    def at_risk(self, top: int = 50) -> pl.DataFrame:
        """The drives of the last `predict` that are likeliest to fail, the likeliest first, but those without a score."""
        return self._last()[2].filter("scored").sort(["score", "model", "serial"], descending=[True, False, False]).head(top)

    def importance(self, model: str) -> pl.DataFrame:
        """The weights that training gave the features of a model's networks, the largest first; 1 is the usual one."""
        import polars as pl

        part = self.networks.parts[self._part(model)]
        names = names_of(np.array(self.attributes))
        weight = np.mean([guide for _, guide in part.members], 0)
        rows = [{"feature": names[int(c)], "weight": float(w)} for c, w in zip(part.scaling.columns, weight)]
        return pl.DataFrame(rows).sort(["weight", "feature"], descending=[True, False])

    def explain(self, model: str, disk: str | int) -> pl.DataFrame:
        """What each attribute of a drive of the last `predict` adds to its score, compared with the attribute at its usual value.

        Attributes that add most come first, with their raw and normalised value on the last day and how much they rose in a week.
        """
        import polars as pl

        fleet, days, _ = self._last()
        drive = fleet.find(model, str(disk))
        row = int(days.end[drive]) - 1
        if days.history[row] < MIN_DAYS:
            raise InputError(f"found {int(days.history[row])} days of drive {model}/{disk}; expected at least {MIN_DAYS}")
        part = self.networks.parts[self._part(model)]
        how = self.networks.how
        used = places(days, np.array([row]), how.length)[0]
        window = part.scaling.rows(days, used)
        names = [names_of(np.array(self.attributes))[int(c)] for c in part.scaling.columns]
        owner = np.array([_attribute(name) for name in names])
        told = [a for a in dict.fromkeys(owner.tolist()) if a]
        usual = np.repeat(window[None], len(told) + 1, 0)
        for i, a in enumerate(told):
            usual[i + 1][:, owner == a] = 0
        score = part.slope * _logits(how, part.members, usual) + part.start
        last = int(fleet.start[drive + 1]) - 1
        values = days.values[row]
        rows = []
        for a, lost in zip(told, (score[0] - score[1:]).tolist()):
            i = self.attributes.index(a)
            week = values[4 * i + 2]
            rows.append({
                "attribute": a, "adds": lost, "raw": float(fleet.raw[last, i]), "normalised": float(fleet.normal[last, i]),
                "change_in_a_week": float(np.sign(week) * np.expm1(abs(week))),
            })  # fmt: skip
        return pl.DataFrame(rows).with_columns(pl.col(pl.Float64).fill_nan(None)).sort(["adds", "attribute"], descending=[True, False])

    def thresholds(self, false_swap: float, missed_failure: float) -> pl.DataFrame:
        """Per model of drive, the threshold that would have cost least on the validation days, and the money; see `costs.thresholds`."""
        return thresholds(self.held, self.threshold, self.weight, false_swap, missed_failure)

    def drift(self, fleet: Fleet) -> list[Drift]:
        """Whether the networks look at other attributes on the failures of a newer, labelled fleet than they did in training."""
        from .drift import drift

        return drift(self, self.aligned(fleet))

    def prometheus(self) -> str:
        """The last `predict` as Prometheus' text format."""
        from .prometheus import text

        return text(self._last()[2], self.horizon)

    def save(self, path: str | Path) -> None:
        """Writes the arrays to `path` (.npz) and everything else beside it as JSON."""
        from .storing import save

        save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Predictor:
        """Reads what `save` wrote, checked before anything is believed."""
        from .storing import load

        return load(Path(path))

    def aligned(self, fleet: Fleet) -> Fleet:
        """The fleet with the attributes of training, in their order; those that it does not report are unknown."""
        there = {int(a): i for i, a in enumerate(fleet.attributes.tolist())}
        if not set(there) & set(self.attributes):
            raise InputError(f"found the attributes {sorted(there)[:12]}; expected some of {list(self.attributes)}")
        at = np.array([there.get(a, len(there)) for a in self.attributes])

        def ordered(values: Array) -> Array:
            return np.ascontiguousarray(np.concatenate([values, np.full((len(values), 1), np.nan, values.dtype)], 1)[:, at])

        return replace(fleet, attributes=np.array(self.attributes), raw=ordered(fleet.raw), normal=ordered(fleet.normal))

    def _part(self, model: str) -> str:
        known = {one for part in self.networks.parts.values() for one in part.models}
        name = place(model, list(self.networks.parts))
        for key, part in self.networks.parts.items():
            if model in part.models:
                return key
        if self._seen is None or model not in self._seen[0].models:
            raise unknown("model of drive", model, known)
        return name

    def _last(self) -> tuple[Fleet, Daily, pl.DataFrame]:
        if self._seen is None:
            raise InputError("nothing was predicted yet; call predict(fleet) first")
        return self._seen


def _recent(days: Daily, last: Array) -> Array:
    """The last rows of each drive and the two before them that have enough history, in order."""
    rows = np.unique(np.concatenate([last - back for back in range(RECENT)])) if len(last) else last
    rows = rows[rows >= 0]
    ending = np.isin(days.drive[rows], days.drive[last])
    return rows[ending & (days.history[rows] >= MIN_DAYS)]


def _attribute(feature: str) -> int:
    """The SMART attribute of a feature, or 0."""
    number = feature.rpartition("_")[2]
    return int(number) if number.isdigit() else 0


def _logits(how: Any, members: Any, windows: Array) -> Array:
    """The mean logit of the members on windows [windows, days, features] that are already scaled."""
    from ..networks.frozen import logits

    flat = np.ascontiguousarray(windows.reshape(-1, windows.shape[-1]), np.float32)
    at = np.arange(len(flat)).reshape(windows.shape[:2])
    return np.asarray(np.mean([logits(how.kind, arrays, how.heads, flat * guide, at) for arrays, guide in members], 0))
