"""Dense ids: the first key is 0, the next new one 1, whatever the keys are and however they arrive."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.storage import idmap
from armillary.storage.idmap import IdMap

words = st.integers(0, 2**64 - 1)


def by_dictionary(keys):
    """The same answer from a Python dictionary."""
    known: dict = {}
    return [known.setdefault(key, len(known)) for key in keys], list(known)


def test_first_appearance_decides():
    ids = IdMap()
    assert ids.map(np.array([7, 7, 0, 2**64 - 1, 0, 7], np.uint64)).tolist() == [0, 0, 1, 2, 1, 0]
    assert ids.map(np.array([5, 2**64 - 1], np.uint64)).tolist() == [3, 2]
    assert ids.keys.tolist() == [7, 0, 2**64 - 1, 5]
    assert len(ids) == 4


def test_nothing_maps_to_nothing():
    ids = IdMap()
    assert ids.map(np.empty(0, np.uint64)).dtype == np.int32
    assert len(ids) == 0


def test_two_words_differ_when_either_does():
    ids = IdMap(words=2)
    first = np.array([1, 1, 2, 1, 2], np.uint64)
    second = np.array([1, 2, 1, 1, 1], np.uint64)
    assert ids.map(first, second).tolist() == [0, 1, 2, 0, 2]


def test_the_number_of_words_is_fixed():
    with pytest.raises(TypeError):
        IdMap(words=2).map(np.zeros(1, np.uint64))


@given(keys=st.lists(st.one_of(words, st.integers(0, 50)), max_size=300), cut=st.integers(0, 300), seed=words)
def test_like_a_dictionary_in_any_pieces_with_any_seed(keys, cut, seed):
    expected, order = by_dictionary(keys)
    ids = IdMap(seed=seed)
    array = np.array(keys, np.uint64)
    assert ids.map(array[:cut]).tolist() + ids.map(array[cut:]).tolist() == expected
    assert ids.keys.tolist() == order


@given(pairs=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=200))
def test_pairs_like_a_dictionary(pairs):
    expected, _ = by_dictionary(pairs)
    array = np.array(pairs, np.uint64).reshape(-1, 2)
    assert IdMap(words=2).map(array[:, 0].copy(), array[:, 1].copy()).tolist() == expected


@settings(deadline=None, max_examples=5)
@given(seed=words)
def test_many_doublings_lose_nothing(seed):
    rng = np.random.default_rng(3)
    keys = rng.integers(0, 2**64, 40_000, dtype=np.uint64)[rng.integers(0, 40_000, 150_000)]
    order, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.empty(len(order), np.int64)
    rank[np.argsort(first)] = np.arange(len(order))
    ids = IdMap(seed=seed)
    assert np.array_equal(ids.map(keys), rank[inverse])
    assert np.array_equal(ids.keys, keys[np.sort(first)])


def test_keys_that_share_their_low_or_high_bits_are_spread():
    for keys in (np.arange(200_000, dtype=np.uint64) << np.uint64(40), np.arange(200_000, dtype=np.uint64)):
        ids = IdMap()
        assert np.array_equal(ids.map(keys), np.arange(200_000))
        used = np.flatnonzero(ids._slots)
        homes = (ids._slots[used] >> np.uint64(32)) >> np.uint64(32 - ids._bits)
        assert ((used - homes.astype(np.int64)) % len(ids._slots)).max() < 400  # probe lengths of a random placement, not of a pile


def test_keys_whose_hashes_agree_in_the_slot_are_told_apart():
    """Of 300,000 keys about ten pairs share the 32 bits that a slot keeps; only the keys themselves differ."""
    keys = np.arange(300_000, dtype=np.uint64)
    assert np.array_equal(IdMap(seed=1).map(keys), np.arange(300_000))
    assert np.array_equal(IdMap(words=2, seed=1).map(np.zeros_like(keys), keys), np.arange(300_000))
    assert np.array_equal(IdMap(words=2, seed=1).map(keys, np.zeros_like(keys)), np.arange(300_000))


def test_a_full_map_says_so(monkeypatch):
    monkeypatch.setattr(idmap, "MOST_KEYS", 10)
    ids = IdMap()
    assert ids.map(np.arange(10, dtype=np.uint64)).tolist() == list(range(10))
    assert ids.map(np.arange(10, dtype=np.uint64)).tolist() == list(range(10))
    with pytest.raises(idmap.InputError, match="more than 10 different ids"):
        ids.map(np.arange(11, dtype=np.uint64))
