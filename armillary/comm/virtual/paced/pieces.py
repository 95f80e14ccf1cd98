"""A long message that crosses the network in pieces, of which a few are under way at once; each completion releases the next."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from armillary.comm.virtual.paced.rank import PacedRank
    from armillary.comm.virtual.paced.requests import PacedRequest


class Pieces:
    """The pieces of one message, which its `mover` posts.

    A sender that writes hears of each piece a latency after it arrived (`answer`); a receiver that reads asks a latency before (`ask`).
    """

    def __init__(self, request: PacedRequest, mover: PacedRank, ask: float, answer: float) -> None:
        self.request = request
        self.mover = mover
        self.ask = ask
        self.answer = answer
        self.chunk = request.protocol.chunk
        self.unposted = request.capacity
        self.missing = request.capacity

    def post(self) -> None:
        """Post the first pieces."""
        for _ in range(self.request.protocol.window):
            self._next()

    def _next(self) -> None:
        nbytes = min(self.chunk, self.unposted)
        if not nbytes:
            return
        self.unposted -= nbytes
        source = self.request.rank
        claim = (source.number, 0, nbytes, self.request.price, self.request.match.rank, partial(self._on_its_way, nbytes))
        source.port.claim(self.mover.clock + self.ask, claim)

    def _on_its_way(self, nbytes: int, start: float, arrival: float) -> None:
        sim = self.mover.world.sim
        sim._insert(max(arrival, sim.now), (self._arrived, nbytes))

    def _arrived(self, nbytes: int) -> None:
        request = self.request
        sim = self.mover.world.sim
        self.missing -= nbytes
        done = not self.missing
        now = sim.now
        if done:
            request.match.known(now, request.price.receive_overhead)
            tell = now + request.price.latency
            sim._insert(tell, (lambda _: request.known(tell, 0.0), None))
        if self.answer:
            sim._insert(now + self.answer, (self._heard, None))
        else:
            self._heard(None)

    def _heard(self, _: None) -> None:
        if self.unposted:
            self.mover.core.notify(self._next)
