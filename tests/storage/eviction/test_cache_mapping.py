"""The mapping is a dictionary of bounded size that makes the choices of the kernel."""

import random
import threading

import cachetools
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from test_policies_references import PAIRS, pair

from armillary.errors import InputError
from armillary.storage.eviction import Arc, Belady, Fifo, FifoMep, Lirs, Lru, S3Fifo, TwoQ, WTinyLfu, memoize
from armillary.storage.eviction.sockets.mapping import ValueTooLarge

INSERT, DELETE = 1, 2
KEYS = st.integers(0, 25)


class MappingMachine(RuleBasedStateMachine):
    """Compares a mapping with the obvious policy, which must have the same keys after every step."""

    name = ""
    sized = False

    @initialize(capacity=st.integers(1, 12), factor=st.sampled_from([1, 3, 20]))
    def start(self, capacity, factor):
        policy, obvious = pair(self.name, self.sized)
        if self.sized:
            capacity *= factor
        self.told = []
        self.cache = policy.mapping(
            capacity, getsizeof=len if self.sized else None, on_evict=lambda key, value: self.told.append((key, value))
        )
        self.reference = obvious(capacity)
        self.values = {}

    def value(self, key, size):
        return "x" * size if self.sized else (key, size)

    @rule(key=KEYS)
    def read(self, key):
        if key in self.reference.size:
            self.reference.request(key, self.reference.size[key])
            assert self.cache[key] == self.values[key]
        else:
            with pytest.raises(KeyError):
                self.cache[key]

    @rule(key=KEYS, size=st.integers(1, 9))
    def write(self, key, size):
        value = self.value(key, size)
        counted = size if self.sized else 1
        if counted > self.reference.capacity:
            with pytest.raises(ValueTooLarge):
                self.cache[key] = value
            return
        before = len(self.reference.evictions)
        self.reference.request(key, counted, INSERT)
        if key in self.reference.size or key in self.reference.evictions[before:]:
            self.cache[key] = value
            self.values[key] = value
        else:
            with pytest.raises(ValueTooLarge):
                self.cache[key] = value

    @rule(key=KEYS)
    def delete(self, key):
        if key in self.reference.size:
            self.reference.request(key, 1, DELETE)
            del self.cache[key]
        else:
            with pytest.raises(KeyError):
                del self.cache[key]

    @rule(key=KEYS)
    def look_without_using(self, key):
        assert (key in self.cache) == (key in self.reference.size)

    @precondition(lambda self: self.reference.size)
    @rule(data=st.data())
    def read_something_cached(self, data):
        self.read(data.draw(st.sampled_from(sorted(self.reference.size))))

    @invariant()
    def same_keys_and_never_too_full(self):
        if not hasattr(self, "cache"):
            return
        assert set(self.cache) == set(self.reference.size)
        assert self.cache.currsize == self.reference.used <= self.cache.maxsize
        assert [key for key, _ in self.told] == self.reference.evictions
        # Numbers are reused, so there are few of them however many keys were seen.
        assert len(self.cache._keys) <= 26


def machine(name, sized):
    made = type(f"Machine_{name}_{sized}", (MappingMachine,), {"name": name, "sized": sized})
    made.TestCase.settings = settings(max_examples=12, stateful_step_count=40)
    return made.TestCase


@pytest.mark.parametrize("sized", [False, True], ids=["objects", "bytes"])
@pytest.mark.parametrize("name", ["fifo-mep", "lirs"])
def test_mapping_agrees_with_the_obvious_policy(name, sized):
    machine(name, sized)("runTest").runTest()


@pytest.mark.parametrize("sized", [False, True], ids=["objects", "bytes"])
@pytest.mark.parametrize("name", PAIRS)
def test_every_policy_as_a_mapping_over_many_random_steps(name, sized):
    """Takes the steps of the machine, drawn by a plain generator, which is cheap enough for every policy."""
    for seed in range(2):
        rng = random.Random(seed)
        run = type("Steps", (MappingMachine,), {"name": name, "sized": sized})()
        run.start(rng.randint(1, 12), rng.choice([1, 3, 20]))
        for _ in range(200):
            step = rng.choice([run.read, run.read, run.write, run.write, run.delete])
            arguments = [rng.randint(0, 25)] + ([rng.randint(1, 9)] if step == run.write else [])
            step(*arguments)
            run.same_keys_and_never_too_full()


