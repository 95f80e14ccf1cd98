"""What the virtual ranks of one run share: the loop, the prices of the cluster, groups of ranks, and how the run ends."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from armillary.comm.counters import Tally
from armillary.comm.messages.envelope import NOTHING
from armillary.comm.virtual.costs import LogGP, Loopback, Price, Prices, far_price, loopback_price, near_price
from armillary.comm.virtual.placement import Place, roofline
from armillary.comm.virtual.progress import Policy, Progress
from armillary.comm.virtual.protocols import Protocol, protocol_for
from armillary.comm.virtual.rank import Rank
from armillary.comm.virtual.record import Record
from armillary.comm.virtual.requests import VirtualRequest
from armillary.comm.virtual.wire import Claims, Fabric, FlowPort, Port
from armillary.engine import Activity, Network, Simulation

if TYPE_CHECKING:
    from armillary.cluster import Cluster

#: The number of ranks that the message of a deadlock names before it counts the rest.
_SHOWN = 20
#: The least seconds that looking for a message costs, because time must pass in a loop that polls.
_POLL = 1e-7


class Failed(Exception):
    """A rank has failed, which ends the loop."""


class Group:
    """The ranks of a communicator, in an object that all of them share."""

    __slots__ = ("_places", "members", "nodes")

    def __init__(self, members: Sequence[int], nodes: Sequence[int]) -> None:
        #: The number in the world of each rank.
        self.members = tuple(members)
        #: The node of each rank.
        self.nodes = tuple(nodes)
        self._places: tuple[list[int], Counter[int]] | None = None

    @property
    def places(self) -> tuple[list[int], Counter[int]]:
        """The place of each rank on its node, and the number of ranks on each node."""
        if self._places is None:
            seen: Counter[int] = Counter()
            ranks = []
            for node in self.nodes:
                ranks.append(seen[node])
                seen[node] += 1
            self._places = (ranks, seen)
        return self._places


class GivenPrices(dict[int, Price]):
    """The prices from one node if the constants are given: shared memory on the node itself, the wire to all others."""

    def __init__(self, near: Price, far: Price, node: int) -> None:
        super().__init__({node: near})
        self._far = far

    def __missing__(self, node: int) -> Price:
        return self._far


class World:
    """Everything of one run. Only the loop of `sim` switches between ranks."""

    def __init__(
        self,
        cluster: Cluster,
        places: Sequence[Place],
        *,
        model: str,
        progress: Progress,
        constants: LogGP | None,
        shm: str,
        ghosts: bool,
        timeline: bool,
        modelled: bool,
        shuffle: int | None,
        speed_ratio: float,
        policy: Policy | None = None,
        seed: int = 0,
    ) -> None:
        from greenlet import getcurrent  # type: ignore[import-untyped]

        self.cluster = cluster
        self.sim = Simulation()
        self.hub: Any = getcurrent()
        self.progress = progress
        #: The policy of paced ranks, or None if ranks run ahead of the loop.
        self.policy = policy
        self.seed = seed
        #: Whether the ranks themselves handle control messages.
        self.in_calls = progress.kind in ("in-calls", "interrupt")
        self.ghosts = ghosts
        self.modelled = modelled
        self.speed_ratio = speed_ratio
        self.record = Record() if timeline else None
        self.aborted = False
        #: The (clock, rank, error, traceback) of each rank that failed.
        self.failures: list[tuple[float, int, BaseException, str]] = []
        #: The request that stands for every send that is done.
        self.sent = _request_class(policy)(None, 0, 0, 0, None, None, None)
        self.sent.done, self.sent.arrival, self.sent.status = True, 0.0, NOTHING
        #: The counters of calls inside calls, which nobody reads.
        self.unread = Tally()
        self._contexts: dict[Any, int] = {}
        self._groups: dict[Any, Group] = {}
        #: What calls leave for each other, under keys that begin with a context.
        self.shared: dict[Any, Any] = {}
        self._order = None if shuffle is None else random.Random(shuffle)
        self._runnable: dict[float, list[Any]] = {}
        make = _rank_class(policy)
        self.ranks = [make(self, i, place) for i, place in enumerate(places)]
        self.group = Group(range(len(places)), [place.node for place in places])
        self._network = Network(self.sim, cluster) if model == "flow" else None
        self._given = constants is not None
        self._constants = constants
        self._loops: dict[int, Loopback] = {}
        self._lay_out(cluster, constants, shm)
        self.poll = max(self.ranks[0].prices[self.ranks[0].site].receive_overhead, _POLL)
        #: Receives of more than this many bytes may need progress.
        self.eager_floor = min(p.eager_limit for p in self._some_prices(constants))
        self._rooflines: dict[Place, Any] = {}
        self._flow_places: dict[int, Any] = {}

    def _lay_out(self, cluster: Cluster, constants: LogGP | None, shm: str) -> None:
        """Give every rank its prices and its NIC."""
        fabric = None if self._network is None else Fabric(self, self._network, self._given)
        one = Claims(self) if fabric is not None else None

        def port(shared: bool) -> Port:
            if fabric is not None:
                assert one is not None
                return FlowPort(one, fabric)
            return Port(Claims(self), shared)

        if constants is not None:
            far = far_price(constants)
            near = None if constants.shm is None else near_price(constants.shm)
            alike = {0: far}
            for rank in self.ranks:
                rank.port = port(False)
                if near is None:
                    rank.prices = alike
                else:
                    rank.site = rank.place.node
                    rank.prices = GivenPrices(near, far, rank.site)
            return
        places, _ = self.group.places
        prices: dict[int, Prices] = {}
        ports: dict[tuple[int, int], list[Rank]] = {}
        name = next(iter(cluster.networks), None)
        nics: dict[str, int] = {}
        for rank, place in zip(self.ranks, places):
            node = rank.place.node
            rank.site = node
            if node not in prices:
                prices[node] = Prices(cluster, node, shm)
            rank.prices = prices[node]
            group = cluster.node(node).group.name
            if group not in nics:
                nics[group] = max(1, sum(nic.network == name for nic in cluster.node(node).nics))
            ports.setdefault((node, place % nics[group]), []).append(rank)
        for users in ports.values():
            made = port(len(users) > 1)
            for rank in users:
                rank.port = made

    def _some_prices(self, constants: LogGP | None) -> list[Price]:
        if constants is None:
            return [self.ranks[0].prices[self.ranks[0].site]]
        return [far_price(constants), *([] if constants.shm is None else [near_price(constants.shm)])]

    # Running ranks

    def wake(self, rank: Rank, time: float) -> None:
        """Run this rank when the loop reaches `time`, or at once if it has."""
        sim = self.sim
        if self._order is None:
            if time <= sim.now:
                sim._ready.append(rank.entry)
            else:
                sim._insert(time, rank.entry)
            return
        time = max(time, sim.now)
        waiting = self._runnable.get(time)
        if waiting is None:
            self._runnable[time] = waiting = []
            sim._insert(time, (self._run_shuffled, time))
        waiting.append(rank.entry)

    def _run_shuffled(self, time: float) -> None:
        entries = self._runnable.pop(time)
        assert self._order is not None
        self._order.shuffle(entries)
        for switch, rank in entries:
            switch(rank)

    def wake_last(self, rank: Rank, time: float) -> None:
        """Run this rank at `time`, after the other ranks of that instant."""
        self.sim.at(max(time, self.sim.now), rank.entry[0], rank, priority=2)

    def fail(self, rank: Rank, error: BaseException, trace: str) -> None:
        """Note that this rank has failed. The run ends when the loop reaches its clock, so that it reports the earliest failure."""
        self.failures.append((rank.clock, rank.number, error, trace))
        self.sim.at(max(rank.clock, self.sim.now), self._end, priority=1000)

    def _end(self) -> None:
        raise Failed

    def pending(self) -> str:
        """Return in words what each rank waits for, for at most 20 ranks; "" if all have ended."""
        waiting = [rank for rank in self.ranks if not rank.ended]
        lines = [f"rank {rank.number}: {_waits(rank)}" for rank in waiting[:_SHOWN]]
        return "; ".join(lines) + (f"; and {len(waiting) - _SHOWN} more" if len(waiting) > _SHOWN else "")

    # Groups and names

    def context(self, name: Any) -> int:
        """Return a small number for a name, the same for every rank."""
        return self._contexts.setdefault(name, len(self._contexts))

    def group_of(self, name: Any, parent: Group, members: Sequence[int]) -> Group:
        """Return the group of a communicator that is made of another one. The first rank that asks makes it."""
        if len(members) == len(parent.members) and isinstance(members, range):
            return parent
        found = self._groups.get(name)
        if found is None:
            found = self._groups[name] = Group([parent.members[i] for i in members], [parent.nodes[i] for i in members])
        return found

    # The machine

    def roof(self, rank: Rank) -> Any:
        """Return the roofline of the rank's core or device."""
        place = rank.place
        if place not in self._rooflines:
            self._rooflines[place] = roofline(self.cluster, place, self.group.places[1][place.node])
        return self._rooflines[place]

    def copy(self, rank: Rank, when: float, nbytes: int, seconds_a_byte: float, copies: int, done: Callable[[float], None]) -> None:
        """Copy inside the node of this rank from `when` on, and call `done` with the time at which the first copy ends."""
        if self._network is None or not nbytes or not seconds_a_byte:
            done(when + nbytes * seconds_a_byte)
            return
        pool = self._network.memory(rank.place.node)

        def start() -> None:
            activity = Activity(self.sim, nbytes, {pool: copies}, cap=1 / seconds_a_byte)
            assert activity.callbacks is not None
            activity.callbacks.append(lambda _: done(self.sim.now))

        self.sim.at(max(when, self.sim.now), start)

    def protocol_of(self, rank: Any, target: Rank, nbytes: int, near: bool) -> Protocol | None:
        """Return the protocol that the run chooses for a message, or None."""
        assert self.policy is not None
        choice = self.policy.protocol
        return None if choice is None else protocol_for(choice, rank.number, target.number, nbytes, rank.iteration, near)

    def loopback(self, rank: Rank) -> Loopback:
        """Return the price of a message that the NIC of this rank's node moves inside the node."""
        found = self._loops.get(rank.site)
        if found is None:
            given = self._constants
            found = Loopback(*far_price(given)) if given is not None else loopback_price(self.cluster, rank.site)
            self._loops[rank.site] = found
        return found

    def flow_place(self, rank: Rank) -> Any:
        """Return where the flows of this rank begin and end: its device, its NIC, or its node."""
        found = self._flow_places.get(rank.number)
        if found is None:
            node = rank.place.node
            name = self.cluster.network_name()
            own = [nic.index for nic in self.cluster.node(node).nics if nic.network == name]
            if rank.place.device is not None:
                found = f"n{node}/device:{rank.place.device}"
            elif len(own) > 1:
                found = f"n{node}/nic:{own[self.group.places[0][rank.number] % len(own)]}"
            else:
                found = node
            self._flow_places[rank.number] = found
        return found


def _rank_class(policy: Policy | None) -> type[Rank]:
    if policy is None:
        return Rank
    from armillary.comm.virtual.paced.rank import PacedRank

    return PacedRank


def _request_class(policy: Policy | None) -> type[VirtualRequest]:
    if policy is None:
        return VirtualRequest
    from armillary.comm.virtual.paced.requests import PacedRequest

    return PacedRequest


def _waits(rank: Rank) -> str:
    waits = rank.waits
    if isinstance(waits, str):
        return waits
    open_ones = [request for request in waits or () if request.arrival is None]
    if not open_ones:
        return "nothing"
    more = f" and {len(open_ones) - 1} more" if len(open_ones) > 1 else ""
    said: str = open_ones[0].what
    return said + more
