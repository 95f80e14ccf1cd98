"""Decides which GPUs take prompts and which decode, with groups that span as few servers as possible, and each group's home switch."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from armillary.errors import InputError

from ..collectives.wires import Wires
from ..simulation.groups import Group


@dataclass(frozen=True)
class Slo:
    """The bounds of a request: seconds to the first token and per further token, and the share of requests that must meet both."""

    ttft_s: float
    tpot_s: float
    share: float = 0.9

    def __post_init__(self) -> None:
        for name in ("ttft_s", "tpot_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"slo: {name}: found {getattr(self, name)}; expected seconds above 0")
        if not 0 < self.share <= 1:
            raise InputError(f"slo: share: found {self.share}; expected above 0, at most 1")


@dataclass(frozen=True)
class Fleet:
    """`count` instances of `tp` × `pp` devices each."""

    tp: int
    pp: int = 1
    count: int = 1

    @property
    def devices(self) -> int:
        """The number of devices."""
        return self.tp * self.pp * self.count


@dataclass(frozen=True)
class Instance:
    """One serving instance: its pipeline stages, each a tensor-parallel group."""

    tp: int
    stages: tuple[Group, ...]

    @property
    def pp(self) -> int:
        """The number of pipeline stages."""
        return len(self.stages)

    @property
    def servers(self) -> int:
        """The number of servers that it is on."""
        return len({i for g in self.stages for i in g.servers})


@dataclass(frozen=True)
class Plan:
    """Instances for prompts and for decoding, and requests per second that they should carry."""

    prefill: tuple[Instance, ...]
    decode: tuple[Instance, ...]
    score: float = 0.0

    @property
    def groups(self) -> list[Group]:
        """All groups, those of prompts first."""
        return [g for each in (*self.prefill, *self.decode) for g in each.stages]

    @property
    def spans(self) -> bool:
        """Whether some group is on several servers."""
        return any(g.spans for g in self.groups)

    def describe(self) -> str:
        """Returns one line with the instances, their tensor and pipeline parallelism, and the servers that a group spans."""
        said = []
        for name, part in (("prefill", self.prefill), ("decode", self.decode)):
            one = part[0]
            said.append(f"{name} {len(part)} x TP {one.tp} PP {one.pp} on {len(one.stages[0].servers)} server(s) per group")
        return ", ".join(said)

    def to_json(self) -> str:
        """Returns every group's servers, home switch and reserved slots as JSON."""
        return json.dumps(
            {
                "requests_per_s": self.score,
                **{
                    name: [
                        {"tp": i.tp, "stages": [{"servers": list(g.servers), "gpus": g.gpus, "switch": g.home, "reserved_slots": g.reserved}
                                                for g in i.stages]}
                        for i in part
                    ]
                    for name, part in (("prefill", self.prefill), ("decode", self.decode))
                },
            },
            indent=1,
        )  # fmt: skip


def place(wires: Wires, prefill: Fleet, decode: Fleet) -> Plan | None:
    """Packs both fleets, widest groups first, each on as few servers as possible; returns None if they do not fit.

    A group wider than a server takes whole servers that share a switch. Homes alternate between the switches.
    """
    free = [wires.gpus] * wires.servers
    asked = sorted(((f.tp, kind, i, k) for kind, f in ((0, prefill), (1, decode)) for i in range(f.count) for k in range(f.pp)),
                   key=lambda a: (-a[0], *a[1:]))  # fmt: skip
    found: dict[tuple[int, int, int], Group] = {}
    homes = 0
    for tp, kind, i, k in asked:
        servers = _room(wires, free, tp)
        if servers is None:
            return None
        each = tp // len(servers)
        for server in servers:
            free[server] -= each
        home = 0
        if len(servers) > 1:
            shared = wires.common(servers)
            home = shared[homes % len(shared)]
            homes += 1
        found[kind, i, k] = Group(tuple(servers), each, home, decode=kind == 1)
    made = [
        tuple(Instance(f.tp, tuple(found[kind, i, k] for k in range(f.pp))) for i in range(f.count))
        for kind, f in ((0, prefill), (1, decode))
    ]
    return Plan(made[0], made[1])


def _room(wires: Wires, free: Sequence[int], tp: int) -> list[int] | None:
    if tp <= wires.gpus:
        fitting = [i for i, room in enumerate(free) if room >= tp]
        return [min(fitting, key=lambda i: (free[i], i))] if fitting else None
    if tp % wires.gpus:
        return None
    whole = [i for i, room in enumerate(free) if room == wires.gpus]
    for switch in range(wires.switches):
        near = [i for i in whole if switch in wires.reach[i]]
        if len(near) >= tp // wires.gpus:
            return near[: tp // wires.gpus]
    return None


def given(wires: Wires, prefill: Fleet, decode: Fleet) -> Plan:
    """Packs a placement that somebody asked for; raises InputError if it does not fit."""
    for name, fleet in (("prefill", prefill), ("decode", decode)):
        if min(fleet.tp, fleet.pp, fleet.count) < 1:
            raise InputError(f"{name}: found TP {fleet.tp}, PP {fleet.pp}, {fleet.count} instances; expected at least 1 of each")
        if fleet.tp > wires.gpus and fleet.tp % wires.gpus == 0:
            wide = fleet.tp // wires.gpus
            if wide <= wires.servers and not any(sum(w in r for r in wires.reach) >= wide for w in range(wires.switches)):
                raise InputError(f"{name}: no {wide} servers have a switch in common; expected a group that one switch joins")
    plan = place(wires, prefill, decode)
    if plan is None:
        raise InputError(
            f"{prefill.devices + decode.devices} devices in groups of {prefill.tp} and {decode.tp} do not fit; "
            f"expected at most {wires.servers} servers of {wires.gpus}"
        )
    return plan


def with_homes(wires: Wires, plan: Plan, bytes_per_s: Sequence[float], reserved: int = 0) -> Plan:
    """Assigns home switches by longest processing time first: the group that sends most gets the least loaded switch in its reach.

    `bytes_per_s` is the expected rate of each of `plan.groups`; decoding groups that span servers get `reserved` slots.
    """
    load, home = [0.0] * wires.switches, {}
    for g in sorted(range(len(plan.groups)), key=lambda g: (-bytes_per_s[g], g)):
        group = plan.groups[g]
        if group.spans:
            home[g] = min(wires.common(group.servers), key=lambda w: (load[w], w))
            load[home[g]] += bytes_per_s[g]
    number, made = 0, []
    for part in (plan.prefill, plan.decode):
        instances = []
        for one in part:
            stages = []
            for group in one.stages:
                kept = reserved if group.decode and group.spans else 0
                stages.append(replace(group, home=home.get(number, group.home), reserved=kept))
                number += 1
            instances.append(replace(one, stages=tuple(stages)))
        made.append(tuple(instances))
    return replace(plan, prefill=made[0], decode=made[1])
