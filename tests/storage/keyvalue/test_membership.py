"""Sockets: Polars, pandas and scikit-learn get what their own functions would give."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from armillary.errors import InputError
from armillary.storage.keyvalue import Lookup, SimdMap, contains, fast_isin

pandas = pytest.importorskip("pandas")
NUMBERS = st.sampled_from(["int8", "int32", "int64", "uint16", "uint32", "uint64", "float32", "float64"])


@given(data=st.data(), left=NUMBERS, right=NUMBERS)
@settings(max_examples=150, deadline=None)
def test_isin_is_numpys(data: st.DataObject, left: str, right: str) -> None:
    few = {"i": st.integers(-3, 5), "u": st.integers(0, 5), "f": st.sampled_from([-1.0, -0.0, 0.0, 0.5, 2.0, np.inf])}
    a = data.draw(hnp.arrays(left, st.integers(0, 20), elements=few[np.dtype(left).kind]))
    b = data.draw(hnp.arrays(right, st.integers(0, 20), elements=few[np.dtype(right).kind]))
    assert np.array_equal(fast_isin(a, b), np.isin(a, b))


def test_isin_at_the_edges_of_64_bits() -> None:
    a, b = np.array([-1, 2**62, -(2**63)]), np.array([2**64 - 1, 2**62, 2**63], np.uint64)
    assert fast_isin(a, b).tolist() == [False, True, False]
    assert fast_isin(b, a).tolist() == [False, True, False]
    assert fast_isin(np.ones((2, 3), int), [1]).shape == (2, 3)
    assert fast_isin(np.array([np.nan, 1.0]), [np.nan]).tolist() == [True, False]
    series = pandas.Series([1, 2, 3], index=[7, 8, 9], name="x")
    assert fast_isin(series, [2]).equals(series.isin([2]))
    assert fast_isin(pl.Series([1, 2]), pl.Series([2])).tolist() == [False, True]
    with pytest.raises(InputError, match="expected integers and floats"):
        fast_isin(np.array(["a"]), np.array(["a"]))


def test_polars_expressions_and_series() -> None:
    index = SimdMap(np.array([2, 3, 5]))
    frame = pl.DataFrame({"id": [1, 2, 3, None, 5]})
    asked = contains(index, frame["id"])
    assert asked.to_list() == [False, True, True, None, True]
    assert asked.name == "id"
    assert frame.filter(contains(index, pl.col("id")))["id"].to_list() == [2, 3, 5]
    assert frame.lazy().filter(contains(index, pl.col("id"))).collect()["id"].to_list() == [2, 3, 5]
    assert frame.with_columns(pl.col("id").map_batches(index.contains, return_dtype=pl.Boolean).alias("in"))["in"].null_count() == 1
    assert contains(SimdMap(np.array([0])), pl.Series([None, 0, 1], dtype=pl.Int64)).to_list() == [None, True, False]
    theirs = contains(index, pandas.Series([1, 2], index=[4, 5], name="y"))
    assert theirs.tolist() == [False, True]
    assert theirs.index.tolist() == [4, 5]
    assert contains(index, [5, 6]).tolist() == [True, False]


@given(hnp.arrays(np.float64, st.integers(1, 50), elements=st.sampled_from([0.0, -0.0, 1.0, 2.5, np.nan, np.inf])))
@settings(deadline=None)
def test_lookup_is_a_label_encoder(keys: np.ndarray) -> None:
    encoder = Lookup()
    codes = encoder.fit_transform(keys)
    assert np.array_equal(encoder.inverse_transform(codes), keys + 0.0, equal_nan=True)
    assert set(codes.tolist()) == set(range(len(encoder.classes_)))
    assert np.array_equal(codes, np.unique(keys, return_inverse=True)[1].ravel())


def test_lookup_gives_unknown_keys_minus_one() -> None:
    encoder = Lookup(load=0.5).fit(np.array([[30], [10], [30]]))
    assert encoder.classes_.tolist() == [10, 30]
    assert encoder.transform([10, 20, 30]).tolist() == [0, -1, 1]
    assert encoder.get_params() == {"load": 0.5, "threads": 1}
    assert encoder.set_params(load=0.9).load == 0.9
    with pytest.raises(InputError, match="expected 0 to 1"):
        encoder.inverse_transform([-1])
    with pytest.raises(InputError, match="unfitted"):
        Lookup().transform([1])
    with pytest.raises(InputError, match="parameter"):
        encoder.set_params(speed=1)


def test_lookup_clones_as_scikit_learn_does() -> None:
    sklearn = pytest.importorskip("sklearn.base")
    twin = sklearn.clone(Lookup(load=0.6))
    assert twin.load == 0.6
    assert not hasattr(twin, "map_")
