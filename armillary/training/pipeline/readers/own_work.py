"""Tells what kind of file a user brought, and makes work of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import read_head
from armillary.llm import Batch, Fabric, Model, Plan

from ..chunks.work import SequenceWork
from ..planning.layers import LayeredWork, Layers
from ..planning.partition import balanced_cuts
from ..simulation.schedule import Schedule
from ..simulation.simulator import Links
from ..workload import sequences, transformer
from .profile_csv import read_profile
from .schedule_csv import looks_like_a_schedule, read_schedule
from .sequence_lengths import read_lengths

if TYPE_CHECKING:
    from ..arena import Reading


def read_work(path: Path, how: Reading) -> LayeredWork | SequenceWork:
    """A profile (CSV with a column forward_ms), a config.json, a schedule (CSV whose cells are actions), or lengths."""
    _check_options(how)
    name = path.name.casefold().removesuffix(".gz").removesuffix(".zst")
    if name.endswith(".json"):
        return _of_model(path, how)
    if name.endswith((".csv", ".tsv")):
        first = read_head(path).split(b"\n", 1)[0].decode(errors="replace")
        names = [cell.strip(' \t\r"') for cell in first.removeprefix("\ufeff").replace("\t", ",").split(",")]
        if "forward_ms" in names:
            return _of_profile(read_profile(path, state=how.state), how)
        if looks_like_a_schedule(names):
            return _of_schedule(read_schedule(path), how)
        if how.column not in names:
            raise InputError(
                f'found a table of "{one_line(first, 60)}"; expected a profile with forward_ms, a schedule of cells such as 0F0, or '
                f"sequences with a column {how.column} (--column names another)",
                where=str(path),
            )
    return _of_lengths(path, how)


def _check_options(how: Reading) -> None:
    """Refuses a model, a cluster or a profile that does not exist, even where this kind of file does not need it."""
    Model.find(how.model)
    Fabric.of_cluster(how.cluster)
    if how.profile and not Path(how.profile).is_file():
        raise InputError("found no such file; expected a profile of layers", where=f"--profile {how.profile}")


def _of_profile(layers: Layers, how: Reading, given: Schedule | None = None) -> LayeredWork:
    ranks, micros = (how.pp, how.micros) if given is None else (given.ranks, given.micros)
    links = Links(how.latency_us * 1e-6, how.rate_gb_per_s * 1e9)
    return LayeredWork(layers, ranks, micros, how.capacity_gb * 1e9, links, 1.0, "micro-batches", device="profile", given=given)


def _of_schedule(schedule: Schedule, how: Reading) -> LayeredWork:
    """The user's schedule on the layers of a profile, which are cut into its stages, or on stages of 1 ms per pass.

    Such a stage keeps one byte per micro-batch, so that bytes count the micro-batches in flight.
    """
    if how.profile:
        layers = read_profile(Path(how.profile), state=how.state)
        if layers.body < schedule.stages:
            raise InputError(f"--profile: found {layers.body} body layers for {schedule.stages} stages; expected at least one per stage")
        balanced_cuts(layers, schedule.stages)
        return _of_profile(layers, how, schedule)
    n = schedule.stages
    ms, zero = np.full(n, 1e-3), np.zeros(n)
    layers = Layers(
        tuple(f"stage {i}" for i in range(n)), ("body",) * n, ("none",), ms, ms, ms, np.zeros((n, 1)), np.ones((n, 1)), zero, zero, zero
    )
    return _of_profile(layers, how, schedule)


def _of_model(path: Path, how: Reading) -> LayeredWork:
    model = Model.from_config(path, name=path.stem)
    plan = Plan(pp=how.pp, tp=how.tp, micro_batch=how.micro_batch, sequence_parallel=how.tp > 1)
    micros = plan.micro_batches(Batch(how.batch, how.tokens))
    return transformer(model, plan, how.tokens, micros, how.cluster)


def _of_lengths(path: Path, how: Reading) -> SequenceWork:
    lengths = read_lengths(path, how.column)
    model = Model.find(how.model)
    return sequences(
        model, Plan(pp=how.pp, tp=how.tp, sequence_parallel=how.tp > 1), lengths, how.longest or int(lengths.max()), how.cluster
    )
