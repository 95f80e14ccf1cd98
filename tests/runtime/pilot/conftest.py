"""A real Slurm of four virtual nodes on this host, skipped where the package is missing; and the folder of the workers' functions."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from armillary.cluster.local_slurm import lacking
from armillary.runtime.pilot import Slurm

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    if missing := lacking():
        # Where Slurm must be there, its absence is a failure.
        if os.environ.get("ARMILLARY_NEEDS_SLURM"):
            pytest.fail(f"found no {missing}; expected Slurm (Debian: slurm-wlm)")
        pytest.skip(f"{missing} is not installed (Debian: slurm-wlm)")
    with Slurm.local(nodes=4, cores=8) as found:
        yield found
