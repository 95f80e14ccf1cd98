"""The wire: messages leave a node through its NICs in the order of simulated time, and travel by LogGP or as flows."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from armillary.comm.virtual.costs import Loopback

if TYPE_CHECKING:
    from armillary.comm.virtual.world import World
    from armillary.engine import Network

#: The length of the claim of a rendezvous' data, by which it is told from a message.
_DATA = 6


class Claims:
    """Messages that will leave at given times, handed over in the order (time, sender, number).

    The claim of a message is (sender, number, bytes on the wire, price, target, key, tag, ...the rest of a `Message`). The claim of a
    rendezvous' data is (sender, 0, bytes, price, target, then), and `then(start, arrival)` is called once these times are known.
    """

    __slots__ = ("_sim", "_waiting")

    def __init__(self, world: World) -> None:
        self._sim = world.sim
        #: By time: one claim with its port, or a list of them.
        self._waiting: dict[float, Any] = {}

    def add(self, time: float, claim: Any, port: Port) -> None:
        """Let the claim leave through the port at its time."""
        now = self._sim.now
        if time < now:
            time = now
        before = self._waiting.setdefault(time, (claim, port))
        if before[0] is claim:
            self._sim._insert(time, (self._due, time))
        elif before.__class__ is list:
            before.append((claim, port))
        else:
            self._waiting[time] = [before, (claim, port)]

    def _due(self, time: float) -> None:
        waiting = self._waiting.pop(time)
        if waiting.__class__ is list:
            waiting.sort(key=_sender)
            for claim, port in waiting:
                port.busy -= 1
                port.depart(time, claim)
        else:
            claim, port = waiting
            port.busy -= 1
            port.depart(time, claim)


def _sender(entry: Any) -> tuple[int, int]:
    claim = entry[0]
    return claim[0], claim[1]


def arrived(claim: Any, start: float, arrival: float) -> None:
    """Hand over the message of a claim, whose times are known now."""
    if len(claim) == _DATA:
        claim[5](start, arrival)
    else:
        sender, seq, _, _, target, *rest = claim
        target.deliver((arrival, sender, seq, *rest))


class Port:
    """A NIC by LogGP, which is free again (n-1)·G + g after a message began to leave."""

    __slots__ = ("_claims", "busy", "free")

    def __init__(self, claims: Claims, shared: bool) -> None:
        self._claims = claims
        #: The time at which it can begin with the next message.
        self.free = 0.0
        #: Not 0 while all messages must go by claims: because ranks share the NIC, long messages are under way, or claims wait.
        self.busy = int(shared)

    def claim(self, time: float, claim: Any) -> None:
        """Let a message leave at this time, in its order."""
        self.busy += 1
        self._claims.add(time, claim, self)

    def depart(self, time: float, claim: Any) -> None:
        """Let the message leave now, or when the NIC is free."""
        nbytes, price = claim[2], claim[3]
        start = self.free
        if time > start:
            start = time
        wire = (nbytes - 1) * price[5] if nbytes > 1 else 0.0
        self.free = start + wire + price[6]
        if len(claim) == _DATA:
            claim[5](start, start + (price[4] + wire))
        else:
            sender, seq, _, _, target, key, tag, size, data, request, cost, sent = claim
            target.deliver((start + (price[4] + wire), sender, seq, key, tag, size, data, request, cost, sent))


class FlowPort(Port):
    """A NIC whose messages are flows of the engine, which share its links, the fabric and the other end with all other flows."""

    __slots__ = ("_fabric",)

    def __init__(self, claims: Claims, fabric: Fabric) -> None:
        super().__init__(claims, True)
        self._fabric = fabric

    def depart(self, time: float, claim: Any) -> None:
        start = max(time, self.free)
        self.free = start + claim[3].gap
        if start > self._fabric.sim.now:
            self._fabric.sim.at(start, self._fabric.enter, claim, start)
        else:
            self._fabric.enter(claim, start)


class Fabric:
    """Messages as flows. Those from one rank to another are handed over in the order in which they were sent."""

    def __init__(self, world: World, network: Network, given_latency: bool) -> None:
        self.sim = world.sim
        self._world = world
        self._network = network
        self._given = given_latency
        #: By (sender, target): the messages under way, oldest first, as [claim, start, arrived].
        self._under_way: dict[tuple[int, int], deque[list[Any]]] = {}

    def enter(self, claim: Any, start: float) -> None:
        """Let the message begin to flow."""
        price, target = claim[3], claim[4]
        sender = self._world.ranks[claim[0]]
        latency = price.latency if self._given else None
        if price.__class__ is Loopback:
            node = sender.place.node
            path = (self._network.uplink(node), self._network.downlink(node))
            flow = self._network.flow(node, node, claim[2], path=path, latency=price.latency)
            assert flow.callbacks is not None
            flow.callbacks.append(lambda _: arrived(claim, start, self.sim.now))
            return
        flow = self._network.flow(self._world.flow_place(sender), self._world.flow_place(target), claim[2], latency=latency)
        assert flow.callbacks is not None
        if len(claim) == _DATA:
            flow.callbacks.append(lambda _: arrived(claim, start, self.sim.now))
            return
        pair = (claim[0], target.number)
        entry = [claim, start, False]
        self._under_way.setdefault(pair, deque()).append(entry)
        flow.callbacks.append(lambda _: self._flowed(pair, entry))

    def _flowed(self, pair: tuple[int, int], entry: list[Any]) -> None:
        entry[2] = True
        queue = self._under_way[pair]
        while queue and queue[0][2]:
            claim, start, _ = queue.popleft()
            arrived(claim, start, self.sim.now)
        if not queue:
            del self._under_way[pair]
