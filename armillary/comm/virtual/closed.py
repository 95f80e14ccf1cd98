"""Collective calls at their closed-form LogGP cost: one meeting of the ranks replaces all the messages, in O(P) per call.

Each call is priced as its default algorithm, without contention between the ranks of one node. message(n) is the time from the call that
sends a message to the end of the call that receives it. A round of exchanges costs one message, or is followed for all ranks at once where
some ranks come late. Reductions combine from the left in the order of the ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.comm.collectives.algorithms import ALGORITHMS, default
from armillary.comm.collectives.operations import Op
from armillary.comm.virtual.costs import Price
from armillary.comm.virtual.ghost import Ghost

if TYPE_CHECKING:
    from armillary.comm.virtual.ranks import VirtualRanks


class _Meeting:
    """The ranks that have called, and the time at which each may go on."""

    def __init__(self, size: int) -> None:
        self.args: list[Any] = [None] * size
        self.clocks = [0.0] * size
        self.states: list[Any] = [None] * size
        self.ends: list[float] = []
        self.came = 0


def modelled(comm: VirtualRanks, collective: str, nbytes: int, args: tuple[Any, ...]) -> None:
    """Make this call with all other ranks of `comm`. The last rank to come does the work of all."""
    state = comm._state
    world = state.world
    number = comm.__dict__["_meetings"] = comm.__dict__.get("_meetings", 0) + 1
    key = (comm._context, "meeting", number)
    meeting: _Meeting | None = world.shared.get(key)
    if meeting is None:
        meeting = world.shared[key] = _Meeting(comm.size)
    rank = comm.rank
    meeting.args[rank] = args
    meeting.clocks[rank] = state.clock
    meeting.states[rank] = state
    meeting.came += 1
    if meeting.came < comm.size:
        state.park(f"{collective} of {comm.size} ranks")
    else:
        del world.shared[key]
        _combine(collective, meeting.args)
        ends = _Costs(_price(comm), comm.size).ends(collective, nbytes, meeting.args, meeting.clocks)
        meeting.ends = [float(end) for end in ends]
        for other in meeting.states:
            if other is not state:
                world.wake(other, 0.0)
    state.clock = max(state.clock, meeting.ends[rank])


def _price(comm: VirtualRanks) -> Price:
    """Return the price between two nodes if the ranks are on several, else the price inside the node."""
    ranks = [comm._all[i] for i in comm._members]
    far = next((other for other in ranks if other.site != ranks[0].site), ranks[0])
    price: Price = ranks[0].prices[far.site]
    return price


class _Costs:
    """The cost of each collective call between P ranks at one price, in seconds; n counts bytes."""

    def __init__(self, price: Price, size: int) -> None:
        self.price = price
        self.size = size
        self.rounds = (size - 1).bit_length()

    def busy(self, n: float) -> float:
        """Return the seconds until the sender may go on."""
        p = self.price
        if n <= p.eager_limit:
            return p.send_overhead + n * p.send_copy
        return self.message(n) - p.receive_overhead - p.latency

    def message(self, n: float) -> float:
        """Return the seconds from the call that sends to the end of the call that receives."""
        p = self.price
        wire = max(n - 1, 0) * p.byte_gap
        if n <= p.eager_limit:
            return p.send_overhead + n * p.send_copy + p.latency + wire + p.receive_overhead + n * p.receive_copy
        ask = p.send_overhead + p.latency
        if p.shm is None:
            return ask + 2 * p.latency + wire + p.receive_overhead
        if p.shm.how == "single-copy":
            return ask + p.shm.setup + n * p.shm.copy + p.receive_overhead
        return ask + 2 * p.latency + (n + min(n, p.shm.cell)) * p.shm.copy + p.receive_overhead

    def spacing(self, n: float) -> float:
        """Return the seconds between two messages that leave one after the other."""
        p = self.price
        start = p.send_overhead + (n * p.send_copy if n <= p.eager_limit else 0.0)
        return max(start, max(n - 1, 0) * p.byte_gap + p.gap if p.shm is None else start)

    def handling(self, n: float) -> float:
        """Return the seconds that the receiver spends on each message that has arrived."""
        p = self.price
        return p.receive_overhead + (n * p.receive_copy if n <= p.eager_limit else 0.0)

    def ends(self, collective: str, nbytes: int, args: Sequence[Any], clocks: Sequence[float]) -> list[float]:
        """Return the time at which each rank may go on."""
        size = self.size
        if size == 1:
            return list(clocks)
        algorithm = default(collective, nbytes, size)
        name = next(name for name, function in ALGORITHMS[collective].items() if function is algorithm)
        if collective in ("gather", "scatter") or (collective == "bcast" and name == "binomial") or collective == "reduce":
            rooted = {"bcast": self._bcast, "reduce": self._reduce, "gather": self._gather, "scatter": self._scatter}
            root = args[0][-1]
            return rooted[collective](_bytes(collective, args, root), root, clocks)
        if collective == "allreduce":
            return self._allreduce(name, nbytes, args[0][1].size, args[0][2], clocks)
        if collective in ("scan", "exscan"):
            return self._scan(nbytes, clocks)
        together = max(clocks) + self._together(collective, name, nbytes, args)
        return [together] * size

    def _allreduce(self, name: str, nbytes: int, count: int, op: Op, clocks: Sequence[float]) -> list[float]:
        """Ranks beyond a power of two join a neighbour; the others exchange in rounds, which are followed for all ranks at once."""
        times = np.array(clocks)
        power = 1 << (self.size.bit_length() - 1)
        rest = self.size - power
        even, odd = np.arange(0, 2 * rest, 2), np.arange(1, 2 * rest, 2)
        times[odd], times[even] = self._meet(times[odd], times[even], nbytes)
        active = np.concatenate([odd, np.arange(2 * rest, self.size)])
        places = np.arange(power)
        sizes = [float(nbytes)] * (power.bit_length() - 1)
        if name == "rabenseifner" and op.elementwise and count >= power:
            halves = [nbytes / 2 ** (k + 1) for k in range(len(sizes))]
            sizes = halves + halves[::-1]
        levels = power.bit_length() - 1
        for k, n in enumerate(sizes):
            distance = 1 << (k if k < levels else 2 * levels - 1 - k)
            own = times[active]
            times[active] = self._exchange(own, own[places ^ distance], n)
        times[even], times[odd] = self._meet(times[even], times[odd], nbytes)
        found: list[float] = times.tolist()
        return found

    def _scan(self, n: int, clocks: Sequence[float]) -> list[float]:
        times = np.array(clocks)
        distance = 1
        while distance < self.size:
            before = times.copy()
            times[:-distance] += self.busy(n) if n <= self.price.eager_limit else self.price.send_overhead
            received, _ = self._meet(times[distance:], before[:-distance], n)
            times[distance:] = received
            distance *= 2
        found: list[float] = times.tolist()
        return found

    def _exchange(self, own: Any, others: Any, n: float) -> Any:
        """Return the times at which ranks that send to and receive from each other have done both."""
        p = self.price
        started = own + p.send_overhead + (n * p.send_copy if n <= p.eager_limit else 0.0)
        return self._meet(started, others, n)[0]

    def _meet(self, receiver: Any, sender: Any, n: float) -> tuple[Any, Any]:
        """Return the times at which a receiver and a sender, which call at these times, may go on."""
        p = self.price
        whole = self.message(n)
        if n <= p.eager_limit:
            handling = self.handling(n)
            return np.maximum(receiver, sender + (whole - handling)) + handling, sender + self.busy(n)
        # The answer to a long message needs the receiver.
        ask = p.send_overhead + p.latency
        end = np.maximum(receiver, sender + ask) + (whole - ask)
        return end, end - p.receive_overhead - p.latency

    def _together(self, collective: str, name: str, nbytes: int, args: Sequence[Any]) -> float:
        """Return the seconds from the last rank's call to the end of all."""
        size, message = self.size, self.message
        if collective == "barrier":
            return self.rounds * message(nbytes)
        if collective == "bcast":
            scatter = sum(message(nbytes / 2 ** (k + 1)) for k in range(self.rounds))
            return scatter + (size - 1) * message(nbytes / size)
        if collective == "allgather":
            block = nbytes / size
            if name == "ring":
                return (size - 1) * message(block)
            return sum(message(block * min(1 << k, size - (1 << k))) for k in range(self.rounds))
        if collective == "alltoall" and name == "bruck":
            return sum(message(nbytes * sum(1 for i in range(size) if i >> k & 1)) for k in range(self.rounds))
        if collective == "reduce_scatter":
            largest = max(block.nbytes for block in args[0][0])
            return (size - 1) * message(largest)
        sizes = [[block.nbytes for block in sends] for sends, _ in args]
        if name == "pairwise":
            return sum(message(max(sizes[r][(r + step) % size] for r in range(size))) for step in range(1, size))
        return max(self._scattered([n for i, n in enumerate(own) if i != r]) for r, own in enumerate(sizes))

    def _scattered(self, sizes: Sequence[int]) -> float:
        """Return the seconds of all sends and all receives at once. A rank is taken to receive as much as it sends."""
        left = sum(self.spacing(n) for n in sizes[:-1])
        sent = sum(self.price.send_overhead + (n * self.price.send_copy if n <= self.price.eager_limit else 0.0) for n in sizes)
        return max(sent + sum(self.handling(n) for n in sizes), left + self.message(sizes[-1]))

    def _bcast(self, n: int, root: int, clocks: Sequence[float]) -> list[float]:
        size = self.size
        times = [clocks[(place + root) % size] for place in range(size)]
        for place in range(size):
            step = (place & -place) if place else 1 << self.rounds
            while step := step >> 1:
                if place + step < size:
                    times[place + step], times[place] = self._meet(times[place + step], times[place], n)
        return [times[(rank - root) % size] for rank in range(size)]

    def _reduce(self, n: int, root: int, clocks: Sequence[float]) -> list[float]:
        times = list(clocks)
        step = 1
        while step < self.size:
            for parent in range(0, self.size - step, 2 * step):
                times[parent], times[parent + step] = self._meet(times[parent], times[parent + step], n)
            step *= 2
        if root:
            times[root], times[0] = self._meet(times[root], times[0], n)
        return times

    def _gather(self, n: int, root: int, clocks: Sequence[float]) -> list[float]:
        times = [clock + self.busy(n) for clock in clocks]
        handling = self.handling(n)
        arrivals = sorted(clocks[i] + self.message(n) - handling for i in range(self.size) if i != root)
        end = clocks[root]
        for arrival in arrivals:
            end = max(end, arrival) + handling
        times[root] = end
        return times

    def _scatter(self, n: int, root: int, clocks: Sequence[float]) -> list[float]:
        times = list(clocks)
        others = [i for i in range(self.size) if i != root]
        for k, rank in enumerate(others):
            left = clocks[root] + k * self.spacing(n)
            times[rank] = max(clocks[rank] + self.handling(n), left + self.message(n))
        times[root] += (self.size - 1) * (self.busy(n) if n <= self.price.eager_limit else self.spacing(n))
        return times


