"""Which numbers a model reads: named, in order, with their units, standardised, and with a rule for those that are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from armillary.errors import InputError, one_line

Array = np.ndarray[Any, np.dtype[np.float32]]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Feature(BaseModel):
    """One number: its name, its unit, and what is done where it is missing (NaN).

    "refuse" raises InputError, "mean" takes the mean, "indicator" takes the mean and adds a column that is 1 where it was missing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Annotated[str, Field(min_length=1, max_length=80)]
    unit: Annotated[str, Field(max_length=40)] = ""
    missing: Literal["refuse", "mean", "indicator"] = "refuse"


class Features(BaseModel):
    """The features of a model, in order, with the mean and scale by which each is standardised.

    `Features.fit(columns, [Feature("nodes"), …])` takes mean and standard deviation from training data, and `matrix(columns)` gives the
    float32 matrix [rows, width] that the model reads.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    features: Annotated[tuple[Feature, ...], Field(max_length=4096)]
    mean: tuple[Finite, ...]
    scale: tuple[Annotated[Finite, Field(gt=0)], ...]

    @model_validator(mode="after")
    def _whole(self) -> Features:
        if not len(self.features) == len(self.mean) == len(self.scale):
            raise ValueError(f"{len(self.features)} features have {len(self.mean)} means and {len(self.scale)} scales")
        if len(set(self.names)) < len(self.features):
            raise ValueError("two features have one name")
        return self

    @classmethod
    def fit(cls, columns: Any, features: Sequence[Feature | str]) -> Features:
        """Takes mean and standard deviation of each feature from its column; a constant feature gets the scale 1."""
        made = tuple(Feature(name=one) if isinstance(one, str) else one for one in features)
        mean, scale = [], []
        for one in made:
            values = _column(columns, one.name)
            known = values[np.isfinite(values)]
            mean.append(float(known.mean()) if known.size else 0.0)
            spread = float(known.std()) if known.size else 0.0
            scale.append(spread if spread > 1e-12 * (1 + abs(mean[-1])) else 1.0)
        return cls(features=made, mean=tuple(mean), scale=tuple(scale))

    @property
    def names(self) -> tuple[str, ...]:
        """The names in order."""
        return tuple(one.name for one in self.features)

    @property
    def width(self) -> int:
        """The columns of `matrix`: one per feature and one per indicator."""
        return len(self.features) + sum(one.missing == "indicator" for one in self.features)

    def matrix(self, columns: Any, *, units: Mapping[str, str] | None = None, where: str | None = None) -> Array:
        """The standardised features [rows, width] from a mapping of names to columns or a Polars frame.

        units: the units that the caller's columns have; one that differs from the stored unit is refused.
        """
        given = _names(columns)
        for what, names in (("no", set(self.names) - given), ("the unknown", given - set(self.names))):
            if names:
                listed = ", ".join(sorted(names)[:6])
                expected = one_line(", ".join(self.names), 200)
                raise InputError(f"found {what} feature {one_line(listed, 120)}; expected {expected}", where=where)
        for one in self.features:
            found = (units or {}).get(one.name, one.unit)
            if found != one.unit:
                raise InputError(f'{one.name}: found the unit "{one_line(found, 40)}"; expected "{one.unit}"', where=where)
        values = [_column(columns, name) for name in self.names]
        rows = {len(column) for column in values}
        if len(rows) > 1:
            raise InputError(f"found columns of {min(rows)} to {max(rows)} rows; expected equally many", where=where)
        out = np.zeros((rows.pop() if rows else 0, self.width), np.float32)
        extra = len(self.features)
        for i, (one, column) in enumerate(zip(self.features, values)):
            missing = np.isnan(column)
            bad = np.isinf(column) | (missing if one.missing == "refuse" else False)
            if bad.any():
                at = int(np.argmax(bad))
                raise InputError(f"{one.name}: found {column[at]} in row {at}; expected a finite number", where=where)
            out[:, i] = np.where(missing, 0.0, (column - self.mean[i]) / self.scale[i])
            if one.missing == "indicator":
                out[:, extra] = missing
                extra += 1
        return out


def _names(columns: Any) -> set[str]:
    return set(columns.columns) if hasattr(columns, "columns") else set(columns)


def _column(columns: Any, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    if name not in _names(columns):
        raise InputError(f'found no column "{name}"; expected one')
    try:
        return np.atleast_1d(np.asarray(columns[name], np.float64))
    except (TypeError, ValueError):
        raise InputError(f"{name}: found values that are no numbers; expected numbers") from None
