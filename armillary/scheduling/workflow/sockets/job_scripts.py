"""A configuration as Slurm job scripts: one per stage, with the copies before and after it, and one that submits them in order.

Every tier has a root directory, and under it a directory per stage: tasks read `$ROOT/<predecessor>` and `$ROOT/input` and write
`$ROOT/<stage>`. What a stage leaves on a local tier is copied to the shared one as well, because another job may get other nodes;
`cp -u` skips what a node already has. The scripts call `./run-stage <stage> <task>`, which the user provides, because a workflow file
does not always say how its tasks are started. Nothing from a workflow file gets into a script without quoting.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError
from armillary.scheduling.workflow.planning.capacity import stage_bytes

if TYPE_CHECKING:
    from armillary.scheduling.workflow.regions.fitted import Configuration, Fitted

_OTHER = re.compile(r"[^A-Za-z0-9._-]")


def write_scripts(fitted: Fitted, configuration: Configuration, folder: Path) -> list[Path]:
    """Writes `<number>-<stage>.sbatch` for each stage and `submit.sh`; returns their paths."""
    layout = fitted.layout
    n = fitted.number(configuration)
    if fitted.workflow is None or fitted.planning.statistics is None:
        raise InputError("job scripts need a workflow with tasks and files", where="to_slurm")
    nodes = int(fitted.found.configurations.nodes[n])
    tiers = fitted.found.configurations.tier[n].tolist()
    kept = stage_bytes(fitted.planning.statistics, nodes)
    folder.mkdir(parents=True, exist_ok=True)
    written, lines = [], ["#!/bin/bash", "# Submits the stages; each waits for those whose data it reads.", "set -euo pipefail"]
    for s in range(len(layout.stages)):
        path = folder / f"{s + 1:02d}-{_name(layout.stages[s])}.sbatch"
        path.write_text(_script(fitted, s, tiers, nodes, float(kept[s])))
        written.append(path)
        before = ":".join(f"$job{p + 1}" for p in layout.before[s])
        depends = f" --dependency=afterok:{before}" if before else ""
        lines.append(f"job{s + 1}=$(sbatch --parsable{depends} {shlex.quote(path.name)})")
    path = folder / "submit.sh"
    path.write_text("\n".join(lines) + "\n")
    return [*written, path]


def _name(stage: str) -> str:
    return _OTHER.sub("_", stage)


def _root(fitted: Fitted, tier: int) -> str:
    """The directory of a tier as the shell finds it: `$SSD_DIR`, or a usual place for a local tier."""
    name = fitted.layout.tiers[tier]
    variable = f"{re.sub('[^A-Z0-9]', '_', name.upper())}_DIR"
    if tier == fitted.layout.shared:
        return f"${{{variable}:?is the directory on the shared file system}}"
    return f"${{{variable}:-{'/dev/shm' if name == 'tmpfs' else '/tmp'}}}"


def _script(fitted: Fitted, s: int, tiers: list[int], nodes: int, kept: float) -> str:
    workflow, layout = fitted.workflow, fitted.layout
    assert workflow is not None
    stage, local = layout.stages[s], tiers[s] != layout.shared
    tasks, cores = layout.tasks[s], int(workflow.cores[workflow.stage == s].max())
    used = min(nodes, tasks)
    lines = ["#!/bin/bash", f"#SBATCH --job-name={_name(stage)}", f"#SBATCH -N {used}", f"#SBATCH --ntasks-per-node={-(-tasks // used)}"]
    lines.append(f"#SBATCH --cpus-per-task={cores}")
    if local:
        lines.append(f"#SBATCH --tmp={max(1, int(np.ceil(kept / (1 << 20))))}M")
    each = "srun --ntasks-per-node=1"
    lines += ["set -euo pipefail", f'shared="{_root(fitted, layout.shared)}"', f'root="{_root(fitted, tiers[s])}"']
    lines.append(f'{each} mkdir -p "$root"/{_name(stage)} "$root"/input "$shared"/{_name(stage)}')
    if local:
        for p in layout.before[s]:
            lines.append(f'{each} cp -ru "$shared"/{_name(layout.stages[p])} "$root"/')
        lines += [f'sbcast --force "$shared"/input/{name} "$root"/input/{name}' for name in _initial(fitted, s)]
    # The last ranks have no task if the nodes do not divide the tasks.
    body = f'[ "$SLURM_PROCID" -ge {tasks} ] || exec ./run-stage {shlex.quote(stage)} "$SLURM_PROCID"'
    lines.append(f'ROOT="$root" srun --distribution=block bash -c {shlex.quote(body)}')
    if local:
        lines.append(f'{each} cp -ru "$root"/{_name(stage)} "$shared"/')
    return "\n".join(lines) + "\n"


def _initial(fitted: Fitted, s: int) -> list[str]:
    """The quoted names of the initial files that a stage reads; directories in a name are cut off."""
    workflow = fitted.workflow
    assert workflow is not None
    mine = workflow.read[(workflow.stage[workflow.reader] == s) & (workflow.producer[workflow.read] < 0)]
    names = [workflow.file_names[f] if workflow.file_names else f"file-{f}" for f in np.unique(mine).tolist()]
    return [shlex.quote(Path(name).name or "file") for name in names]
