"""The planner that looks at every node: which of copies and NIC takes longer there decides protocols and order.

    rho = copies / NIC < low     the NIC decides: inter-node first, at once to the remembered buffers; receivers copy inside the node,
                                 in pieces with polls between them
    rho > high                   copies decide: sender and receiver share each, by their other load; the largest messages go through the
                                 NIC until both sides take equally long
    between                      shared copies, none through the NIC
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from armillary.network.halo.patterns.pattern import Pattern

from .machine import EAGER_FAR, EAGER_NEAR, Machine
from .plans import CHUNK, Load, loads, moved

#: Seconds in which a leader sums the bytes of its node and publishes a plan.
DECISION_S = 0.5e-6
#: The change of a rank's bytes that is a reason to plan anew, and the gain that is a reason to switch after measuring.
CHANGED, WORTHWHILE = 0.10, 0.05
#: The factor by which estimates of copies may be wrong: a plan this far from a border is not measured, because looking costs a reduction.
NEAR_BORDER = 1.5
#: The first iteration whose times are looked at, and the iterations between two looks.
FIRST, EVERY = 3, 50


@dataclass(frozen=True)
class NodePlan:
    """What one node does: the class, the share of its bytes for the NIC, the sender's share of each copy, and what it promises."""

    kind: str
    psi: float
    shares: dict[tuple[int, int], float]
    loopback: frozenset[tuple[int, int]]
    #: Seconds of copies on the busiest rank, and of the whole exchange.
    copies: float
    promise: float


@dataclass(frozen=True)
class Thresholds:
    """What each part of the mechanism may do; the defaults are the whole of it."""

    low: float = 0.8
    high: float = 1.25
    chunks: bool = True
    cached: bool = True
    balance: bool = True
    loopback: bool = True
    inter_first: bool = True
    feedback: bool = True


