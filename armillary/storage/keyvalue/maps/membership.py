"""Membership for data frames and estimators: which entries of a column are among these keys, and which number has each."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.errors import InputError

from ..tables.keys import KEY_TYPES, as_array, as_keys
from .simd_map import SimdMap


def contains(index: SimdMap, column: Any) -> Any:
    """Says which entries of a column are keys of the map.

    A Polars expression gives an expression (`frame.filter(contains(index, pl.col("id")))`), a Polars or pandas series a series of
    Booleans, anything else an array. Nulls of Polars stay null.
    """
    if type(column).__module__.partition(".")[0] == "polars" and type(column).__name__ == "Expr":
        import polars

        return column.map_batches(index.contains, return_dtype=polars.Boolean, is_elementwise=True)
    return index.contains(column)


def contained(index: SimdMap, series: Any) -> Any:
    """Answers `SimdMap.contains` in the library of the question."""
    library = type(series).__module__.partition(".")[0]
    if library == "polars":
        import polars

        absent = series.is_null()
        if not absent.any():
            return polars.Series(series.name, index.contains_many(series))
        known = index.contains_many(series.fill_null(strategy="zero") if series.dtype.is_numeric() else series)
        return polars.select(polars.when(absent).then(None).otherwise(polars.Series(known)).alias(series.name)).to_series()
    if library == "pandas":
        return type(series)(index.contains_many(series), index=series.index, name=series.name)
    return index.contains_many(series)


def fast_isin(a: Any, b: Any, *, threads: int | None = 1) -> Any:
    """Says which entries of `a` are in `b`, as `numpy.isin(a, b)` and `pandas.Series.isin` do, through a SimdMap of `b`.

    It takes integers and floats of 32 and 64 bits, also of different types where no value is lost. Unlike NumPy's, a NaN is in `b` if
    `b` has a NaN (pandas agrees). A pandas series gives a series, an array an array of its shape.
    """
    if type(a).__module__.partition(".")[0] == "pandas":
        return type(a)(fast_isin(a.to_numpy(), b, threads=threads), index=a.index, name=a.name)
    asked = np.asarray(a.to_numpy() if hasattr(a, "to_numpy") else a)
    shape, asked = asked.shape, as_array(asked.ravel(), "a")
    among = as_array(b, "b")
    if not asked.size or not among.size:
        return np.zeros(shape, np.bool_)
    left, right, valid = _alike(asked, among)
    found = SimdMap(right, np.zeros(len(right), np.int32), threads=threads).contains_many(left)
    return (found & valid if valid is not None else found).reshape(shape)


def _alike(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Returns both in one key type, and which of `a` can be in it at all (None means all)."""
    if a.dtype == b.dtype and a.dtype.name in KEY_TYPES:
        return a, b, None
    kinds = {a.dtype.kind, b.dtype.kind}
    if not kinds <= set("iuf"):
        raise InputError(f"found types {a.dtype} and {b.dtype}; expected integers and floats", where="isin")
    if kinds == {"i", "u"} and np.promote_types(a.dtype, b.dtype).kind == "f":
        # int64 beside uint64: no type has both, but no negative number is in both either.
        fits = a >= 0
        return a.astype(np.uint64), b[b >= 0].astype(np.uint64), fits
    common = np.promote_types(np.promote_types(a.dtype, b.dtype), np.float32 if "f" in kinds else np.int32)
    if common.name not in KEY_TYPES:
        raise InputError(f"found types {a.dtype} and {b.dtype}; expected 32 or 64 bits", where="isin")
    return as_keys(a.astype(common)), as_keys(b.astype(common)), None


class Lookup:
    """Numbers the distinct keys that it was fitted on, as scikit-learn's LabelEncoder does, but gives unknown keys -1.

    `classes_` are the distinct keys in order; `transform` gives their positions (int64).
    """

    def __init__(self, load: float = 0.8, threads: int | None = 1) -> None:
        self.load = load
        self.threads = threads

    def fit(self, keys: Any, y: Any = None) -> Lookup:
        """Learns the distinct keys; `y` is ignored."""
        self.classes_ = np.unique(as_keys(_flat(keys)))
        codes = np.arange(len(self.classes_), dtype=np.int64)
        self.map_ = SimdMap(self.classes_, codes, self.load, unique=True, threads=self.threads)
        return self

    def transform(self, keys: Any) -> np.ndarray:
        """Returns the code of each key, -1 for those never seen."""
        return self._fitted().get_many(_flat(keys), -1)[0]

    def fit_transform(self, keys: Any, y: Any = None) -> np.ndarray:
        """Fits and then transforms."""
        return self.fit(keys).transform(keys)

    def inverse_transform(self, codes: Any) -> np.ndarray:
        """Returns the keys of codes that are not -1."""
        self._fitted()
        found = np.asarray(codes)
        if found.size and (found.min() < 0 or found.max() >= len(self.classes_)):
            raise InputError(f"found codes from {found.min()} to {found.max()}; expected 0 to {len(self.classes_) - 1}", where="codes")
        return np.asarray(self.classes_[found])

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns the parameters by name, as scikit-learn asks for them."""
        return {"load": self.load, "threads": self.threads}

    def set_params(self, **values: Any) -> Lookup:
        """Changes parameters; takes effect with the next `fit`."""
        for name, value in values.items():
            if name not in ("load", "threads"):
                raise InputError(f'found parameter "{name}"; expected load or threads', where="Lookup")
            setattr(self, name, value)
        return self

    def _fitted(self) -> SimdMap:
        if not hasattr(self, "map_"):
            raise InputError("found it unfitted; expected fit before transform", where="Lookup")
        return self.map_


def _flat(keys: Any) -> Any:
    """Returns a table of one column as that column."""
    shape = getattr(keys, "shape", None)
    if shape is not None and len(shape) == 2 and shape[1] == 1:
        return np.asarray(keys).ravel()
    return keys
