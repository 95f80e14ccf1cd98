"""A pilot as a batch job: what `sbatch` is given."""

from __future__ import annotations

import shlex
from typing import Any

from armillary.errors import InputError


def slurm_script(program: str, nodes: int, cores: int, settings: dict[str, Any]) -> str:
    """A script for `sbatch` that runs `program` once, on the first node of an allocation of this size."""
    if not program or not program.isprintable():
        raise InputError(f"program: found {program!r}; expected the name of a Python program")
    minutes = int(settings["minutes"])
    lines = [
        "#!/bin/sh",
        "#SBATCH --job-name=pilot",
        f"#SBATCH --nodes={nodes}",
        f"#SBATCH --ntasks-per-node={cores}",
        f"#SBATCH --time={minutes}",
    ]
    if settings["gpus"]:
        lines.append(f"#SBATCH --gpus-per-node={settings['gpus']}")
    lines += [
        f"# In the program: Pilot(backends={settings['backends']!r}, partitions={settings['partitions']}, retries={settings['retries']})",
        f"exec python3 {shlex.quote(program)}",
    ]
    return "\n".join(lines) + "\n"
