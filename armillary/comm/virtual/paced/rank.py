"""A virtual rank that keeps pace with the loop: whenever its program goes on, the loop's time is its clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.comm.failures import Aborted
from armillary.comm.virtual.paced import handshakes
from armillary.comm.virtual.paced.core import Core
from armillary.comm.virtual.paced.requests import PacedRequest
from armillary.comm.virtual.rank import CONTEXT, Message, Rank, _listed
from armillary.comm.virtual.requests import VirtualRequest
from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.comm.virtual.world import World


#: What sets the delays of a rank's scheduler apart from the random numbers of its program.
_DELAYS = 1


class PacedRank(Rank):
    """A rank whose core has a policy of progress with separate costs. All matching happens when messages arrive."""

    __slots__ = ("asked", "core", "iteration", "promises", "warm")

    def __init__(self, world: World, number: int, place: Any) -> None:
        super().__init__(world, number, place)
        policy = world.policy
        assert policy is not None
        spreads = policy.spread or (policy.otherwise is not None and policy.otherwise.spread)
        self.core = Core(self, policy, _delays(world.seed, number) if spreads else None)
        self.timed = True
        self.watched = True
        #: What the program says the iteration is, for the choice of protocols.
        self.iteration = 0
        #: The (receiver, key, tag) whose buffers this sender knows, and those that it has asked for with their latest request.
        #: As a receiver, the (key, tag) for which it sends credits, with the sender of each.
        self.warm: set[tuple[int, int, int]] = set()
        self.asked: dict[tuple[int, int, int], PacedRequest] = {}
        self.promises: dict[tuple[int, int], PacedRank] = {}

    # Sending

    def send(self, target: Rank, key: int, dest: int, tag: int, nbytes: int, data: Any) -> VirtualRequest:
        core = self.core
        core.settle()
        price = self.prices[target.site]
        protocol = self.world.protocol_of(self, target, nbytes, price.shm is not None)
        name = None if protocol is None else protocol.name
        self.seq = seq = self.seq + 1
        begin = self.clock
        if data is not None:
            data = data.copy() if nbytes <= price.eager_limit or name == "eager" else data
        if name == "eager" or (name in (None, "shm") and nbytes <= price.eager_limit):
            core.spend(price.send_overhead, nbytes * price.send_copy)
            clock = self.clock
            cost = price.receive_overhead + nbytes * price.receive_copy
            self.passed("send", "send", begin, ())
            if self.asked:
                self.forget_buffer((target.number, key, tag))
            if price.shm is not None:
                target.deliver((clock + price.latency, self.number, seq, key, tag, nbytes, data, None, cost, clock))
            else:
                self.port.claim(clock, (self.number, seq, nbytes, price, target, key, tag, nbytes, data, None, cost, clock))
            core.drain(copying=core.mode.computing != "never")
            return self.world.sent
        request = PacedRequest(self, key, tag, nbytes, data, None, target)
        request.peer = dest
        request.price = price
        request.protocol = protocol
        handshakes.begin(self, target, request, seq)
        self.passed("send", "send", begin, ())
        core.drain(copying=core.mode.computing != "never")
        return request

    # Matching

    def take(self, receive: Any, source: int) -> None:
        """Take in a receive, and handle what it sets going."""
        receive.named = source >= 0 and receive.tag >= 0
        if self.promises:
            if not receive.named:
                self._check_open(receive, source)
            else:
                handshakes.offer(self, receive)
        if source < 0:
            self.sync("recv")
            self.post_wild(receive)
        else:
            self.post(receive.key, receive)
        self.core.drain(copying=self.core.mode.computing != "never")

    def _check_open(self, receive: PacedRequest, source: int) -> None:
        if any(key == receive.key or (source < 0 and key & CONTEXT == receive.key) for key, _ in self.promises):
            raise InputError(
                "recv: found ANY_SOURCE or ANY_TAG; expected a source and a tag, because a sender writes into buffers of this rank "
                "without asking (rput-cached)"
            )

    def forget_buffer(self, place: tuple[int, int, int]) -> None:
        """Ask again before the next message to this place is written."""
        self.warm.discard(place)
        self.asked.pop(place, None)

    def can_promise(self, receive: PacedRequest) -> bool:
        """Return whether credits for all further receives like this one can be promised."""
        if not receive.named or any(other.key == receive.key & CONTEXT for other in self.wild or ()):
            return False
        return all(other.tag >= 0 for other in _listed(self.posted.get(receive.key)))

    def others_posted(self, receive: PacedRequest) -> list[Any]:
        """Return the receives of the same source and tag that have not been matched."""
        return [other for other in _listed(self.posted.get(receive.key)) if other.tag == receive.tag]

    def start_timing(self) -> None:
        pass

    def _land(self) -> None:
        super()._land()
        self.timed = True

    def _arrive(self, message: Message) -> None:
        super()._arrive(message)
        request = message[7]
        if self.core.mode.computing != "never" and (request is None or not request.silent):
            # A message that nobody waits for yet is an event, too; one that was matched has told the core itself.
            entry = self.arrived.get(message[3])
            if entry is not None and _listed(entry)[-1] is message:
                self.core.notify(None)

    # Parking

    def sync(self, what: str) -> None:
        world = self.world
        if world.aborted:
            raise Aborted("another rank failed")
        self.core.settle()
        flying = self.flying
        if world.sim._ready or (flying and flying[0][0] <= self.clock):
            self.waits = what
            world.wake_last(self, self.clock)
            self._leave()
            self.waits = None
        self.core.drain(copying=True)

    def park(self, what: str) -> None:
        if self.world.aborted:
            raise Aborted("another rank failed")
        self.core.sleep(what)

    def block(self, unknown: Sequence[VirtualRequest]) -> None:
        self.core.wait(unknown)

    def finish(self) -> None:
        self.core.settle()
        self.ended = True
        self.core.end()

    def close(self, seconds: float) -> None:
        self.core.close(seconds)


def _delays(seed: int, rank: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(seed, spawn_key=(rank, _DELAYS))))
