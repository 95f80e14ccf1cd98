"""A real Slurm cluster on this host for every arena of the field, skipped where the package is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from slurm_cluster import missing, slurm_cluster

from armillary.scheduling.slurm import Slurm


def started(scheduler: str, settle_s: int = 0) -> Iterator[Slurm]:
    if lacking := missing():
        # Where Slurm must be there, its absence is a failure.
        if os.environ.get("ARMILLARY_NEEDS_SLURM"):
            pytest.fail(f"found no {lacking}; expected Slurm (Debian: slurm-wlm)")
        pytest.skip(f"{lacking} is not installed (Debian: slurm-wlm)")
    with slurm_cluster(scheduler, settle_s) as slurm:
        yield slurm


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    """Four idle nodes under `sched/backfill`."""
    yield from started("sched/backfill")


@pytest.fixture
def settling_slurm() -> Iterator[Slurm]:
    """Four idle nodes under `sched/backfill`, which waits until all nodes of an ended job are back."""
    yield from started("sched/backfill", 2)


@pytest.fixture
def builtin_slurm() -> Iterator[Slurm]:
    """Four idle nodes under `sched/builtin`."""
    yield from started("sched/builtin", 2)
