"""What each part of Rudder brings: the same case with one part switched off at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from armillary.streams import stream
from armillary.training.prefetch.rudder import Rudder
from armillary.training.prefetch.simulation.replay import Replayed, replay
from armillary.training.prefetch.workload import PrefetchWork

#: What is changed of Rudder, by name.
PARTS: dict[str, dict[str, Any]] = {
    "rudder": {},
    "no effect record": {"effects": False},
    "no history": {"kept": 0},
    "latency 0": {"latency_s": 0.0},
    "always": {"policy": "always"},
    "never": {"policy": "never"},
}


def ablation(work: PrefetchWork, technique: Rudder | None = None) -> dict[str, Replayed]:
    """Each variant on this work; latencies are drawn from equal streams."""
    whole = Rudder() if technique is None else technique
    found = {}
    for name, change in PARTS.items():
        variant = replace(whole, **change).with_rng(stream(0, "prefetch", "ablation"))
        assert isinstance(variant, Rudder)
        found[name] = replay(work, variant.caches(work))
    return found