@pytest.mark.parametrize("policy", [Fifo(), Lru(), Arc(), TwoQ(), S3Fifo(), Lirs(), FifoMep(), WTinyLfu()], ids=str)
def test_numbers_are_reused_so_memory_does_not_grow_with_the_keys_seen(policy):
    cache = policy.mapping(20)
    for key in range(3000):
        cache[key] = key
        cache.get(key - 7)
    assert len(cache) <= 20
    assert len(cache._keys) < 250


def test_on_evict_may_use_the_cache():
    cache = Lru().mapping(2, on_evict=lambda key, value: seen.append((key, value, len(cache), cache.get("b"))))
    seen = []
    for key in "abcd":
        cache[key] = key.upper()
    assert seen == [("a", "A", 2, "B"), ("c", "C", 2, "B")]
    assert list(cache) == ["b", "d"]


def test_values_may_be_anything_and_a_lookup_may_be_answered_by_a_subclass():
    cache = Lru().mapping(3)
    cache[None] = None
    assert cache[None] is None
    assert None in cache
    kind = type("Squares", (type(cache),), {"__missing__": lambda self, key: key * key})
    assert kind(Lru(), 3)[5] == 25


def test_mapping_methods():
    cache = Lru().mapping(3)
    cache.update(a=1, b=2, c=3)
    assert cache.pop("b") == 2
    assert cache.pop("b", 9) == 9
    assert cache.setdefault("d", 4) == 4
    assert dict(cache) == {"a": 1, "c": 3, "d": 4}
    assert cache.popitem() == ("a", 1)
    cache.clear()
    assert (len(cache), cache.currsize, cache.maxsize) == (0, 0, 3)
    assert "Lru()" in repr(cache)


@pytest.mark.parametrize("size", [1, 7])
def test_it_stands_in_for_cachetools(size):
    ours, theirs = Lru().mapping(50, getsizeof=lambda value: size), cachetools.LRUCache(50, getsizeof=lambda value: size)
    for step in range(500):
        key = (step * step) % 37
        assert ours.get(key) == theirs.get(key)
        if step % 3:
            ours[key] = theirs[key] = step
        assert (set(ours), ours.currsize) == (set(theirs), theirs.currsize)
    calls = []
    cached = cachetools.cached(Lru().mapping(2))(lambda x: calls.append(x) or -x)
    assert [cached(x) for x in (1, 2, 1, 3, 1)] == [-1, -2, -1, -3, -1]
    assert calls == [1, 2, 3]


def test_memoize_remembers_by_arguments():
    calls = []

    @memoize(FifoMep().mapping(10), lock=threading.Lock())
    def power(base, exponent=2):
        """A power."""
        calls.append((base, exponent))
        return base**exponent

    assert [power(3), power(3), power(3, exponent=3), power(3, exponent=3)] == [9, 9, 27, 27]
    assert calls == [(3, 2), (3, 3)]
    assert power.__doc__ == "A power."
    assert len(power.cache) == 2


def test_memoize_returns_what_is_too_large_to_keep():
    doubled = memoize(Lru().mapping(3, getsizeof=len))(lambda text: text * 2)
    assert doubled("ab") == "abab"
    assert len(doubled.cache) == 0


def test_bad_input():
    with pytest.raises(InputError):
        Lru().mapping(0)
    with pytest.raises(InputError, match="future"):
        Belady().mapping(5)
    cache = Lru().mapping(5, getsizeof=lambda value: value)
    for size in (-1, 2.5, "big"):
        with pytest.raises(InputError, match="getsizeof"):
            cache["a"] = size
    with pytest.raises(ValueError, match="too large"):
        cache["a"] = 6
    assert len(cache) == 0
    cache["a"] = 0
    assert cache.currsize == 1
