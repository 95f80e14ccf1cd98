"""The cost of a message: the constants of LogGP, which the cluster or the caller gives.

    sender busy   o_s + n·C        on the wire   L + (n-1)·G        receiver busy   o_r + n·C

LogGP: Incorporating long messages into the LogP model, SPAA 1995. n is the length in bytes, and C is the copy of an eager message.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    from armillary.cluster import Cluster

#: The defaults where a cluster gives no figure; they are those of the presets for networks. Seconds, bytes per second, seconds.
OVERHEAD = 0.25e-6
COPY_BANDWIDTH = 10e9
SHM_LATENCY = 0.2e-6
SHM = ("two-copy", "single-copy")


@dataclass(frozen=True)
class SharedMemory:
    """The constants of messages inside a node, in seconds, seconds per byte and bytes.

    With `two-copy` the sender copies in and the receiver copies out, pipelined in cells of `cell` bytes. With `single-copy` the receiver
    copies straight out of the sender's memory, after `setup` seconds.
    """

    latency: float = SHM_LATENCY
    overhead: float = OVERHEAD
    copy: float = 1 / COPY_BANDWIDTH
    eager_limit: int = 8192
    cell: int = 8192
    how: str = "two-copy"
    setup: float = 0.5e-6

    def __post_init__(self) -> None:
        _checked(self, ("latency", "overhead", "copy", "setup"), ("eager_limit", "cell"))
        if self.how not in SHM:
            raise unknown("shm", str(self.how), SHM)


@dataclass(frozen=True)
class LogGP:
    """The constants of the model, in seconds, seconds per byte and bytes.

    They are `latency` L, `send_overhead` o_s, `receive_overhead` o_r, `gap` g between two messages of one NIC, `byte_gap` G, and `copy` C
    for each byte of an eager message on either side. Messages of more than `eager_limit` bytes ask first (rendezvous). With `get` the
    receiver then fetches the data itself, so the sender need not answer. Constants that are given to a run hold between all ranks, each of
    which has a NIC of its own. If `shm` is given too, ranks of one node use that.
    """

    latency: float
    send_overhead: float = 0.0
    receive_overhead: float = 0.0
    gap: float = 0.0
    byte_gap: float = 0.0
    copy: float = 0.0
    eager_limit: int = 16384
    get: bool = False
    shm: SharedMemory | None = None

    def __post_init__(self) -> None:
        _checked(self, ("latency", "send_overhead", "receive_overhead", "gap", "byte_gap", "copy"), ("eager_limit",))


def _checked(constants: object, seconds: tuple[str, ...], sizes: tuple[str, ...]) -> None:
    for name in seconds:
        value = getattr(constants, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < math.inf:
            raise InputError(f"{name}: found {value!r}; expected seconds, 0 or more", where="constants")
    for name in sizes:
        value = getattr(constants, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputError(f"{name}: found {value!r}; expected bytes, 0 or more", where="constants")


class Price(NamedTuple):
    """The constants of messages from one place to another."""

    send_overhead: float
    send_copy: float
    receive_overhead: float
    receive_copy: float
    latency: float
    byte_gap: float
    gap: float
    eager_limit: int
    #: The constants of shared memory if both places are on one node, or None for the wire.
    shm: SharedMemory | None
    get: bool


class Loopback(Price):
    """The constants of a message that a NIC moves from its node to the same node."""

    __slots__ = ()


def near_price(shm: SharedMemory) -> Price:
    """Return the price inside a node."""
    return Price(shm.overhead, shm.copy, shm.overhead, shm.copy, shm.latency, 0.0, 0.0, shm.eager_limit, shm, False)


def far_price(c: LogGP) -> Price:
    """Return the price between any two ranks if the constants are given."""
    return Price(c.send_overhead, c.copy, c.receive_overhead, c.copy, c.latency, c.byte_gap, c.gap, c.eager_limit, None, c.get)


class Prices(dict[int, Price]):
    """The prices from one node to the others, which are worked out at the first request."""

    def __init__(self, cluster: Cluster, node: int, shm: str) -> None:
        super().__init__()
        self._cluster = cluster
        self._node = node
        self._shm = shm

    def __missing__(self, node: int) -> Price:
        if node == self._node:
            price = near_price(shared_memory(self._cluster, node, self._shm))
        else:
            price = _between(self._cluster, self._node, node)
        self[node] = price
        return price


def shared_memory(cluster: Cluster, node: int, how: str) -> SharedMemory:
    """Return the constants inside a node of the cluster."""
    overhead = OVERHEAD
    for nic in cluster.node(node).nics:
        overhead = _or(nic.send_overhead, OVERHEAD)
        break
    return SharedMemory(overhead=overhead, copy=_copy(cluster, node), how=how)


def _between(cluster: Cluster, a: int, b: int) -> Price:
    first, second = cluster.node(a), cluster.node(b)
    name = cluster.network_name()
    # On a star or a full graph all paths between two groups cost the same.
    same = cluster.networks[name].topology in ("star", "full")
    key = ("virtual price", first.group.name, second.group.name) if same else ("virtual price", a, b)
    if key not in cluster.memo:
        for node in (first, second):
            if not any(nic.network == name for nic in node.nics):
                raise InputError(
                    f"node {node.name}: found no NIC on network {name}; expected one, because its ranks send to other nodes",
                    where=cluster.name,
                )
        latency, byte_gap = cluster.alpha_beta(f"n{a}", f"n{b}")
        out = next(nic for nic in first.nics if nic.network == name)
        into = next(nic for nic in second.nics if nic.network == name)
        cluster.memo[key] = Price(
            _or(out.send_overhead, OVERHEAD),
            _copy(cluster, a),
            _or(into.receive_overhead, OVERHEAD),
            _copy(cluster, b),
            float(latency),
            float(byte_gap),
            _or(out.message_gap, 0.0),
            LogGP.eager_limit,
            None,
            False,
        )
    found: Price = cluster.memo[key]
    return found


def loopback_price(cluster: Cluster, node: int) -> Loopback:
    """Return the price of a message that leaves the node through its NIC and comes back: that of a message to the next node."""
    if cluster.nodes < 2:
        raise InputError("loopback: found a cluster of one node; expected several, because its NIC is priced like a way to another node")
    return Loopback(*_between(cluster, node, node + 1 if node + 1 < cluster.nodes else node - 1))


def _copy(cluster: Cluster, node: int) -> float:
    tiers = cluster.node(node).memories
    rate = tiers[0].copy_bandwidth_per_core if tiers else None
    return 1 / _or(rate, COPY_BANDWIDTH)


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else float(value)
