"""SimdMap against dict, under every key type, with keys that collide, and at its edges."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from scipy.stats import poisson

from armillary.errors import InputError
from armillary.storage.keyvalue import SimdMap, distinct_keys
from armillary.storage.keyvalue.tables import buckets as kernels
from armillary.storage.keyvalue.tables.buckets import STASH, STASH_LANES, stash_lanes
from armillary.storage.keyvalue.tables.keys import KEY_TYPES, bits_of

RNG = np.random.default_rng(11)


def float_of(pattern: int, width: int) -> float:
    return struct.unpack("<f" if width == 4 else "<d", pattern.to_bytes(width, "little"))[0]


def awkward(dtype: str) -> list[Any]:
    """Forty keys of a type: the reserved patterns, the edges, and more than two buckets hold."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        width = kind.itemsize
        ones, quiet = (1 << 8 * width) - 1, (0x7FC00000 if width == 4 else 0x7FF8 << 48)
        nans = [float_of(p, width) for p in (ones, ones - 1, quiet, quiet + 1, quiet | 1 << (8 * width - 1))]
        return [*nans, math.inf, -math.inf, 0.0, -0.0, 1.5, *(float(i) for i in range(1, 31))]
    limits = np.iinfo(kind)
    odd = [limits.max, limits.max - 1, limits.min, limits.min + 1, 0, 1]
    return [*odd, *(-1, -2) * (kind.kind == "i"), *range(2, 42 - len(odd) - 2 * (kind.kind == "i"))]


def canonical(key: Any) -> Any:
    return "nan" if key != key else key + 0 if not isinstance(key, float) else key + 0.0


class Behaviour(RuleBasedStateMachine):
    """Insert, overwrite, delete and get, beside a dict."""

    dtype = "uint32"
    two_choice = False

    @initialize(count=st.integers(0, 3))
    def begin(self, count: int) -> None:
        self.pool = np.array(awkward(self.dtype), self.dtype)
        insert = "two-choice" if self.two_choice else "first-fit"
        self.map = SimdMap(self.pool[:count], np.arange(count, dtype=np.uint32), 0.97, insert=insert)
        self.model = {canonical(k): i for i, k in enumerate(self.pool[:count].tolist())}
        self.clock = 100

    @rule(picks=st.lists(st.integers(0, 39), max_size=30))
    def insert(self, picks: list[int]) -> None:
        keys, values = self.pool[picks], np.arange(self.clock, self.clock + len(picks), dtype=np.uint32)
        self.clock += len(picks)
        self.map.insert_many(keys, values)
        self.model |= {canonical(k): v for k, v in zip(keys.tolist(), values.tolist())}

    @rule(picks=st.lists(st.integers(0, 39), max_size=30))
    def delete(self, picks: list[int]) -> None:
        found = self.map.delete_many(self.pool[picks])
        for key, was in zip(self.pool[picks].tolist(), found.tolist()):
            assert was == (self.model.pop(canonical(key), None) is not None)

    @invariant()
    def agrees(self) -> None:
        values, found = self.map.get_many(self.pool, 7)
        for key, value, was in zip(self.pool.tolist(), values.tolist(), found.tolist()):
            assert was == (canonical(key) in self.model)
            assert value == self.model.get(canonical(key), 7)
        assert len(self.map) == len(self.model)
        assert np.array_equal(self.map.contains_many(self.pool), found)
        keys, held = self.map.items()
        assert {canonical(k): v for k, v in zip(keys.tolist(), held.tolist())} == self.model


def machine(dtype: str, two_choice: bool) -> Any:
    made: Any = type(f"Behaviour_{dtype}", (Behaviour,), {"dtype": dtype, "two_choice": two_choice})
    made.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
    return made.TestCase


TestUint32 = machine("uint32", False)
TestInt32TwoChoice = machine("int32", True)
TestUint64 = machine("uint64", False)
TestInt64 = machine("int64", False)
TestFloat32 = machine("float32", False)
TestFloat64TwoChoice = machine("float64", True)