def _bytes(collective: str, args: Sequence[Any], root: int) -> int:
    if collective == "scatter":
        return max(block.nbytes for block in args[root][0])
    return max(int(own[0].nbytes) for own in args)


# Answers


def _combine(collective: str, args: Sequence[Any]) -> None:
    """Put the data of all ranks where the call says. Ghosts have no data."""
    if collective == "barrier":
        return
    if collective == "bcast":
        root = args[0][1]
        for own in args:
            _put(own[0], args[root][0])
    elif collective in ("reduce", "allreduce"):
        whole = _fold([own[0] for own in args], args[0][2])[-1]
        for own in args:
            _put(own[1], whole)
    elif collective in ("scan", "exscan"):
        prefix = _fold([own[0] for own in args], args[0][2])
        for rank, own in enumerate(args):
            if collective == "scan":
                _put(own[1], prefix[rank])
            elif rank:
                _put(own[1], prefix[rank - 1])
    elif collective == "gather":
        for own, block in zip(args, args[args[0][2]][1]):
            _put(block, own[0])
    elif collective == "scatter":
        for own, block in zip(args, args[args[0][2]][0]):
            _put(own[1], block)
    elif collective == "allgather":
        for own in args:
            for other, block in zip(args, own[1]):
                _put(block, other[0])
    elif collective == "reduce_scatter":
        for rank, own in enumerate(args):
            _put(own[1], _fold([other[0][rank] for other in args], own[2])[-1])
    else:
        for rank, (sends, _) in enumerate(args):
            for block, (_, recvs) in zip(sends, args):
                _put(recvs[rank], block)


def _put(room: Any, data: Any) -> None:
    if room is not None and room is not data and not isinstance(room, Ghost) and not isinstance(data, Ghost):
        room[...] = data


def _fold(parts: Sequence[Any], op: Op) -> list[Any]:
    """Return the reductions of the first part, the first two parts, and so on."""
    found = [parts[0].copy()]
    for part in parts[1:]:
        found.append(op(found[-1], part))
    return found
