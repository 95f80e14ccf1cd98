"""Tensor-parallel groups on a cluster's wires, which run one iteration after another in simulated time through `fluid`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError

from ..collectives.allreduce_time import SMALL_BYTES, nvlink_seconds
from ..collectives.path import CHOICES, REHOMES, Path, uses
from ..collectives.wires import Wires
from . import fluid as fl
from .bursts import CALM, Bursts

#: A technique that gets less than this part of the slots that it is due waits for more.
LEAST_SHARE = 0.125
#: The time constant in seconds of the online estimate of switches and links.
TAU_S = 1e-3


@dataclass(frozen=True)
class Group:
    """One tensor-parallel group with its servers, the devices in each, its home switch, and whether it decodes.

    `reserved` slots of the home are kept for it if it decodes and its path puts decoding first.
    """

    servers: tuple[int, ...]
    gpus: int
    home: int = 0
    decode: bool = False
    reserved: int = 0

    @property
    def spans(self) -> bool:
        """Whether it is on several servers."""
        return len(self.servers) > 1


class Groups:
    """All groups of a plan at work on the wires, with one path for their collectives."""

    def __init__(
        self, wires: Wires, groups: Sequence[Group], path: Path, bursts: Bursts = CALM, rng: np.random.Generator | None = None
    ) -> None:
        self.wires, self.groups, self.path = wires, list(groups), path
        for group in groups:
            if group.spans and group.home not in wires.common(group.servers):
                raise InputError(f"servers {group.servers} do not all reach switch {group.home}; expected a home that they share")
        if path.switched and wires.slots < 1 and any(g.spans for g in groups):
            raise InputError(f"aggregation: found {wires.slots} slots; expected at least 1 where the switch is to aggregate")
        n, s, w = len(groups), max(len(g.servers) for g in groups), wires.switches
        links = wires.servers * w
        at, what = bursts.toggles(links, w, rng) if rng is not None else (np.zeros(0), np.zeros(0, np.int64))
        self.net = fl.Net(
            np.zeros((n, 14), np.int64), np.zeros((n, 24)), np.zeros((n, w, s), np.int64), np.full(links, wires.nic),
            np.full(links, wires.nic), np.zeros((links, 2)), np.zeros((w, 8)), at, what, np.zeros(links + w, np.int64), np.zeros(2),
            np.array([0, 0, links, wires.window, 0], np.int64),
            np.array([wires.rate_of(1), min(wires.asic, 1e30), bursts.share, bursts.slots, TAU_S, bursts.cycle_s, LEAST_SHARE]),
            np.zeros(links + w), np.zeros(links + w),
        )  # fmt: skip
        self.net.sw[:, fl.TOTAL] = wires.slots
        self._shapes = [wires.shape(len(group.servers), group.gpus) for group in groups]
        for g, group in enumerate(groups):
            self._describe(g, group)
        np.add.at(self.net.sw[:, fl.RESERVED], self.net.gi[:, fl.HOME], self.net.gi[:, fl.KEEP])
        self._partition()

    def _describe(self, g: int, group: Group) -> None:
        gi, gf, path = self.net.gi[g], self.net.gf[g], self.path
        gi[fl.HOME], gi[fl.CHOICE], gi[fl.SERVERS] = group.home, CHOICES.index(path.choice), len(group.servers)
        gi[fl.CLASS] = int(path.first and not group.decode)
        gi[fl.SWITCHED] = int(path.switched and group.spans)
        gf[fl.FIXED_X], gf[fl.WAIT_S], gf[fl.HYSTERESIS] = path.x, path.wait_s, path.hysteresis
        gi[fl.REHOME] = REHOMES.index(path.rehome) if group.spans else 0
        gi[fl.KEEP] = group.reserved if path.first and group.decode and group.spans else 0
        gf[fl.MARGIN] = path.rehome_margin
        need = uses(path, self._shapes[g], 0.0)
        gf[fl.U0], gf[fl.U1], gf[fl.V0], gf[fl.INPUTS] = need.ring, need.switch, need.first_ring, need.inputs
        gf[fl.LAT0], gf[fl.LAT1] = need.ring_s, need.switch_s
        gf[fl.CHUNK] = 0.0 if group.decode else path.chunk
        shared = self.wires.common(group.servers)
        for switch in range(self.wires.switches):
            for k, server in enumerate(group.servers):
                self.net.links[g, switch, k] = server * self.wires.switches + switch if switch in shared else -1

    def _partition(self) -> None:
        """Divides each switch's slots equally among the groups that have it as home."""
        gi, wide = self.net.gi, [g for g, group in enumerate(self.groups) if group.spans]
        jobs = np.bincount([gi[g, fl.HOME] for g in wide], minlength=self.wires.switches)
        for g in wide:
            gi[g, fl.QUOTA] = self.wires.slots // jobs[gi[g, fl.HOME]]

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return float(self.net.clock[0])

    @property
    def most_slots(self) -> int:
        """The most slots that were ever held at once on one switch."""
        return int(self.net.sw[:, fl.MOST].max(initial=0.0))

    @property
    def starved(self) -> int:
        """The number of collectives, or parts of them, that found no slots and took another path."""
        return int(self.net.gi[:, fl.STARVED].sum())

    @property
    def moves(self) -> int:
        """The number of times that a group changed its switch."""
        return int(self.net.number[fl.MOVES])

    def home(self, g: int) -> int:
        """Returns the switch of a group now."""
        return int(self.net.gi[g, fl.HOME])

    def start(self, g: int, compute_s: float, nbytes: float, repeats: int) -> None:
        """Starts an iteration of group g, which is `repeats` times `compute_s` seconds of compute and an all-reduce of `nbytes`."""
        gi, gf, group = self.net.gi[g], self.net.gf[g], self.groups[g]
        if gi[fl.PHASE] != fl.IDLE:
            raise InputError(f"group {g} is at work; expected it to be idle")
        if repeats < 1 or compute_s < 0 or nbytes < 0:
            raise InputError(f"iteration: found {repeats} repeats of {compute_s} s and {nbytes} bytes; expected at least one, 0 or more")
        if gi[fl.REHOME] == fl.EVERY_ITERATION and fl.rehome(self.net, g):
            self._partition()
        gi[fl.REPEATS] = repeats
        before_s = nvlink_seconds(nbytes, self._shapes[g]) if nbytes and not (self.path.flat and group.spans) else 0.0
        gf[fl.BEFORE] = compute_s + before_s
        if group.spans:
            gf[fl.BYTES], gf[fl.SMALL] = nbytes, float(nbytes < SMALL_BYTES)
        fl.start(self.net, g)

    def advance(self, until_s: float) -> int:
        """Passes time until some group ends its iteration and returns it, or -1 at `until_s`."""
        return int(fl.advance(self.net, until_s))