def test_a_key_pushed_out_of_its_first_bucket_is_found_after_a_neighbour_left() -> None:
    index = SimdMap(np.zeros(0, np.uint32), np.zeros(0, np.uint32))
    index._allocate(20)
    some = np.arange(1, 5000, dtype=np.uint32)
    keys = some[[kernels.candidate(index._layout, 0, key) == 3 for key in some]][:17]
    assert len(keys) == 17
    index.insert_many(keys, keys)
    pushed = keys[16]
    lane = np.flatnonzero(index._keys == pushed)[0]
    assert lane // 16 != 3, "the bucket is full, so it went to another"
    index.delete_many(keys[:1])
    assert index.contains_many([pushed])[0]
    assert index.get_many([pushed])[0][0] == pushed
    assert not index.contains_many(keys[:1])[0]
    index.insert_many([pushed], np.array([5], np.uint32))
    assert len(index) == 16, "overwritten where it stood, not inserted a second time into the lane that was freed"
    assert index[pushed] == 5


def test_a_bucket_that_was_never_full_is_emptied_without_tombstones() -> None:
    index = SimdMap(np.arange(10, dtype=np.int64))
    assert index.delete_many(np.arange(10)).all()
    assert not len(index)
    assert (index._keys == np.iinfo(np.uint64).max).all()


def test_a_key_in_the_stash_is_overwritten_there() -> None:
    index = SimdMap(np.zeros(0, np.uint32), np.zeros(0, np.uint32))
    keys = np.arange(60, dtype=np.uint32)
    index.insert_many(keys, keys)
    assert index.stashed > 0
    index.delete_many(keys[:20])
    index.insert_many(keys[20:], keys[20:] + 1)
    assert len(index) == 40
    assert np.array_equal(index.get_many(keys[20:])[0], keys[20:] + 1)
    index.delete_many(keys[20:])
    assert len(index) == 0
    assert index.stashed == 0


@pytest.mark.parametrize("dtype", KEY_TYPES)
@pytest.mark.parametrize("values", ["uint32", "int64", "float64"])
def test_every_key_and_value_type(dtype: str, values: str) -> None:
    keys = RNG.permutation(5000).astype(dtype)
    held = np.arange(5000).astype(values)
    index = SimdMap(keys, held)
    got, found = index.get_many(keys[::-1])
    assert found.all()
    assert got.dtype == np.dtype(values)
    assert np.array_equal(got, held[::-1])
    absent = np.arange(5000, 9000).astype(dtype)
    assert not index.contains_many(absent).any()
    assert (index.get_many(absent, 3)[0] == 3).all()


@pytest.mark.parametrize("dtype", ["uint32", "uint64", "float32"])
@pytest.mark.parametrize("insert", ["first-fit", "two-choice"])
def test_it_grows_to_many_times_its_size(dtype: str, insert: Any) -> None:
    index = SimdMap(np.arange(1000).astype(dtype), insert=insert)
    before = index.capacity
    keys = RNG.permutation(10 * before).astype(dtype)
    for part in np.array_split(keys, 7):
        index.insert_many(part, part.astype(np.int32))
    assert index.capacity > 5 * before
    values, found = index.get_many(keys)
    assert found.all()
    assert np.array_equal(values, keys.astype(np.int32))
    assert index.failures >= STASH
    assert 0.3 < index.fill <= 1


def test_nothing_one_and_the_same() -> None:
    none = SimdMap()
    assert len(none) == 0
    assert not none.contains_many([1, 2, 3]).any()
    assert none.get_many(np.zeros(0, np.int64))[0].shape == (0,)
    assert not none.delete_many([4]).any()
    none.insert_many([])
    one = SimdMap([5])
    assert one[5] == 0
    assert 6 not in one
    with pytest.raises(KeyError):
        one[6]
    same = SimdMap(np.full(100_000, 3, np.uint64))
    assert len(same) == 1
    assert same[3] == 99_999, "the last one counts"
    assert not same.contains_many(np.arange(4, 1000)).any()
    assert "1 uint64 keys" in repr(same)


@pytest.mark.parametrize("dtype", ["uint32", "float64"])
@pytest.mark.parametrize("load", [0.01, 0.5, 0.97])
def test_every_bucket_stands_on_a_line(dtype: str, load: float) -> None:
    for n in (0, 1, 1000, 30_000):
        index = SimdMap(np.arange(n).astype(dtype), load=load)
        assert index._keys.ctypes.data % 64 == 0
        assert index._keys.nbytes % 64 == 0
        assert all((index._layout[:, 1] + index._layout[:, 2]) * np.uint64(64) <= index._keys.nbytes)


