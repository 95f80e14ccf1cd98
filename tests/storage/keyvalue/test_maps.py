"""Every technique gives the answers of a dict, and the arena runs them all."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import describe
from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.storage.keyvalue import Sorted, Swiss, best_map, distinct_keys, make_work, numba_dict, read_column
from armillary.storage.keyvalue.arena import keyvalue
from armillary.storage.keyvalue.numba_dict import allocated_bytes, dictionary_bytes
from armillary.storage.keyvalue.workload import own_queries

TECHNIQUES = list(keyvalue.techniques)
MEASURABLE = [name for name in TECHNIQUES if name not in ("dict", "numba-dict", "pandas-index", "polars-join")]
#: Keys that mark free slots somewhere, and neighbours.
EDGES = {4: [0, 1, 2**31, 2**32 - 2, 2**32 - 1], 8: [0, 1, 2**63, 2**64 - 2, 2**64 - 1, 2**32]}


@pytest.mark.parametrize("name", TECHNIQUES)
@pytest.mark.parametrize(("width", "value_width"), [(4, 4), (8, 8), (8, 4)])
@pytest.mark.parametrize("load", [0.5, 0.95])
def test_every_map_answers_as_a_dict_does(name: str, width: int, value_width: int, load: float) -> None:
    rng = np.random.default_rng(7)
    kind, values_kind = np.dtype(f"u{width}"), np.dtype(f"u{value_width}")
    pool = np.unique(np.concatenate([rng.integers(0, 3000, 2000).astype(kind), np.array(EDGES[width], kind)]))
    keys = rng.permutation(np.concatenate([rng.choice(pool, 1500), np.array(EDGES[width][2:], kind)]))
    values = rng.integers(0, 256, (len(keys), value_width), dtype=np.uint8).view(values_kind).ravel()
    queries = np.concatenate([pool, np.array(EDGES[width], kind)])
    table: Any = keyvalue.make(name)
    got, found = table.build(keys, values, load).get_many(queries, 5)
    held = dict(zip(keys.tolist(), values.tolist()))
    assert found.tolist() == [query in held for query in queries.tolist()]
    assert got.tolist() == [held.get(query, 5) for query in queries.tolist()]


@pytest.mark.parametrize("name", TECHNIQUES)
def test_every_map_of_nothing_and_of_one_key_many_times(name: str) -> None:
    technique: Any = keyvalue.make(name)
    none = np.zeros(0, np.uint32)
    queries = np.arange(20, dtype=np.uint32)
    assert not technique.build(none, none, 0.8).get_many(queries)[1].any()
    same = technique.build(np.full(500, 3, np.uint32), np.arange(500, dtype=np.uint32), 0.8)
    values, found = same.get_many(queries)
    assert found.tolist() == [q == 3 for q in range(20)]
    assert values[3] == 499
    assert same.get_many(none)[0].shape == (0,)
    # malloc's count does not see a few bytes that come from its cache.
    assert same.nbytes > 0 or name == "numba-dict"


@pytest.mark.parametrize("name", MEASURABLE)
@given(seed=st.integers(0, 2**32), count=st.integers(0, 300), load=st.floats(0.1, 0.97))
@settings(max_examples=20, deadline=None)
def test_maps_agree_with_numpy_at_any_size_and_load(name: str, seed: int, count: int, load: float) -> None:
    rng = np.random.default_rng(seed)
    keys, queries = rng.integers(0, 400, count, dtype=np.uint64), np.arange(500, dtype=np.uint64)
    technique: Any = keyvalue.make(name)
    assert np.array_equal(technique.build(keys, keys, load).get_many(queries)[1], np.isin(queries, keys))


@pytest.mark.parametrize("name", MEASURABLE)
def test_lines_are_counted(name: str) -> None:
    work = make_work("uniform", "uint32", 20_000, 40_000, 0.5, np.random.default_rng(0))
    there = np.isin(work.queries, work.keys)
    table = keyvalue.make(name).build(work.keys, work.values, 0.8)  # type: ignore[attr-defined]
    hits, misses = table.mean_lines(work.queries[there]), table.mean_lines(work.queries[~there])
    assert hits >= (1 if name == "sorted" else 2) - 0.01, "a hit reads a key and a value"
    assert 1 <= misses <= (14 if name == "sorted" else 3.1)
    if name == "simd3":
        assert misses < 1.7
        assert hits < 2.3


def test_sorted_reads_as_many_lines_as_a_bisection_has_steps() -> None:
    keys = np.arange(16 * 64, dtype=np.uint32)
    # 64 lines: the middle of 1024 keys is key 512, then 256 …: six lines above the last, which holds key 0.
    assert Sorted().build(keys, keys, 0.8).mean_lines(np.zeros(1, np.uint32)) == 7 + 1


def test_a_swiss_lookup_of_an_absent_key_reads_little_but_tags() -> None:
    work = make_work("uniform", "uint64", 50_000, 50_000, 1.0, np.random.default_rng(1))
    assert 1.0 < Swiss().build(work.keys, work.values, 0.5).mean_lines(work.queries) < 1.15


@pytest.mark.parametrize("distribution", ["uniform", "dense", "clustered"])
@pytest.mark.parametrize("dtype", ["uint32", "int64"])
def test_keys_are_distinct_and_of_their_kind(distribution: str, dtype: str) -> None:
    keys = distinct_keys(distribution, dtype, 10_000, np.random.default_rng(4))
    assert keys.dtype == dtype
    assert len(np.unique(keys)) == 10_000
    if distribution == "dense":
        assert keys.tolist() == list(range(10_000))
    if distribution == "clustered":
        assert (np.diff(keys[:64].view("u4" if dtype == "uint32" else "u8")) == 1).all()
    if distribution == "uniform" and dtype == "uint32":
        assert abs(np.mean(keys / 2**32) - 0.5) < 0.02


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_unit_floats_are_distinct_and_uniform(dtype: str) -> None:
    keys = distinct_keys("unit", dtype, 100_000, np.random.default_rng(4))
    assert len(np.unique(keys)) == 100_000
    assert 0 <= keys.min() < 0.01
    assert 0.99 < keys.max() < 1
    assert abs(keys.mean() - 0.5) < 0.01


@pytest.mark.parametrize(
    ("distribution", "dtype"), [("uniform", "uint32"), ("dense", "int32"), ("clustered", "uint64"), ("unit", "float32")]
)
@pytest.mark.parametrize("miss", [0.0, 0.5, 0.9, 1.0])
def test_the_miss_rate_is_exact(distribution: str, dtype: str, miss: float) -> None:
    work = make_work(distribution, dtype, 5000, 10_000, miss, np.random.default_rng(2))
    assert len(work.queries) == 10_000
    assert np.isin(work.queries, work.keys).mean() == pytest.approx(1 - miss)
    assert len(np.unique(work.keys)) == 5000


def test_popular_keys_are_asked_for_more() -> None:
    work = make_work("uniform", "uint64", 10_000, 100_000, 0.0, np.random.default_rng(2), popularity="zipf")
    _, counts = np.unique(work.queries, return_counts=True)
    # Zipf 0.99 over 10^4: the most popular has 1/sum(k^-0.99), about 10 %.
    assert 0.07 < counts.max() / 100_000 < 0.14
    assert np.isin(work.queries, work.keys).all()


def run(name: str, case: str) -> Any:
    found = next(c for c in keyvalue.built_in("tiny") if c.name == case)
    outcome = keyvalue.execute(keyvalue.make(name), found.at(0, 0))
    return outcome if isinstance(outcome, NotForThisCase) else dict(outcome.values)


@pytest.mark.parametrize("name", TECHNIQUES)
def test_a_key_takes_the_bytes_that_the_load_says(name: str) -> None:
    # 4 + 4 bytes at least; a sorted array and a frame have no more.
    assert 8 <= run(name, "uniform-uint32@miss-90")["bytes_per_key"] < 200
    if name == "simd3":
        assert run(name, "uniform-uint32@miss-0")["bytes_per_key"] == pytest.approx(8 / 0.8, rel=0.05)
        assert run(name, "uniform-uint64@miss-0")["bytes_per_key"] == pytest.approx(16 / 0.8, rel=0.06)


def test_cases_that_are_not_for_a_technique_are_declined() -> None:
    for name, case in [("dict", "fill-0.9-uniform"), ("pandas-index", "lines-0.8@miss-100"), ("simd3", "published-size@miss-90")]:
        assert isinstance(run(name, case), NotForThisCase)
    assert run("cuckoo", "fill-0.9-uniform")["insert_failure_rate"] > 0
    assert run("simd3", "lines-0.5@miss-100")["lines_per_lookup"] < 1.03


def test_malloc_is_counted() -> None:
    before = allocated_bytes()
    kept = np.ones(1 << 22)
    assert allocated_bytes() - before == pytest.approx(kept.nbytes, rel=0.05)  # type: ignore[operator]


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_a_typed_dictionary_has_the_bytes_of_its_design(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = np.arange(100_000, dtype=dtype)
    counted = numba_dict.NumbaDict().build(keys, keys).nbytes
    assert dictionary_bytes(len(keys), keys.itemsize, keys.itemsize) == pytest.approx(counted, rel=0.01)
    monkeypatch.setattr(numba_dict, "allocated_bytes", lambda: None)
    assert numba_dict.NumbaDict().build(keys, keys).nbytes == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize("name", TECHNIQUES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_every_map_takes_numbers_of_any_type(name: str, dtype: str) -> None:
    """Floats compare by value: -0.0 is 0.0, and all NaNs are one key."""
    keys = np.array([0.0, 1.5, -2.25, np.nan, np.inf, 7.0] if "float" in dtype else [0, 1, -2, -1, 2**31 - 1, 7], dtype)
    table = keyvalue.make(name).build(keys, np.arange(-3, 3, dtype=np.int32))  # type: ignore[attr-defined]
    asked = np.array([-0.0, 1.5, 1.25, np.nan, 7.0] if "float" in dtype else [0, 1, 3, -1, 7], dtype)
    values, found = table.get_many(asked, default=-9)
    assert found.tolist() == [True, True, False, True, True]
    assert values.tolist() == [-3, -2, -9, 0, 2]


@pytest.mark.parametrize("name", TECHNIQUES)
def test_every_map_refuses_what_is_no_key(name: str) -> None:
    technique = keyvalue.make(name)
    for wrong in (np.array(["a"]), np.array([1j]), np.zeros((2, 2), np.uint32)):
        with pytest.raises(InputError, match="keys: found"):
            technique.build(wrong)  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="queries: found"):
        technique.build(np.array([1, 2], np.uint32)).get_many(np.array([0.5]))  # type: ignore[attr-defined]


def test_a_map_without_its_package_declines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    case = next(case for case in keyvalue.built_in("tiny") if case.name == "uniform-uint32@miss-90")
    declined = keyvalue.execute(keyvalue.make("pandas-index"), case)
    assert isinstance(declined, NotForThisCase)
    assert "pandas" in str(declined)


def test_keys_that_leave_no_room_for_misses_are_refused_at_once() -> None:
    """Every value of the type is a key, so that no draw can miss; a few small draws tell."""
    drawn = []

    class Counting(np.random.Generator):
        def integers(self, *given, **more):  # type: ignore[no-untyped-def, override]
            found = super().integers(*given, **more)
            drawn.append(np.size(found))
            return found

    keys = np.zeros(10, np.float64)
    keys[:] = np.inf
    with pytest.raises(InputError, match="hardly any value"):
        own_queries(keys, 0.5, 1_000_000, Counting(np.random.PCG64(0)))
    assert sum(drawn) < 600_000


def test_best_map_measures_and_returns_a_table_that_answers() -> None:
    rng = np.random.default_rng(0)
    keys = rng.permutation(30_000)
    advice = best_map(keys, rng.integers(0, 60_000, 20_000), techniques=["simd3", "sorted", "dict"], passes=1)
    assert set(advice.lookups_per_s) == {"simd3", "sorted", "dict"}
    assert advice.lookups_per_s[advice.name] == max(advice.lookups_per_s.values())
    assert advice.table.get_many(keys[:5].astype(np.uint64))[0].tolist() == [0, 1, 2, 3, 4]
    assert advice.bytes_per_key["sorted"] == 12
    assert not advice.skipped
    for queries, wrong, said in [([1], {"techniques": ["simd4"]}, "unknown technique"), ([], {}, "no queries"), ([1], {"load": 2}, "load")]:
        with pytest.raises(InputError, match=said):
            best_map([1], queries, **wrong)  # type: ignore[arg-type]


def test_a_package_that_is_missing_is_skipped_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without_pandas(name: str, package: str | None = None) -> Any:
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without_pandas)
    advice = best_map([1, 2], [1], techniques=["pandas-index", "simd3"], passes=1)
    assert list(advice.skipped) == ["pandas-index"]
    assert "the package pandas is not installed (pip install" in advice.skipped["pandas-index"]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    frame = polars.DataFrame({"name": [1.5, 2.5, 3.5], "id": [7, 8, 9]})
    found = {kind: tmp_path / f"keys.{kind}" for kind in ("npy", "parquet", "arrow", "csv")}
    np.save(found["npy"], np.array([7, 8, 9]))
    frame.write_parquet(found["parquet"])
    frame.write_ipc(found["arrow"])
    frame.write_csv(found["csv"])
    return found


@pytest.mark.parametrize("kind", ["npy", "parquet", "arrow", "csv"])
def test_columns_are_read(files: dict[str, Path], kind: str) -> None:
    assert read_column(files[kind], "" if kind == "npy" else "id").tolist() == [7, 8, 9]
    if kind != "npy":
        assert read_column(files[kind]).tolist() == [1.5, 2.5, 3.5]
        with pytest.raises(InputError, match="unknown column"):
            read_column(files[kind], "age")


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.npy", b"\x93NUMPY\x01\x00junk"), ("b.npy", b""), ("c.parquet", b"PAR1nothing"), ("d.csv", b"id\nx\n"), ("e.csv", b"id\n1\n\n"),
     ("f.csv", b""), ("g.txt", b"1"), ("h.arrow", b"ARROW1")],
)  # fmt: skip
def test_files_that_cannot_be_read_are_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_column(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_an_array_header_that_promises_too_much_allocates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "huge.npy"
    np.save(path, np.arange(10))
    path.write_bytes(path.read_bytes().replace(b"(10,)", b"(9" + b"9" * 14 + b",)", 1))
    with pytest.raises(InputError, match="not an array of numbers"):
        read_column(path)
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError, match="not an array of numbers"):
        read_column(tmp_path / "objects.npy")


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_a_users_file_becomes_cases(files: dict[str, Path], kind: str, tmp_path: Path) -> None:
    options = {} if kind == "npy" else {"column": "id", "values": "name"}
    made = keyvalue.from_file(files[kind], {**options, "miss": "0,0.9"})
    assert [case.name for case in made] == [f"keys.{kind}@miss-0", f"keys.{kind}@miss-90"]
    work = made[1].at(0, 0).workload
    assert np.isin(work.queries, work.keys).mean() == pytest.approx(0.1)
    queries = tmp_path / "queries.npy"
    np.save(queries, np.array([9, 9, 1]))
    asked = keyvalue.from_file(files[kind], {**options, "queries": str(queries)})
    assert asked[0].at(0, 0).workload.queries.tolist() == [9, 9, 1]


def test_what_the_options_cannot_be_is_said(files: dict[str, Path], tmp_path: Path) -> None:
    np.save(tmp_path / "none.npy", np.zeros(0, np.int64))
    with pytest.raises(InputError, match="no rows"):
        keyvalue.from_file(tmp_path / "none.npy")
    with pytest.raises(InputError, match="unknown column"):
        keyvalue.from_file(files["csv"], {"values": "x"})
    with pytest.raises(InputError, match="hardly any value"):
        own_queries(np.array([np.nan], np.float32), 1.0, 1000, np.random.default_rng(0))
    shown = describe.text(describe.technique(keyvalue, "simd3")).casefold()
    assert "our design" in shown
    assert "two-choice" in shown
