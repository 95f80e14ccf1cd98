"""Small works and scenes for the tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.scheduling.colocation import ColocationWork, Packing, Scene, built_in
from armillary.scheduling.colocation.workload import read_off
from armillary.scheduling.contention import Applications, Fleet, Model, Topology

SMALL = (Topology.regular(2, 4, 2, llc_bytes=22 << 20), Topology.regular(2, 4, 2, speed=1.25, llc_bytes=22 << 20))
PRESET = Topology.regular(2, 16, 2, llc_bytes=22 << 20)


def small(
    seed: int = 0, population: str = "mixed", topologies: tuple[Topology, ...] = SMALL, servers: int = 6, **options: Any
) -> ColocationWork:
    """Six servers of 16 threads and fifteen instances."""
    fleet = Fleet(topologies, np.arange(servers) % len(topologies))
    given: dict[str, Any] = {"instances": 15, "applications": 6, "requests": 300, "rounds": 4} | options
    return built_in(np.random.default_rng(seed), fleet, population=population, **given)


def loud_and_frail() -> Applications:
    """Application 0 presses on everything and suffers from nothing; application 1 the other way round."""
    one, none = [1.0, 1.0, 1.0, 1.0, 0.0], [0.0] * 5
    return Applications.of([one, none], [none, one])


def scene_of(apps: Applications, app: list[int], threads: list[int], load: float = 0.45, topology: Topology = PRESET) -> Scene:
    """Instances without a place that are busy for this share of the time, on one server, read without noise."""
    packing = Packing(Fleet((topology,), np.zeros(1, np.int64)), np.array(threads))
    cpu = load * np.array(threads, np.float64)
    return Scene(packing.fleet, np.array(app), read_off(apps)[np.array(app)], packing, cpu, cpu / apps.cpu_s[np.array(app)], 12.0)


CALM = Model(smt_base=0.0)
