"""Writes the `#SBATCH` lines and the Slurm job that serves until its time limit and may queue its successor."""

from __future__ import annotations

import math

from ..description.service import Service
from .host_scripts import HEAD_OF_NODES, supervisor


def walltime(hours: float) -> str:
    """Returns hours in Slurm's notation, [days-]hours:minutes:seconds."""
    seconds = math.ceil(hours * 3600)
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def directives(service: Service) -> list[str]:
    """Returns the `#SBATCH` lines."""
    r, nodes = service.resources, service.parallel.nodes
    asked = [f"--job-name={service.name}", f"--nodes={nodes}", "--ntasks-per-node=1", f"--cpus-per-task={r.cpus}", f"--mem={r.memory_gib}G"]
    if r.gpus_per_node:
        asked.append(f"--gpus-per-node={r.gpus_per_node}")
    if service.hpc.partition is not None:
        asked.append(f"--partition={service.hpc.partition}")
    if service.hpc.account is not None:
        asked.append(f"--account={service.hpc.account}")
    asked += [f"--time={walltime(service.lifetime_h)}", "--signal=B:TERM@120", f"--output={service.name}-%j.log", "--open-mode=append"]
    if service.scale.min > 1:
        asked.append(f"--array=1-{service.scale.min}")
    return [f"#SBATCH {line}" for line in asked]


def job(service: Service) -> str:
    """Returns `job.sh`."""
    nodes = ['node_list=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -s -d, -)', *HEAD_OF_NODES]
    each = service.parallel.nodes
    launch = f'srun --nodes={each} --ntasks={each} --ntasks-per-node=1 --kill-on-bad-exit=1 bash "$here/node.sh"'
    renew = 'sbatch --dependency="afterany:$SLURM_JOB_ID" --chdir="$here" "$here/job.sh"' if service.hpc.renew else None
    return supervisor(service, head=directives(service), here='"${SLURM_SUBMIT_DIR:-$PWD}"', nodes=nodes, launch=launch, renew=renew)