@dataclass
class Adaptive:
    """Plans by node, made when the bytes of an iteration are known and corrected by what was measured."""

    pattern: Pattern
    machine: Machine
    parts: Thresholds
    #: By node: measured over estimated seconds of copies, smoothed.
    correction: dict[int, float] = field(default_factory=dict)
    _plans: dict[tuple[int, int, int], NodePlan] = field(default_factory=dict)
    _loads: dict[int, list[Load]] = field(default_factory=dict)
    _version: dict[int, int] = field(default_factory=dict)
    _nodes: dict[int, Any] = field(default_factory=dict)
    _before: dict[int, float] = field(default_factory=dict)
    #: (iteration, node) of each switch after a measurement.
    switches: list[tuple[int, int]] = field(default_factory=list)

    def begin(self, comm: Any, k: int) -> None:
        """Plan anew if this rank's bytes have changed, and look at what was measured now and then."""
        rank = comm.rank
        epoch = self.pattern.epochs[k]
        if rank not in self._nodes:
            # The node's communicator is part of setting up, before anything is timed.
            self._nodes[rank] = comm.split(rank // self.pattern.per_node, rank)
        if k == 0 or self._bytes_changed(rank, self.pattern.epochs[k - 1], epoch):
            comm.compute(DECISION_S)
        if self.parts.feedback and k >= FIRST and (k - FIRST) % EVERY == 0 and self._may_switch(rank // self.pattern.per_node, epoch):
            self._look(comm, rank, k)
        self._before[rank] = comm.busy.copying

    def _may_switch(self, node: int, epoch: int) -> bool:
        """Return whether measuring could change a plan: something is long enough for a choice, and the estimate is near a border."""
        rho = self._estimated(epoch)[node].rho
        return bool(self._inside(node, epoch)) and self.parts.low / NEAR_BORDER < rho < self.parts.high * NEAR_BORDER

    def _bytes_changed(self, rank: int, old: int, new: int) -> bool:
        if old == new:
            return False
        before, after = (sum(nbytes for _, nbytes in self.pattern.tables[e][rank]) for e in (old, new))
        return abs(after - before) > CHANGED * max(before, 1)

    def _look(self, comm: Any, rank: int, k: int) -> None:
        """Take the largest copying of the node in the last iteration; the ranks of a node agree on it by a reduction."""
        import numpy as np

        from armillary.comm import MAX

        node = rank // self.pattern.per_node
        mine = comm.busy.copying - self._before.get(rank, comm.busy.copying)
        group = self._nodes[rank]
        most = float(group.allreduce(np.array([mine]), op=MAX)[0])
        if group.rank == 0:
            self._correct(node, most, k)

    def _correct(self, node: int, measured: float, k: int) -> None:
        epoch = self.pattern.epochs[k - 1]
        plan = self.plan(node, epoch)
        if plan.copies <= 0 or measured <= 0:
            return
        old = self.correction.get(node, 1.0)
        new = 0.5 * old + 0.5 * old * measured / plan.copies
        trial = self._made(node, epoch, new)
        kept = max(measured, self._estimated(epoch)[node].nic)
        if trial.kind != plan.kind and kept > (1 + WORTHWHILE) * trial.promise:
            self.correction[node] = new
            self._version[node] = self._version.get(node, 0) + 1
            self.switches.append((k, node))

    def _estimated(self, epoch: int) -> list[Load]:
        if epoch not in self._loads:
            self._loads[epoch] = loads(self.pattern, epoch, self.machine, receiver=1.0)
        return self._loads[epoch]

    def plan(self, node: int, epoch: int) -> NodePlan:
        """Return the plan of a node for a table of messages."""
        key = (node, epoch, self._version.get(node, 0))
        if key not in self._plans:
            self._plans[key] = self._made(node, epoch, self.correction.get(node, 1.0))
        return self._plans[key]

    def _made(self, node: int, epoch: int, correction: float) -> NodePlan:
        load = self._estimated(epoch)[node]
        cpu = load.cpu * correction
        rho = cpu / load.nic if load.nic > 0 else float("inf")
        if rho < self.parts.low:
            return NodePlan("inter", 0.0, {}, frozenset(), cpu, max(cpu, load.nic))
        shares = self._shares(node, epoch) if self.parts.balance else {}
        copied = self._copied(node, epoch, shares, correction)
        if rho <= self.parts.high or not self.parts.loopback:
            kind = "both" if rho <= self.parts.high else "intra"
            return NodePlan(kind, 0.0, shares, frozenset(), copied, max(copied, load.nic))
        return self._through_nic(node, epoch, shares, correction)

    def _rate(self, node: int, epoch: int, correction: float) -> float:
        """Bytes per second of one rank's copies: the estimate's rate, as far as it has proved right."""
        active = {rank for a, b, _ in self._inside(node, epoch) for rank in (a, b)}
        return min(self.machine.core, self.machine.memory / max(1, len(active))) / correction

    def _copied(self, node: int, epoch: int, shares: dict[tuple[int, int], float], correction: float) -> float:
        """Seconds of copies on the busiest rank of a node when pairs share them like this."""
        copied = self._by_rank(self._inside(node, epoch), shares)
        return max(copied.values(), default=0.0) / self._rate(node, epoch, correction)

    def _by_rank(self, messages: list[tuple[int, int, int]], shares: dict[tuple[int, int], float]) -> dict[int, float]:
        copied: dict[int, float] = {}
        for a, b, n in messages:
            share = shares.get((a, b), 0.5)
            copied[a] = copied.get(a, 0.0) + share * n
            copied[b] = copied.get(b, 0.0) + (1 - share) * n
        return copied

    def _through_nic(self, node: int, epoch: int, shares: dict[tuple[int, int], float], correction: float) -> NodePlan:
        """Take the largest messages of the ranks that copy most out of their hands, as long as copies and NIC together get shorter.

        Messages cannot be split, so the share psi = (cpu - nic) / (cpu + bytes/B), at which both would take equally long, is an ideal;
        the choice stops at the best that whole messages allow.
        """
        nic, rate = self._estimated(epoch)[node].nic, self._rate(node, epoch, correction)
        messages = self._inside(node, epoch)
        copied = self._by_rank(messages, shares)
        total = sum(n for _, _, n in messages)
        moved_bytes, chosen = 0, []
        copies = max(copied.values(), default=0.0) / rate
        best = (max(nic, copies), 0, 0, copies)
        while messages and nic + moved_bytes / self.machine.nic < best[0]:
            busiest = max(copied, key=lambda rank: (copied[rank], -rank))
            own = [m for m in messages if busiest in m[:2]]
            if not own:
                break
            a, b, n = max(own, key=lambda m: (m[2], copied[m[0]] + copied[m[1]], -m[0], -m[1]))
            messages.remove((a, b, n))
            share = shares.get((a, b), 0.5)
            copied[a], copied[b] = copied[a] - share * n, copied[b] - (1 - share) * n
            moved_bytes += n
            chosen.append((a, b))
            copies = max(copied.values()) / rate
            takes = max(nic + moved_bytes / self.machine.nic + self.machine.latency, copies)
            if takes < best[0]:
                best = (takes, len(chosen), moved_bytes, copies)
        return NodePlan("intra", best[2] / total if total else 0.0, shares, frozenset(chosen[: best[1]]), best[3], best[0])

    def _inside(self, node: int, epoch: int) -> list[tuple[int, int, int]]:
        """The (sender, receiver, bytes) of messages inside a node that are long enough for a choice."""
        per = self.pattern.per_node
        table = self.pattern.tables[epoch]
        ranks = range(node * per, (node + 1) * per)
        return [(r, other, n) for r in ranks for other, n in table[r] if other // per == node and n > EAGER_NEAR]

    def _shares(self, node: int, epoch: int) -> dict[tuple[int, int], float]:
        """The sender's share of each copy inside a node."""
        return balanced_shares(self._inside(node, epoch))

    def choose(self, source: int, destination: int, nbytes: int, k: int) -> Any:
        """The protocol of a message, by the plan of the sender's node."""
        if not self.pattern.near(source, destination):
            return None if nbytes <= EAGER_FAR else moved("rput-cached" if self.parts.cached else "rget")
        if nbytes <= EAGER_NEAR:
            return None
        plan = self.plan(source // self.pattern.per_node, self.pattern.epochs[k])
        chunk = CHUNK if self.parts.chunks else 0
        if plan.kind == "inter":
            return moved("read", chunk)
        if (source, destination) in plan.loopback:
            return moved("loopback")
        return moved("shared-copy", chunk, plan.shares.get((source, destination), 0.5))

    def inter_first(self, rank: int, k: int) -> bool:
        """Messages between nodes go first, because copies block the rank."""
        return self.parts.inter_first

    def promise(self, k: int) -> float:
        """The longest that a node's plan says."""
        return max(self.plan(node, self.pattern.epochs[k]).promise for node in range(self.pattern.nodes))


def balanced_shares(messages: list[tuple[int, int, int]]) -> dict[tuple[int, int], float]:
    """Give each pair's sender the part that makes its load and its receiver's equal, one (sender, receiver, bytes) after the other.

    The largest message is first, and until its turn each counts half to both ends.
    """
    load: dict[int, float] = {}
    ordered = sorted(messages, key=lambda m: (-m[2], m[0], m[1]))
    for a, b, n in ordered:
        load[a] = load.get(a, 0.0) + n / 2
        load[b] = load.get(b, 0.0) + n / 2
    shares = {}
    for a, b, n in ordered:
        mine, theirs = load[a] - n / 2, load[b] - n / 2
        share = min(1.0, max(0.0, 0.5 + (theirs - mine) / (2 * n))) if n else 0.5
        load[a], load[b] = mine + share * n, theirs + (1 - share) * n
        shares[a, b] = share
    return shares
