"""Exact loads of channels under oblivious routings, by enumeration: where minimal and Valiant routing saturate in theory.

At an offered load of 1 flit per node and cycle, a channel with load gamma would have to carry gamma flits per cycle, so no more than
1/gamma_max of the traffic is accepted. Adaptive routings have no such figure, because their paths depend on queues.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

from ..fabric.network import Network
from ..fabric.tables import GLOBAL
from ..min import Min
from ..simulation.routing import Routing
from ..traffic.synthetic import Traffic, traffic_of
from ..valiant import Valiant

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Exact:
    """Loads of channels at load 1, in the order of `net.channels`, and the mean hops of a packet."""

    load: Floats
    hops: float

    @property
    def saturation(self) -> float:
        """The highest load at which no channel is overloaded, at most 1."""
        return float(min(1.0, 1 / self.load.max(initial=1e-300)))


class _Loads:
    """Adds up flows over local links and channels."""

    def __init__(self, net: Network) -> None:
        self.t = net.tables
        self.local = np.zeros((net.routers, net.routers))
        self.channel = np.zeros(len(self.t.router))
        self.groups = net.groups

    def members(self, group: int) -> npt.NDArray[np.int64]:
        return self.t.members[self.t.member_start[group] : self.t.member_start[group + 1]].astype(np.int64)

    def channels(self, source: int, target: int) -> npt.NDArray[np.int64]:
        pair = source * self.groups + target
        return self.t.channels[self.t.channel_start[pair] : self.t.channel_start[pair + 1]].astype(np.int64)

    def ends(self, channel: int) -> tuple[int, int]:
        """The routers that a channel leaves and reaches."""
        return int(self.t.router[channel]), int(self.t.router[self.t.peer[channel]])


def channel_loads(net: Network, routing: Routing, traffic: str | Traffic) -> Exact:
    """The exact loads under `Min` or `Valiant` and a traffic that does not change in time."""
    if not isinstance(routing, Min | Valiant):
        raise InputError(f"{type(routing).__name__} adapts to queues; expected Min or Valiant")
    matrix = traffic_of(traffic, net).matrix(net)
    loads = _Loads(net)
    visits = isinstance(routing, Valiant) and routing.to == "router"
    for group in range(net.groups):
        own = loads.members(group)
        loads.local[np.ix_(own, own)] += matrix[np.ix_(own, own)]
        for target in range(net.groups):
            if target == group:
                continue
            there = loads.members(target)
            part = matrix[np.ix_(own, there)]
            if not part.any():
                continue
            flow = (own, part.sum(1), there, part.sum(0), float(part.sum()))
            if isinstance(routing, Min) and len(loads.channels(group, target)):
                _minimal(loads, group, target, flow)
            else:
                _around(loads, group, target, flow, visits)
    np.fill_diagonal(loads.local, 0.0)
    for port in np.flatnonzero(loads.t.kind == 1):
        r, other = loads.t.router[port], loads.t.router[loads.t.peer[port]]
        loads.channel[port] = loads.local[r, other] / loads.t.local[r, loads.t.place[other], 1]
    found = loads.channel[loads.t.channel_ports]
    return Exact(found, float((loads.local.sum() + loads.channel[loads.t.kind == GLOBAL].sum()) / matrix.sum()))


_Flow = tuple[npt.NDArray[np.int64], Floats, npt.NDArray[np.int64], Floats, float]


def _minimal(loads: _Loads, group: int, target: int, flow: _Flow) -> None:
    own, leaving, there, coming, total = flow
    channels = loads.channels(group, target)
    for channel in channels.tolist():
        owner, reached = loads.ends(channel)
        share = 1 / len(channels)
        loads.local[own, owner] += leaving * share
        loads.channel[channel] += total * share
        loads.local[reached, there] += coming * share


def _around(loads: _Loads, group: int, target: int, flow: _Flow, visits: bool) -> None:
    own, leaving, there, coming, total = flow
    ways = [
        (middle, first, second)
        for middle in range(loads.groups)
        if middle not in (group, target) and len(first := loads.channels(group, middle)) and len(second := loads.channels(middle, target))
    ]
    if not ways:
        _minimal(loads, group, target, flow)
        return
    for middle, firsts, seconds in ways:
        share = 1 / (len(ways) * len(firsts) * len(seconds))
        for first in firsts.tolist():
            for second in seconds.tolist():
                (owner, reached), (leaves, arrives) = loads.ends(first), loads.ends(second)
                loads.local[own, owner] += leaving * share
                loads.channel[first] += total * share
                if visits:
                    inside = loads.members(middle)
                    loads.local[reached, inside] += total * share / len(inside)
                    loads.local[inside, leaves] += total * share / len(inside)
                else:
                    loads.local[reached, leaves] += total * share
                loads.channel[second] += total * share
                loads.local[arrives, there] += coming * share