@pytest.mark.parametrize("unique", [False, True])
def test_threads_build_and_answer_the_same(unique: bool) -> None:
    keys = np.concatenate([RNG.permutation(300_000), [-1, -2]])
    if not unique:
        keys = np.concatenate([keys, keys[:50_000], [-1]])
    one, many = SimdMap(keys, unique=unique), SimdMap(keys, unique=unique, threads=3)
    queries = RNG.integers(-5, 600_000, 400_000)
    for mine, theirs in zip(one.get_many(queries, -7), many.get_many(queries, -7)):
        assert np.array_equal(mine, theirs)
    assert len(one) == len(many) == 300_002
    many.insert_many(np.arange(300_000, 900_000), unique=True)
    assert len(many) == 900_002
    assert many.contains_many(np.arange(900_000)).all()
    assert not many.contains_many(np.arange(900_000, 1_000_000)).any()
    many.delete_many(np.arange(0, 900_000, 2))
    assert np.array_equal(many.contains_many(np.arange(900_000)), np.arange(900_000) % 2 == 1)


def test_many_tombstones_are_swept() -> None:
    index = SimdMap(np.arange(840, dtype=np.uint32), load=0.97)
    before = index.capacity
    index.delete_many(np.arange(800))
    assert len(index) == 40
    assert index.capacity == before
    assert index.contains_many(np.arange(800, 840)).all()
    assert index.lines(np.arange(1000, 20_000))[0] == 1, "absent keys stop at the first line again"


def test_float_keys_are_compared_by_value() -> None:
    nan = np.array([float_of(p, 8) for p in (0x7FF8 << 48, 0xFFF8 << 48, (1 << 64) - 1)])
    index = SimdMap(np.array([-0.0, nan[0], 1.0]), np.array([1, 2, 3]))
    assert index.get_many(np.array([0.0, -0.0]))[0].tolist() == [1, 1]
    assert index.get_many(nan)[0].tolist() == [2, 2, 2]
    assert len(index) == 3
    assert bits_of(np.array([-0.0, 0.0])).tolist() == [0, 0]


def test_row_numbers_go_on() -> None:
    index = SimdMap([10, 20])
    index.insert_many([30, 10])
    assert index.get_many([10, 20, 30])[0].tolist() == [3, 1, 2]


def test_absent_keys_read_one_line_at_half_load() -> None:
    keys, absent = RNG.permutation(200_000).astype(np.uint32), np.arange(200_000, 400_000, dtype=np.uint32)
    of_keys, of_values = SimdMap(keys, load=0.5).lines(absent)
    # A second line is read where the first bucket is full: 0.5 of all slots is 0.5/0.9 of the primary region's.
    assert of_keys == pytest.approx(1 + poisson.sf(15, 16 * 0.5 / 0.9), abs=0.002)
    assert of_values == 0
    one_region = SimdMap(keys, load=0.5, layout="three-hash").lines(absent)[0]
    assert 1 < one_region < 1.01
    assert SimdMap(keys, insert="two-choice", load=0.5).lines(absent)[0] == pytest.approx(3, abs=0.001)


def test_lines_at_the_default_load() -> None:
    keys = RNG.permutation(400_000).astype(np.uint32)
    index = SimdMap(keys[:200_000], load=0.8)
    # At least those that one hash alone fills, and more for the keys that come from elsewhere.
    assert 1 + poisson.sf(15, 16 * 0.8 / 0.9) <= index.lines(keys[200_000:])[0] <= 1.7
    of_keys, of_values = index.lines(keys[:200_000])
    assert of_keys <= 1.3
    assert of_values == 1


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: SimdMap(np.array([1, 2]), np.array([1])), "found 1 values for 2 keys"),
        (lambda: SimdMap(np.array(["a"], object)), "found type object"),
        (lambda: SimdMap(np.array([1j])), "found type complex128"),
        (lambda: SimdMap(np.array([1], np.int16)), "found type int16"),
        (lambda: SimdMap(np.zeros((2, 2))), "found 2 dimensions"),
        (lambda: SimdMap([[1, 2], [3]]), "expected a flat array"),
        (lambda: SimdMap([1], np.zeros(1, np.longdouble)), "4 or 8 bytes"),
        (lambda: SimdMap([1], np.zeros(1, np.int8)), "4 or 8 bytes"),
        (lambda: SimdMap([1], load=0.0), "load"),
        (lambda: SimdMap([1], load=0.98), "at most 0.97"),
        (lambda: SimdMap([1], load=float("nan")), "load"),
        (lambda: SimdMap([1], primary=1.0), "primary"),
        (lambda: SimdMap([1], insert="best"), "insert"),  # type: ignore[arg-type]
        (lambda: SimdMap([1], layout="four"), "layout"),  # type: ignore[arg-type]
        (lambda: SimdMap([1], threads=0), "threads"),
        (lambda: SimdMap(np.array([1], np.uint32)).get_many([-1]), "found -1"),
        (lambda: SimdMap(np.array([1], np.uint32)).get_many([0.5]), "found type float64"),
        (lambda: SimdMap([1]).get_many([1], "x"), "default"),
        (lambda: SimdMap([1], np.array([1.0])).insert_many([2]), "expected values"),
    ],
)
def test_bad_input_is_one_line(make: Any, said: str) -> None:
    with pytest.raises(InputError) as error:
        make()
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_the_stash_grows_with_the_table() -> None:
    assert [stash_lanes(slots) for slots in (8, 262_144, 262_145, 10_000_000)] == [64, 64, 128, 2496]


