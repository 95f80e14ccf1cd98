"""A policy of this arena inside libCacheSim, which keeps its own readers and analyses.

    cache = plugin_cache(FifoMep(), capacity=1000)
    cache.process_trace(libcachesim.TraceReader(...))

libCacheSim asks for a victim before it inserts, and tells of a miss afterwards; our kernels decide both in one step. So the first
question about a request already feeds it to the policy, and the victims wait until they are asked for. Policies that keep a
segment within its size (SLRU, 2Q) may have let go of an object that libCacheSim still holds: it is the next to leave there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.errors import InputError

from .mapping import ValueTooLarge

if TYPE_CHECKING:
    from ..simulation.policy import Policy


def plugin_cache(policy: Policy, capacity: int, **options: Any) -> Any:
    """A `libcachesim.PluginCache` of `capacity` bytes that evicts by `policy`; `options` go to PluginCache (hashpower, admissioner…)."""
    try:
        from libcachesim import PluginCache
    except ImportError:
        raise InputError("libcachesim is not installed; expected the package of the bench extra") from None
    return PluginCache(
        cache_size=policy.checked(capacity),
        cache_init_hook=lambda parameters: _Hooks(policy, int(parameters.cache_size)),
        cache_hit_hook=_Hooks.hit,
        cache_miss_hook=_Hooks.miss,
        cache_eviction_hook=_Hooks.evict,
        cache_remove_hook=_Hooks.remove,
        cache_free_hook=_Hooks.free,
        cache_name=type(policy).__name__,
        **options,
    )


class _Hooks:
    """The policy's view of one libCacheSim cache. Between requests, libCacheSim holds what `cache` holds and what is in `left`."""

    def __init__(self, policy: Policy, capacity: int) -> None:
        self.cache = policy.mapping(capacity, getsizeof=int, on_evict=self._leave)
        #: Objects that the policy let go and libCacheSim still holds, oldest first.
        self.left: dict[int, None] = {}
        #: Whether the request at hand was fed already, to find a victim for it.
        self.fed = False

    def hit(self, request: Any) -> None:
        self._feed(request)

    def miss(self, request: Any) -> None:
        if not self.fed and request.obj_size <= self.cache.maxsize:
            self._feed(request)
        self.fed = False

    def evict(self, request: Any) -> int:
        if not self.fed:
            self._feed(request)
            self.fed = True
        for victim in self.left:
            if victim != request.obj_id:
                break
        else:
            # Makes room for an object that libCacheSim admits although the policy does not.
            victim = next(key for key in self.cache if key != request.obj_id)
            del self.cache[victim]
            return victim
        del self.left[victim]
        return victim

    def remove(self, obj_id: int) -> None:
        self.cache.pop(obj_id, None)
        self.left.pop(obj_id, None)

    def free(self) -> None:
        self.left.clear()

    def _feed(self, request: Any) -> None:
        key = request.obj_id
        self.left.pop(key, None)
        if key in self.cache:
            self.cache[key]
            return
        try:
            self.cache[key] = request.obj_size
        except ValueTooLarge:
            self.left[key] = None

    def _leave(self, key: int, size: int) -> None:
        self.left[key] = None
