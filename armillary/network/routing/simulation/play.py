"""Runs a routing on a network under a traffic, and gives what came of it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.streams import words

from ..fabric.network import Network
from ..traffic.messages import Messages
from ..traffic.synthetic import Traffic, traffic_of
from .routing import Routing, loop_of
from .sources import start_messages
from .state import (
    ALL_HOPS,
    ALL_OFFERED,
    ARRIVED,
    BACKLOG,
    COUNTED,
    COUNTED_ARRIVED,
    CREATED,
    CYCLE,
    DETOURED,
    DROPPED,
    ENDED,
    FLITS,
    FREE,
    HOPS_SUM,
    INJECTED,
    LATENCY_SUM,
    MAX_BYTES,
    MESSAGES_LEFT,
    MOST_HOPS,
    NEXT,
    OFFERED,
    OLDEST,
    RELEASED,
    State,
    buffer_flits,
    new_state,
    with_more_packets,
)

#: Largest packet, in flits.
MOST_FLITS = 16
MOST_CYCLES = 1 << 29
#: The share of counted packets that must have arrived before a run ends.
ENOUGH = 0.95
#: Cycles between two looks at whether enough packets have arrived.
LOOK = 200


@dataclass(frozen=True, eq=False)
class Played:
    """What came of a run. Cycles are those of a link, which carries one flit per cycle."""

    net: Network
    routing: Routing
    cycles: int
    warm_up: int
    flits: int
    state: State
    #: CPU seconds of the run.
    cpu_s: float
    #: Whether fewer than 95 % of the counted packets arrived in three times the cycles, if the run was to wait for them.
    unfinished: bool

    def _n(self, column: int) -> int:
        return int(self.state.n[column])

    @property
    def accepted(self) -> float:
        """Flits that arrived per node and cycle, after the warm-up."""
        return self._n(FLITS) / self.net.nodes / max(1, self.cycles - self.warm_up)

    @property
    def offered(self) -> float:
        """Flits that were created per node and cycle, after the warm-up."""
        return self._n(OFFERED) * self.flits / self.net.nodes / max(1, self.cycles - self.warm_up)

    @property
    def saturated(self) -> bool:
        """Whether less than 95 % of what was offered arrived in time, source queues overflowed, or packets were left at the end."""
        return self.unfinished or self.dropped > 0 or (not self.messages and self.accepted < ENOUGH * self.offered)

    @property
    def messages(self) -> int:
        """How many messages were played; 0 for synthetic traffic."""
        return len(self.state.message)

    @property
    def arrived(self) -> int:
        """Packets that were created after the warm-up and arrived."""
        return self._n(COUNTED_ARRIVED)

    @property
    def latency(self) -> float:
        """Mean cycles from creation to arrival of packets created after the warm-up."""
        return self._n(LATENCY_SUM) / self.arrived if self.arrived else float("nan")

    def latency_quantile(self, share: float) -> float:
        """The least number of cycles that this share of the packets did not exceed."""
        if not self.arrived:
            return float("nan")
        total = np.cumsum(self.state.histogram)
        return float(np.searchsorted(total, max(1, int(np.ceil(share * self.arrived)))))

    @cached_property
    def _ages(self) -> npt.NDArray[np.int64]:
        """The ages of counted packets that have not arrived."""
        s = self.state
        now, found = self._n(CYCLE), []
        if not len(s.message):
            head, count = s.source_at[:, 0].astype(np.int64), s.source_at[:, 1].astype(np.int64)
            node = np.repeat(np.arange(self.net.nodes), count)
            within = np.arange(len(node)) - np.repeat(np.cumsum(count) - count, count)
            found.append(s.source[node, (head[node] + within) % s.source.shape[1], 0].astype(np.int64))
        free = np.zeros(len(s.packet), bool)
        p = int(s.n[FREE])
        while p >= 0:
            free[p] = True
            p = int(s.packet[p, NEXT])
        found.append(s.packet[~free, CREATED].astype(np.int64))
        created = np.concatenate(found)
        return now - created[(created >= self.warm_up) & (created < self.cycles)]

    @property
    def latency_at_least(self) -> float:
        """The same with packets that have not arrived, which count with their ages: less than they will take in the end."""
        total = self._n(LATENCY_SUM) + int(self._ages.sum())
        return total / max(1, self.arrived + len(self._ages))

    def quantile_at_least(self, share: float) -> float:
        """`latency_quantile` with packets that have not arrived, which count with their ages."""
        total = np.cumsum(self.state.histogram + np.bincount(self._ages, minlength=len(self.state.histogram))[: len(self.state.histogram)])
        return float(np.searchsorted(total, max(1, int(np.ceil(share * (self.arrived + len(self._ages)))))))

    @property
    def latencies(self) -> npt.NDArray[np.int64]:
        """How many packets took 0, 1, 2, … cycles."""
        found: npt.NDArray[np.int64] = self.state.histogram
        return found

    @property
    def hops(self) -> float:
        """Mean links between routers that a packet took; of all packets where none that was created after the warm-up has arrived."""
        if self.arrived:
            return self._n(HOPS_SUM) / self.arrived
        return self.packet_hops / max(1, self._n(ARRIVED))

    @property
    def detoured(self) -> float:
        """The share of packets that went by way of another group."""
        return self._n(DETOURED) / self.arrived if self.arrived else float("nan")

    @property
    def packet_hops(self) -> int:
        """Links between routers that all packets took together."""
        return self._n(ALL_HOPS)

    @property
    def hops_per_s(self) -> float:
        """Packet-hops simulated per CPU second."""
        return self.packet_hops / self.cpu_s if self.cpu_s > 0 else 0.0

    @property
    def dropped(self) -> int:
        """Packets that found their source queue full."""
        return self._n(DROPPED)

    @property
    def channel_load(self) -> npt.NDArray[np.float64]:
        """Flits per cycle on each channel after the warm-up, in the order of `net.channels`."""
        span = max(1, min(self.cycles, self._n(CYCLE)) - self.warm_up)
        return self.state.sent[self.net.tables.channel_ports] / span

    @property
    def counts(self) -> dict[str, int]:
        """Packets created, dropped, waiting in source queues, injected, arrived and in the network; the oldest age and the most hops."""
        created, dropped, waiting = self._n(ALL_OFFERED), self.dropped, self._n(BACKLOG)
        injected, arrived = self._n(INJECTED), self._n(ARRIVED)
        return {
            "created": created, "dropped": dropped, "waiting": waiting, "injected": injected, "arrived": arrived,
            "inside": injected - arrived, "oldest": self._n(OLDEST), "most_hops": self._n(MOST_HOPS),
        }  # fmt: skip

    @property
    def messages_left(self) -> int:
        """Messages that had not arrived when the run ended."""
        return self._n(MESSAGES_LEFT)

    @property
    def completion(self) -> int:
        """The cycle in which the last message arrived."""
        return int(self.state.message[:, ENDED].max(initial=0))

    @property
    def message_cycles(self) -> npt.NDArray[np.int64]:
        """Cycles from release to arrival of each message."""
        found: npt.NDArray[np.int64] = self.state.message[:, ENDED] - self.state.message[:, RELEASED]
        return found


def simulate(
    net: Network, routing: Routing, traffic: str | Traffic = "uniform", load: float = 0.5, *, cycles: int = 20_000,
    warm_up: int | None = None, seed: int = 0, flits: int = 1, buffer: int | None = None, until_arrived: bool = True, status_cycles: int =
    0, record: bool = False, max_bytes: int = MAX_BYTES,
) -> Played:  # fmt: skip
    """Plays a synthetic traffic: what is accepted, and how long packets take.

    `load` is in flits per node and cycle, `cycles` includes the warm-up (a third unless given), `flits` is the size of packets, `buffer`
    the flits per port and virtual channel. With `until_arrived` the run goes on (injecting) until 95 % of the counted packets have
    arrived, for at most three times the cycles. `status_cycles` is the least time between two exchanges of status. Traffic and routing
    draw from two streams of `seed`.
    """
    if not 0 < load <= 1:
        raise InputError(f"found {load}; expected flits per node and cycle, above 0 and at most 1", where="load")
    warm = cycles // 3 if warm_up is None else warm_up
    _check(cycles, warm, flits, buffer, net)
    if net.nodes < 2:
        raise InputError(f"found {net.nodes} nodes; expected at least 2")
    seeds = _seeds(seed)
    drawn = traffic_of(traffic, net).drawn(net, load, flits, np.random.Generator(np.random.PCG64DXSM(seeds[2])))
    state = _start(
        net, routing, seeds, cycles, warm, flits, buffer, *drawn, status_cycles=status_cycles, record=record, max_bytes=max_bytes,
        source_packets=(3 if until_arrived else 1) * cycles + 1,
    )  # fmt: skip
    state, began = _advance(routing, state, cycles, 0.0)
    n, enough = state.n, True
    while until_arrived:
        enough = n[COUNTED_ARRIVED] >= ENOUGH * n[COUNTED]
        if enough or n[CYCLE] >= 3 * cycles:
            break
        state, began = _advance(routing, state, min(3 * cycles, int(n[CYCLE]) + LOOK), began)
        n = state.n
    return Played(net, routing, cycles, warm, flits, state, began, not enough)


def replay(
    net: Network, routing: Routing, messages: Messages | str | Path, *, cycle_ns: float = 1.0, flit_bytes: int = 64, seed: int = 0, flits:
    int = 4, buffer: int | None = None, max_cycles: int = 20_000_000, status_cycles: int = 0, record: bool = False, max_bytes: int =
    MAX_BYTES,
) -> Played:  # fmt: skip
    """Plays messages, or those of a file (CSV, Parquet, OTF2), until all have arrived; one that has not after `max_cycles` is an error.

    Packets have up to `flits` flits. `cycle_ns` and `flit_bytes` turn the nanoseconds and bytes of a file into cycles and flits.
    """
    _check(max_cycles, 0, flits, buffer, net)
    if not isinstance(messages, Messages):
        from ..traffic.traces import read_messages

        messages = read_messages(messages, cycle_ns=cycle_ns, flit_bytes=flit_bytes)
    starts = messages.checked(net, max_cycles)
    from .sources import MESSAGES, PACKET_FLITS, PATTERN, TRAFFIC_NUMBERS

    traffic = np.zeros(TRAFFIC_NUMBERS, np.int64)
    traffic[PATTERN], traffic[PACKET_FLITS] = MESSAGES, flits
    state = _start(
        net, routing, _seeds(seed), max_cycles, 0, flits, buffer, traffic, np.zeros(0, np.int32), status_cycles=status_cycles,
        record=record, max_bytes=max_bytes, messages=starts,
    )  # fmt: skip
    start_messages(state)
    taken = 0.0
    while state.n[MESSAGES_LEFT]:
        if state.n[CYCLE] >= max_cycles:
            left = int(state.n[MESSAGES_LEFT])
            raise InputError(f"{left:,} of {len(messages):,} messages have not arrived after {max_cycles:,} cycles", where="max_cycles")
        state, taken = _advance(routing, state, min(max_cycles, int(state.n[CYCLE]) + LOOK), taken)
    return Played(net, routing, int(state.n[CYCLE]), 0, flits, state, taken, False)


def _check(cycles: int, warm_up: int, flits: int, buffer: int | None, net: Network) -> None:
    if not 1 <= cycles <= MOST_CYCLES:
        raise InputError(f"found {cycles} cycles; expected 1 to {MOST_CYCLES:,}", where="cycles")
    if not 0 <= warm_up < cycles:
        raise InputError(f"found {warm_up}; expected 0 to {cycles - 1} cycles", where="warm_up")
    if not 1 <= flits <= MOST_FLITS:
        raise InputError(f"found {flits}; expected 1 to {MOST_FLITS}", where="flits")
    if buffer is not None and not flits <= buffer <= 1 << 20:
        raise InputError(f"found {buffer}; expected at least a packet of {flits} flits, and at most {1 << 20:,}", where="buffer")


def _seeds(seed: int) -> tuple[int, int, int]:
    """Seeds of the streams of traffic, routing, and of what is drawn before the run."""
    parts = [words(str(seed), name) for name in ("traffic", "routing", "before")]
    first, second, third = (low | high << 32 for low, high, *_ in parts)
    return first, second, third


def _start(
    net: Network, routing: Routing, seeds: tuple[int, int, int], cycles: int, warm_up: int, flits: int, buffer: int | None, traffic: Any,
    table: Any, *, status_cycles: int, record: bool, max_bytes: int, messages: Any = None, source_packets: int = 1,
) -> State:  # fmt: skip
    own, real = routing.memory(net)
    status = routing.status_cycles(net)
    return new_state(
        net, seeds=seeds[:2], cycles=cycles, warm_up=warm_up, flits=flits, buffer=buffer_flits(net, flits) if buffer is None else buffer,
        settings=np.array([*routing.settings(net, flits), 0], np.int64), own=own, real=real, traffic=traffic, table=table,
        decision_cycles=routing.extra_cycles(), status_cycles=max(status, status_cycles) if status else 0, messages=messages,
        source_packets=source_packets, record=record, max_bytes=max_bytes,
    )  # fmt: skip


def _advance(routing: Routing, state: State, until: int, taken: float) -> tuple[State, float]:
    """Runs until a cycle; gives the state, whose packets may have moved to a larger array, and the CPU seconds so far."""
    run, window = loop_of(routing), routing.window_cycles()
    began = time.thread_time()
    while state.n[CYCLE] < until:
        now = int(state.n[CYCLE])
        stop = min(until, (now // window + 1) * window) if window else until
        if run(state, stop):
            state = with_more_packets(state)
        elif window and state.n[CYCLE] % window == 0:
            routing.adapt(state)
    return state, taken + time.thread_time() - began
