"""A real Slurm cluster on this host for every arena of the field, skipped where the package is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from armillary.cluster.local_slurm import LocalSlurm, lacking
from armillary.scheduling.slurm import Slurm


def started(scheduler: str, settle_s: int = 0) -> Iterator[Slurm]:
    if missing := lacking():
        # Where Slurm must be there, its absence is a failure.
        if os.environ.get("ARMILLARY_NEEDS_SLURM"):
            pytest.fail(f"found no {missing}; expected Slurm (Debian: slurm-wlm)")
        pytest.skip(f"{missing} is not installed (Debian: slurm-wlm)")
    # Nodes of one core are taken whole.
    with LocalSlurm(nodes=4, cores=1, scheduler=scheduler, settle_s=settle_s) as cluster:
        yield Slurm(cluster.configuration)


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
