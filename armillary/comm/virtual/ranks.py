"""The communicator over virtual ranks, which makes the calls of all backends in simulated time."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy import ndarray

from armillary.comm.communicator import Communicator
from armillary.comm.counters import Tally
from armillary.comm.messages.buffers import Buffer, incoming, outgoing
from armillary.comm.messages.envelope import ANY_SOURCE, ANY_TAG, MOST_TAG, PROC_NULL, Status, check_rank, check_tag, receive_in_words
from armillary.comm.messages.requests import Done, Request
from armillary.comm.virtual.ghost import Ghost
from armillary.comm.virtual.rank import SOURCE, Rank, context_key
from armillary.comm.virtual.record import call_of
from armillary.comm.virtual.requests import VirtualRequest
from armillary.comm.virtual.world import Group
from armillary.comm.windows import Window
from armillary.errors import InputError


class VirtualRanks(Communicator):
    """Ranks in simulated time, in which `now()` is this rank's clock."""

    _transfers: ClassVar[str] = "armillary.comm.virtual.transfers:VirtualTransfers"
    _request: ClassVar[type[VirtualRequest]] = VirtualRequest

    def __init__(self, state: Rank, group: Group, rank: int, context: int, tally: Tally, seed: int) -> None:
        super().__init__(rank, group.nodes, tally, seed)
        self._state = state
        self._group = group
        self._context = context
        self._all = state.world.ranks
        self._members = group.members
        self._windows = 0

    @property
    def node_rank(self) -> int:
        """The place of this rank among the ranks of its node, from 0."""
        return self._group.places[0][self.rank]

    @property
    def node_size(self) -> int:
        """The number of ranks on this rank's node."""
        return self._group.places[1][self.node]

    # Messages

    def isend(self, buf: Buffer, dest: int, tag: int = 0) -> Request:
        if not 0 <= tag <= MOST_TAG:
            check_tag(tag)
        if buf.__class__ is Ghost:
            data = None
            nbytes = buf.nbytes
            if not self._state.world.ghosts:
                self._no_ghosts()
        elif buf.__class__ is ndarray and not buf.size and not buf.dtype.hasobject:
            data = None
            nbytes = 0
        else:
            data = outgoing(buf)
            nbytes = data.nbytes
        counters = self._tally.now
        counters.calls += 1
        rank = self.rank
        if not 0 <= dest < self.size:
            check_rank(dest, self.size, "dest")
            return Done()
        if dest != rank:
            counters.messages += 1
            counters.bytes += nbytes
        return self._state.send(self._all[self._members[dest]], self._context + rank, dest, tag, nbytes, data)

    def irecv(self, buf: Buffer, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        if not 0 <= tag <= MOST_TAG:
            check_tag(tag, wild=True)
        self._tally.now.calls += 1
        if buf.__class__ is Ghost:
            data = after = None
            capacity = buf.nbytes
            if not self._state.world.ghosts:
                self._no_ghosts()
        elif buf.__class__ is ndarray and not buf.size and not buf.dtype.hasobject:
            data = after = None
            capacity = 0
        else:
            data, after = incoming(buf)
            capacity = data.nbytes
        if not 0 <= source < self.size:
            check_rank(source, self.size, "source", wild=True)
            if source == PROC_NULL:
                return Done()
        state = self._state
        key = self._context + source if source >= 0 else self._context
        receive = self._request(state, key, tag, capacity, data, after, None)
        receive.peer = source
        receive.posted = state.clock
        state.order = receive.order = state.order + 1
        world = state.world
        if capacity > world.eager_floor and world.in_calls:
            state.needs_progress(receive)
        if state.watched:
            state.passed("recv", "recv", state.clock, ())
        state.take(receive, source)
        return receive

    def sendrecv(self, send: Buffer, dest: int, recv: Buffer, source: int = ANY_SOURCE, sendtag: int = 0, recvtag: int = ANY_TAG) -> Status:
        incoming = self.irecv(recv, source, recvtag)
        outgoing = self.isend(send, dest, sendtag)
        if outgoing is self._state.world.sent:
            return incoming.wait()
        kind = self._request
        if outgoing.__class__ is kind and not outgoing.done and incoming.__class__ is kind:
            return kind.wait_all((incoming, outgoing))[0]
        outgoing.wait()
        return incoming.wait()

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status | None:
        found = self._look(source, tag, "iprobe")
        if found is None:
            state = self._state
            state.clock += state.world.poll
        return found

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status:
        found = self._look(source, tag, "probe")
        if found is not None:
            return found
        state = self._state
        begin = state.clock
        state.probing = (self._context, source, tag)
        state.start_timing()
        state.park(receive_in_words("probe", source, tag))
        state.clock = max(state.clock, state.world.sim.now)
        if state.watched:
            state.passed("probe", "wait", begin, ())
        found = self._look(source, tag, "probe")
        assert found is not None
        return found

    def _look(self, source: int, tag: int, what: str) -> Status | None:
        check_tag(tag, wild=True)
        check_rank(source, self.size, "source", wild=True)
        state = self._state
        state.sync(what)
        found = state.find(self._context, source, tag)
        return None if found is None else Status(found[3] & SOURCE, found[4], found[5])

    def waitany(self, requests: Sequence[Request]) -> tuple[int, Status]:
        if not requests:
            raise InputError("waitany: found no requests; expected at least one")
        for i, request in enumerate(requests):
            if not isinstance(request, VirtualRequest):
                return i, request.wait()
        return self._request.wait_any(requests)

    def window(self, nbytes: int, dtype: Any = np.uint8) -> Window:
        from armillary.comm.virtual.windows import VirtualWindow
        from armillary.comm.windows import elements

        count, kind = elements(nbytes, dtype)
        self._windows += 1
        return VirtualWindow(self, np.zeros(count, kind), self._windows)

    # Time

    def now(self) -> float:
        """Return the simulated seconds on this rank's clock."""
        return self._state.clock

    def compute(self, seconds: float | None = None, flops: float | None = None, bytes: float | None = None) -> None:
        """Advance the clock by `seconds`, and by the longer of `flops` and `bytes` on the roofline of this rank's core or device."""
        for name, value in (("seconds", seconds), ("flops", flops), ("bytes", bytes)):
            if value is not None and not 0.0 <= value < math.inf:
                raise InputError(f"compute: found {name} = {value!r}; expected 0 or more")
        state = self._state
        begin = state.clock
        spent = float(seconds or 0.0)
        if flops or bytes:
            spent += state.world.roof(state).seconds(flops, bytes)
        state.clock = begin + spent / (1.0 - state.world.progress.core_share)
        call_of(state, "compute", "compute", begin)

    def charge(self, measured: bool = True) -> None:
        """Add the CPU seconds that this rank has used since its last `charge`, times the run's speed ratio.

        The first call only starts to measure. A time that results from it is measured and not reproducible.
        """
        state = self._state
        world = state.world
        now = time.thread_time()
        if measured and state.mark is not None:
            begin = state.clock
            state.clock = begin + max(0.0, now - state.mark) * world.speed_ratio
            call_of(state, "compute", "compute", begin)
        state.mark = time.thread_time()

    # Groups

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        if color is not None and color < 0:
            raise InputError(f"color: found {color}; expected a whole number from 0, or None")
        made = self._made()
        world = self._state.world
        name = (self._context, "split", made)
        told = world.shared.setdefault(name, _Told())
        told.table[self.rank] = (color, key)
        self._tell_all(16)
        if told.groups is None:
            told.groups = _split(told.table)
        told.left += 1
        if told.left == self.size:
            del world.shared[name]
        if color is None:
            return None
        members, place = told.groups[color]
        return self._inherit(self._sub(members, ("split", made, color), place[self.rank]))

    def _tell_all(self, nbytes: int) -> None:
        """Exchange empty messages as an allgather of `nbytes` from each rank by Bruck's algorithm would, for their cost only."""
        shadow = self._shadow
        state = self._state
        have = 1
        while have < self.size:
            more = min(have, self.size - have)
            dest, source = (self.rank - have) % self.size, (self.rank + have) % self.size
            receive = self._request(state, shadow._context + source, 1, more * nbytes, None, None, None)
            receive.peer = source
            receive.posted = state.clock
            state.order = receive.order = state.order + 1
            state.take(receive, source)
            request = state.send(self._all[self._members[dest]], shadow._context + self.rank, dest, 1, more * nbytes, None)
            self._request.wait_all((receive, request))
            have += more

    def _make_shadow(self) -> VirtualRanks:
        world = self._state.world
        context = context_key(world.context((self._context, "shadow")))
        return type(self)(self._state, self._group, self.rank, context, world.unread, self._seed)

    def _sub(self, members: Sequence[int], name: tuple[Any, ...], rank: int | None = None) -> VirtualRanks:
        world = self._state.world
        whole = (self._context, *name)
        group = world.group_of(whole, self._group, members)
        if rank is None:
            rank = self.rank if group is self._group else members.index(self.rank)
        return type(self)(self._state, group, rank, context_key(world.context(whole)), self._tally, self._seed)

    # Parts

    def _run(self, collective: str, nbytes: int, *args: Any) -> None:
        state = self._state
        begin = state.clock
        if state.world.modelled and collective not in self._chosen:
            from armillary.comm.virtual.closed import modelled

            modelled(self._shadow, collective, nbytes, args)
        else:
            super()._run(collective, nbytes, *args)
        if state.world.record is not None:
            call_of(state, collective, "collective", begin)

    def _no_ghosts(self) -> None:
        raise InputError("payload: found a Ghost; expected an array, or a run with payload='ghost'")


class _Told:
    """What the ranks tell each other in a split. The first rank that has heard all works out the groups for everybody."""

    def __init__(self) -> None:
        self.table: dict[int, tuple[int | None, int]] = {}
        self.groups: dict[int, tuple[list[int], dict[int, int]]] | None = None
        self.left = 0


def _split(table: dict[int, tuple[int | None, int]]) -> dict[int, tuple[list[int], dict[int, int]]]:
    """Return for each color its members in order, and the place of each among them."""
    ordered: dict[int, list[tuple[int, int]]] = {}
    for rank in sorted(table):
        color, key = table[rank]
        if color is not None:
            ordered.setdefault(color, []).append((key, rank))
    found = {}
    for color, entries in ordered.items():
        members = [rank for _, rank in sorted(entries)]
        found[color] = (members, {rank: place for place, rank in enumerate(members)})
    return found
