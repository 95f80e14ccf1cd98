"""A dictionary of bounded size that evicts by a policy, and a decorator that remembers a function's results in it.

    cache = FifoMep().mapping(capacity=1000)
    cache["a"] = 1
    @memoize(Lru().mapping(capacity=100))
    def slow(x): ...

It has the methods of `cachetools.Cache` (`maxsize`, `currsize`, `getsizeof`), so it can replace one. Reading and writing a key
are uses of it; `in`, iteration and `len` are not. The policy is the one that replays traces, and each use is a block of one
request to its kernel. Keys get small numbers for it, and a number goes to another key once the policy has forgotten its first
one.

Like a dictionary, it must not be changed by two threads at once, so give `memoize` a lock.
"""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Callable, Hashable, Iterator, MutableMapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from armillary.errors import InputError

from ..simulation.policy import DELETE, INSERT, LOGGED, LOOKUP, evicted_object

if TYPE_CHECKING:
    from ..simulation.policy import Policy

R = TypeVar("R")


class ValueTooLarge(InputError, ValueError):
    """A value that the cache cannot hold; a ValueError too, as users of cachetools expect."""


class CacheMapping(MutableMapping[Any, Any]):
    """A mapping of at most `capacity` keys, or of sizes that add up to at most `capacity` where `getsizeof(value)` is given.

    `on_evict(key, value)` is called after a key was pushed out, not when it was deleted or replaced.
    """

    def __init__(
        self,
        policy: Policy,
        capacity: int,
        *,
        getsizeof: Callable[[Any], int] | None = None,
        on_evict: Callable[[Any, Any], object] | None = None,
    ) -> None:
        self._policy = policy
        self._state = policy.start(capacity, sized=getsizeof is not None)
        self._getsizeof = getsizeof
        self._on_evict = on_evict
        #: The number of every key that is cached or may still be remembered by the policy, and the key of every number.
        self._number: dict[Hashable, int] = {}
        self._keys: list[Hashable] = []
        #: Value and size of cached keys, in order of insertion.
        self._cached: dict[Hashable, tuple[Any, int]] = {}
        #: Numbers whose keys left, oldest first (and the same as a set), and numbers that no key has.
        self._departed: deque[int] = deque()
        self._waiting: set[int] = set()
        self._free: list[int] = []
        self._size = 0
        self._object = np.zeros(1, np.int32)
        self._operation = np.zeros(1, np.uint8)
        self._bytes = np.zeros(1, np.int64) if getsizeof is not None else None
        self._hit = np.zeros(1, np.bool_)
        self._log = np.zeros(1, np.int64)

    @property
    def maxsize(self) -> int:
        """The capacity."""
        return self._state.capacity

    @property
    def currsize(self) -> int:
        """The part of the capacity that the cached keys take."""
        return self._size

    def getsizeof(self, value: Any) -> int:
        """The part of the capacity that `value` takes."""
        if self._getsizeof is None:
            return 1
        size = self._getsizeof(value)
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0:
            raise InputError(f"getsizeof gave {size!r}; expected a whole number of at least 0")
        return max(1, int(size))

    def __getitem__(self, key: Hashable) -> Any:
        """The value, which counts as a use; a KeyError if it is not cached, unless a subclass has `__missing__`."""
        entry = self._cached.get(key)
        if entry is None:
            missing = getattr(type(self), "__missing__", None)
            if missing is None:
                raise KeyError(key)
            return missing(self, key)
        self._tell(self._ask(self._number[key], LOOKUP, entry[1]))
        return entry[0]

    def __setitem__(self, key: Hashable, value: Any) -> None:
        """Caches the value, which counts as a use; the policy chooses the keys that leave for it."""
        size = self.getsizeof(value)
        if size > self.maxsize:
            raise ValueTooLarge(f"value too large: found a size of {size}; expected at most {self.maxsize}")
        number = self._number.get(key)
        if number is None:
            number = self._new_number(key)
        before = self._cached.get(key)
        if before is not None:
            self._size -= before[1]
        # The key is entered first, because the policy may choose the newcomer itself, and then it must leave again.
        self._cached[key] = (value, size)
        self._size += size
        evicted = self._ask(number, INSERT, size)
        refused = key in self._cached and not self._state.holds(number)
        if refused:
            self._depart(key, number)
        self._tell(evicted)
        if refused:
            raise ValueTooLarge(f"value too large: found a size of {size}, which {type(self._policy).__name__} does not take in")

    def __delitem__(self, key: Hashable) -> None:
        """Forgets the value; a KeyError if it is not cached."""
        _, size = self._cached[key]
        number = self._number[key]
        self._depart(key, number)
        self._ask(number, DELETE, size)

    def __contains__(self, key: object) -> bool:
        return key in self._cached

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cached)

    def __len__(self) -> int:
        return len(self._cached)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._policy!r}, maxsize={self.maxsize}, currsize={self.currsize})"

    def get(self, key: Hashable, default: Any = None) -> Any:
        """The value, which counts as a use, or `default`."""
        return self[key] if key in self._cached else default

    def _ask(self, number: int, operation: int, size: int) -> list[tuple[Hashable, Any]]:
        """Makes one request to the policy; returns the keys and values that had to leave for it."""
        state = self._state
        if len(self._log) < state.room + 1:
            self._log = np.zeros(state.room + 1, np.int64)
        self._object[0], self._operation[0], self._hit[0] = number, operation, False
        if self._bytes is not None:
            self._bytes[0] = size
        state.numbers[LOGGED] = 0
        state.call(self._object, self._bytes, self._operation, self._hit, self._log)
        evicted = []
        for entry in self._log[: state.numbers[LOGGED]].tolist():
            key = self._keys[evicted_object(entry)]
            evicted.append((key, self._cached[key][0]))
            self._depart(key, self._number[key])
        return evicted

    def _tell(self, evicted: list[tuple[Hashable, Any]]) -> None:
        """Calls `on_evict` once the cache is consistent again, because the callback may use it."""
        if self._on_evict is not None:
            for key, value in evicted:
                self._on_evict(key, value)

    def _depart(self, key: Hashable, number: int) -> None:
        self._size -= self._cached.pop(key)[1]
        if number not in self._waiting:
            self._waiting.add(number)
            self._departed.append(number)

    def _new_number(self, key: Hashable) -> int:
        """A number for a key that has none; it checks two keys that left, so that numbers come back as fast as they go."""
        for _ in range(min(2, len(self._departed))):
            number = self._departed.popleft()
            left = self._keys[number]
            if left in self._cached:
                self._waiting.discard(number)
            elif self._state.remembers(number):
                self._departed.append(number)
            else:
                self._waiting.discard(number)
                del self._number[left]
                self._free.append(number)
        if self._free:
            number = self._free.pop()
            self._keys[number] = key
        else:
            number = len(self._keys)
            self._keys.append(key)
            self._state.grow(number + 1)
        self._state.rename(number, hash(key))
        self._number[key] = number
        return number


def memoize(
    cache: MutableMapping[Any, Any], *, key: Callable[..., Hashable] | None = None, lock: AbstractContextManager[Any] | None = None
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Decorates a function so that its results are kept in `cache`, by its arguments or by `key(*arguments)`.

    With `lock`, the cache is used by one thread at a time; the function itself runs outside the lock. `function.cache` is the cache.
    """
    key, guard = key or _arguments, lock or contextlib.nullcontext()

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(function)
        def remembering(*args: Any, **kwargs: Any) -> R:
            name = key(*args, **kwargs)
            with guard, contextlib.suppress(KeyError):
                return cache[name]
            value = function(*args, **kwargs)
            with guard, contextlib.suppress(ValueError):
                cache[name] = value
            return value

        remembering.cache = cache  # type: ignore[attr-defined]
        return remembering

    return decorate


def _arguments(*args: Any, **kwargs: Any) -> Hashable:
    return (args, tuple(sorted(kwargs.items()))) if kwargs else args