@pytest.mark.slow
def test_a_table_of_millions_of_wide_keys_keeps_its_load() -> None:
    """With a stash of 64 it outgrew its load above five million keys: 22.5 bytes per key and a fill of 0.53."""
    keys = distinct_keys("uniform", "uint64", 8_000_000, np.random.default_rng(0))
    index = SimdMap(keys, np.arange(len(keys), dtype=np.uint32), unique=True)
    assert 64 < index.stashed <= index.failures
    assert index.fill == pytest.approx(0.8, abs=0.001)
    assert index.nbytes / len(keys) < 15.1
    assert index.contains_many(keys).all()
    assert not index.contains_many(distinct_keys("uniform", "uint64", 9_000_000, np.random.default_rng(0))[8_000_000:]).any()


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_the_stash_is_a_table_of_its_own(dtype: type) -> None:
    """One hash and few buckets, so that hundreds of keys overflow; they are found, overwritten and deleted in the stash."""
    keys = distinct_keys("uniform", np.dtype(dtype).name, 300_000, np.random.default_rng(1))
    index = SimdMap(keys[:1], np.zeros(1, np.int32), layout="one-hash")
    index._allocate(int(len(keys) / (0.55 * 64 / keys.itemsize)))
    index._insert(keys, np.arange(len(keys), dtype=np.uint32), unique=True)
    assert index.stashed > 10
    assert np.array_equal(index.get_many(keys)[0], np.arange(len(keys)))
    start = len(index._keys) - int(index._state[STASH_LANES])
    held = index._keys[start:]
    stashed = held[held < np.iinfo(dtype).max - 1]
    assert len(stashed) == index.stashed
    index.insert_many(stashed, np.full(len(stashed), -5, np.int32))
    assert (index.get_many(stashed)[0] == -5).all()
    gone = stashed[::2]
    assert index.delete_many(gone).all()
    assert not index.contains_many(gone).any()
    assert index.contains_many(stashed[1::2]).all()
    index.insert_many(gone, np.full(len(gone), 3, np.int32))
    assert (index.get_many(gone)[0] == 3).all()
    assert len(index) == len(keys)


def test_a_file_of_the_first_version_is_read(tmp_path: Path) -> None:
    """Its stash has 64 lanes that are searched from the first on; the keys get their places in the new one."""
    keys = distinct_keys("uniform", "uint32", 5000, np.random.default_rng(2))
    index = SimdMap(keys, load=0.9)
    extra = distinct_keys("uniform", "uint32", 5040, np.random.default_rng(2))[5000:]
    slots = len(index._keys) - 64
    index._keys[slots : slots + 40] = extra
    index._values[slots : slots + 40] = np.arange(40)
    index.save(tmp_path / "new.npz")
    with np.load(tmp_path / "new.npz") as found:
        arrays = dict(found)
    header = json.loads(arrays["header"].tobytes()) | {"version": 1}
    np.savez(tmp_path / "old.npz", header=np.frombuffer(json.dumps(header).encode(), np.uint8), keys=arrays["keys"], values=arrays["values"])
    old = SimdMap.load(tmp_path / "old.npz")
    assert len(old) == 5040
    assert np.array_equal(old.get_many(extra)[0], np.arange(40))
    assert np.array_equal(old.get_many(keys)[0], np.arange(5000))
