"""Plans of an exchange: the protocol of every message, and the order in which a rank posts.

    inter first     receives and sends between nodes, then those inside the node
    neighbours      all receives in the order of neighbours, then all sends
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from armillary.network.halo.patterns.pattern import Pattern

from .machine import EAGER_FAR, EAGER_NEAR, Machine

if TYPE_CHECKING:
    from armillary.comm import Protocol as Moved

CHUNK = 64 << 10


@lru_cache(maxsize=4096)
def moved(name: str, chunk: int = 0, share: float = 0.5) -> Moved:
    """Return a protocol with its parameters."""
    from armillary.comm import Protocol

    return Protocol(name, chunk=chunk, share=share)


class Planner(Protocol):
    """What chooses protocols and orders while an exchange is simulated."""

    def begin(self, comm: Any, k: int) -> None:
        """Decide before iteration k, on every rank; what that takes is charged to the rank."""

    def choose(self, source: int, destination: int, nbytes: int, k: int) -> Any:
        """The protocol of a message."""

    def inter_first(self, rank: int, k: int) -> bool:
        """The order in which a rank posts."""

    def promise(self, k: int) -> float:
        """The seconds that iteration k should take."""


@dataclass
class Fixed:
    """The same protocols always."""

    pattern: Pattern
    machine: Machine
    far: str
    near: str
    chunk: int = 0
    share: float = 0.5
    first: bool = False
    _known: dict[int, float] = field(default_factory=dict)

    def begin(self, comm: Any, k: int) -> None:
        """Nothing is decided."""

    def choose(self, source: int, destination: int, nbytes: int, k: int) -> Any:
        """The one protocol of messages inside nodes, and the other of those between them; short ones go with their data."""
        if self.pattern.near(source, destination):
            return None if nbytes <= EAGER_NEAR else moved(self.near, self.chunk, self.share)
        return None if nbytes <= EAGER_FAR else moved(self.far)

    def inter_first(self, rank: int, k: int) -> bool:
        """Whether messages between nodes are posted first."""
        return self.first

    def promise(self, k: int) -> float:
        """The longer of copies and NIC on the busiest node."""
        epoch = self.pattern.epochs[k]
        if epoch not in self._known:
            found = loads(self.pattern, epoch, self.machine, receiver=1.0 - self.share if self.near == "shared-copy" else 1.0)
            self._known[epoch] = max(max(one.cpu, one.nic) for one in found)
        return self._known[epoch]


@dataclass(frozen=True)
class Load:
    """The estimates for one node: seconds of copies on its busiest rank, seconds of its NIC, and its bytes of either kind."""

    cpu: float
    nic: float
    near_bytes: int
    far_bytes: int

    @property
    def rho(self) -> float:
        """Copies over NIC; infinite without messages between nodes."""
        return self.cpu / self.nic if self.nic > 0 else float("inf") if self.cpu > 0 else 1.0


def loads(pattern: Pattern, epoch: int, machine: Machine, receiver: float = 0.5) -> list[Load]:
    """Return the estimates for every node; `receiver` is the share of a copy that the receiver makes."""
    per = pattern.per_node
    copies = [0.0] * pattern.ranks
    near, out, into, calls = [0] * pattern.nodes, [0] * pattern.nodes, [0] * pattern.nodes, [0] * pattern.ranks
    active = [set[int]() for _ in range(pattern.nodes)]
    far = [0] * pattern.nodes
    for rank, sent in enumerate(pattern.tables[epoch]):
        for other, nbytes in sent:
            a, b = rank // per, other // per
            calls[rank] += 1
            calls[other] += 1
            if a == b:
                near[a] += nbytes
                active[a].update((rank, other))
                twice = nbytes <= EAGER_NEAR
                copies[rank] += nbytes * (1.0 if twice else 1.0 - receiver)
                copies[other] += nbytes * (1.0 if twice else receiver)
            else:
                far[a] += 1
                out[a] += nbytes
                into[b] += nbytes
                if nbytes <= EAGER_FAR:
                    copies[rank] += nbytes
                    copies[other] += nbytes
    found = []
    for node in range(pattern.nodes):
        ranks = range(node * per, (node + 1) * per)
        rate = min(machine.core, machine.memory / max(1, len(active[node])))
        cpu = max(copies[r] / rate + calls[r] * machine.overhead for r in ranks)
        wire = max(out[node], into[node]) / machine.nic + (machine.latency if out[node] or into[node] else 0.0)
        found.append(Load(cpu, wire, near[node], max(out[node], into[node])))
    return found
