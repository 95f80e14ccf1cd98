"""The cases of CloverLeaf: decks on ranks that are here, on a GPU, and on simulated GPUs; and how one technique is run on each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from armillary import extras
from armillary.arena import Artifact, Case, NotForThisCase, Outcome

if TYPE_CHECKING:
    import numpy as np

    from .measured import Rounds

#: Cells per side, steps of a round, rounds of a job, and jobs: in each, twenty steps of each rung are timed.
SIZES = {"tiny": (24, 2, 3, 1), "small": (240, 4, 5, 2), "large": (960, 4, 5, 2)}
#: Sides of grids on a GPU, on simulated GPUs, and of those where issuing a kernel takes longer than running it.
ON_GPU, PUBLISHED, SMALL_GRIDS = (240, 960, 1920, 3840), (960, 1920, 3840, 7680), (120, 240)
GRIDS = {4: (2, 2), 8: (2, 4)}
DECKS, OWNERS = ("corner", "blast", "disc", "layers"), ("torch", "numpy")
#: The GPU that is simulated, and the node that has it.
DEVICE, CLUSTER = "h100-80", "dgx-h100"
TIMELINE = "gpus/7680/4"


def clover_cases(scale: str) -> Iterator[Case]:
    """Each deck owned by each library on one rank, one on two ranks; a GPU; 4 and 8 simulated GPUs."""
    side, steps, rounds, jobs = SIZES[scale]
    how = {"steps": steps, "rounds": rounds, "jobs": jobs}
    host = frozenset({"access", "host", "measured"})
    places = [(deck, owner, 1) for deck, owner in itertools.product(DECKS, OWNERS)] + [("corner", "torch", 2)]
    for deck, owner, ranks in places:
        facts: dict[str, Any] = {"deck": deck, "cells": side, "owner": owner, "ranks": ranks, **how}
        yield Case(f"clover/{deck}/{owner}/{ranks}", _built_in, {**facts, "device": "cpu"}, host)
    for cells in ON_GPU:
        facts = {"deck": "corner", "cells": cells, "owner": "torch", "ranks": 1, **how, "device": "cuda"}
        yield Case(f"clover/{cells}@gpu", _built_in, facts, frozenset({"access", "gpu", "measured"}))
    for cells, gpus in itertools.product((*SMALL_GRIDS, *PUBLISHED), GRIDS):
        kind = "published" if cells in PUBLISHED else "launch-bound"
        yield Case(f"gpus/{cells}/{gpus}", _built_in, {"deck": "corner", "cells": cells, "gpus": gpus},
                   frozenset({"simulated", "gpus", kind}))  # fmt: skip


def _built_in(case: Case, rng: np.random.Generator) -> dict[str, Any]:
    from armillary.network.halo.clover.deck import DECKS as known

    p = case.parameters
    # One rank exchanges with itself around a periodic box; several have neighbours inside CloverLeaf's walls.
    deck = known[p["deck"]].sized(p["cells"], p.get("steps", 1), p.get("ranks") == 1)
    return {**p, "given": deck.given()}


def own_deck(case: Case, rng: np.random.Generator) -> dict[str, Any]:
    """The workload of a user's deck."""
    p = case.parameters
    return {**p, "steps": max(1, min(4, case.loaded.end_step)), "given": case.loaded.given()}


def run_access(technique: Any, case: Case, library: str) -> Outcome:
    """Measure a rung beside the first one, on ranks that are here."""
    on_gpu = case.workload["device"] == "cuda"
    if on_gpu:
        from armillary import comm

        if lacks := comm.backends()["nccl"]:
            raise NotForThisCase(f"it needs a GPU: {lacks}")
    elif case.workload["owner"] == "torch":
        from importlib.util import find_spec

        if find_spec("torch") is None:
            raise extras.missing("torch")
    access = technique.access(on_gpu)
    usual = _usual(on_gpu)
    if access in usual:
        found = case.once(_together, library)
    else:
        found = _climbed(case, [usual[0], access], library)
    one: Rounds = found[access]
    values = {"host_overhead": 1e6 * one.host_overhead, "clover_step_time": 1e6 * one.step_s, "conversions": one.conversions}
    if on_gpu:
        values["fraction_of_native"] = min(rung.step_s for rung in found.values() if not rung.fault) / one.step_s
        if usual[-1] in found:
            values["fraction_of_native"] = found[usual[-1]].step_s / one.step_s
    return Outcome(values, noisy=one.noisy)


def _usual(on_gpu: bool) -> list[Any]:
    """The four rungs with their default parameters."""
    from armillary.network.halo.convert_each_step import ConvertEachStep
    from armillary.network.halo.view_graphs import ViewGraphs
    from armillary.network.halo.view_streams import ViewStreams
    from armillary.network.halo.views_mpi import ViewsMpi

    return [one().access(on_gpu) for one in (ConvertEachStep, ViewsMpi, ViewStreams, ViewGraphs)]


def _together(case: Case, library: str) -> dict[Any, Rounds]:
    return _climbed(case, _usual(case.workload["device"] == "cuda"), library)


def _climbed(case: Case, rungs: list[Any], library: str) -> dict[Any, Rounds]:
    from armillary.network.halo.exchange.geometry import balanced

    from .measured import climb

    work = case.workload
    dims = list(balanced(work["ranks"], 2))
    given = {"deck": work["given"], "decomposition": dims, "library": work["owner"], "steps": work["steps"], "device": work["device"]}
    return climb(given, rungs, ranks=work["ranks"], rounds=work["rounds"], library=library, jobs=work["jobs"])


def run_gpus(technique: Any, case: Case) -> Outcome:
    """Play a rung on simulated GPUs."""
    from armillary.network.halo.clover.deck import deck_of

    from .gpus import simulate
    from .model import StreamModel

    work = case.workload
    model, deck, dims = StreamModel.stored(DEVICE, CLUSTER), deck_of(work["given"]), GRIDS[work["gpus"]]
    played = simulate(model, deck, dims, technique.planned(model, deck, dims), timeline=case.name == TIMELINE)
    made = [Artifact.timeline(_events(played.timeline))] if played.timeline is not None else []
    values = {"step_time_sim": 1e6 * played.seconds, "overlap": played.overlap, "issue_time": 1e6 * played.host_s}
    return Outcome(values, made)


def _events(timeline: Any) -> Any:
    import json
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory(prefix="armillary-timeline-") as folder:
        path = Path(folder) / "timeline.json"
        timeline.to_chrome(path)
        return json.loads(path.read_text())
