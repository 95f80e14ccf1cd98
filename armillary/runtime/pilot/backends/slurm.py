"""Slurm for a pilot: an allocation that is asked for once, steps inside it, and a whole Slurm on one machine to try all of it.

    with Slurm.local(nodes=4) as slurm, Pilot(nodes=4, backends=["srun", "pool"], slurm=slurm) as p:
        ...

`Slurm.local` needs Slurm's programs (Debian: slurm-wlm) and no rights; its daemons end with the block.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from armillary.cluster.local_slurm import LocalSlurm, search_path
from armillary.errors import InputError, one_line

#: Seconds within which a command must be done.
ANSWER_S = 60.0


class Slurm:
    """The commands of one Slurm; `configuration` is its slurm.conf, or None for what the commands find themselves."""

    def __init__(self, configuration: str | Path | None = None) -> None:
        self.configuration = configuration
        self._local: LocalSlurm | None = None

    @property
    def folder(self) -> Path | None:
        """The folder of a local cluster that runs."""
        return self._local.folder if self._local else None

    @property
    def environment(self) -> dict[str, str]:
        """What the commands find in their environment."""
        found = {**os.environ, "PATH": search_path()}
        if self.configuration is not None:
            found["SLURM_CONF"] = str(self.configuration)
        return found

    def command(self, *words: str) -> tuple[str, str]:
        """Runs a command; returns what it printed and what it complained about."""
        program = shutil.which(words[0], path=search_path())
        if program is None:
            raise InputError(f"found no {words[0]}; expected Slurm's commands in PATH (Debian: slurm-wlm)")
        try:
            done = subprocess.run(
                [program, *words[1:]], env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWER_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise InputError(f"found no answer within {ANSWER_S:g} s", where=words[0]) from None
        out, complaint = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        if done.returncode:
            last = complaint.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            raise InputError(one_line(last[0]), where=words[0])
        return out, complaint

    def allocate(self, nodes: int | None, cores: int | None, gpus: int = 0, minutes: int = 60) -> Allocation:
        """The nodes of the job that this process runs in, or those of a new allocation."""
        job = os.environ.get("SLURM_JOB_ID") if self.folder is None else None
        if job:
            names = self.command("scontrol", "show", "hostnames", os.environ.get("SLURM_JOB_NODELIST", ""))[0].split()
            if nodes is not None and nodes > len(names):
                raise InputError(f"nodes: found {nodes}; expected at most {len(names)}, those of the job {job}")
            return Allocation(self, job, names[:nodes], _cores_of_job(), ours=False)
        words = ["salloc", "--no-shell", f"--nodes={nodes or 1}", f"--time={minutes}", "--job-name=pilot"]
        words += [f"--ntasks-per-node={cores}"] if cores else ["--exclusive"]
        words += [f"--gpus-per-node={gpus}"] if gpus else []
        found = re.search(r"allocation (\d+)", self.command(*words)[1])
        if found is None:
            raise InputError("found no number of an allocation", where="salloc")
        told = self.command("scontrol", "show", "job", found[1])[0]
        listed = re.search(r"\sNodeList=(\S+)", told)
        names = self.command("scontrol", "show", "hostnames", listed[1] if listed else "")[0].split()
        cpus = re.search(r"NumCPUs=(\d+)", told)
        return Allocation(self, found[1], names, int(cpus[1]) // len(names) if cpus else 1, ours=True)

    @classmethod
    def local(cls, nodes: int = 4, cores: int = 8) -> Slurm:
        """A Slurm of virtual nodes on this machine, which is stopped by `close` or at the end of a `with` block."""
        started = LocalSlurm(nodes, cores).start()
        made = cls(started.configuration)
        made._local = started
        return made

    def close(self) -> None:
        """Stops a local cluster, its jobs first."""
        if self._local is not None:
            self._local.stop()

    def __enter__(self) -> Slurm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Allocation:
    """Nodes of one job, in which steps run."""

    def __init__(self, slurm: Slurm, job: str, nodes: list[str], cores: int, *, ours: bool) -> None:
        self.slurm, self.job, self.nodes, self.cores = slurm, job, nodes, cores
        self._ours = ours

    @property
    def environment(self) -> dict[str, str]:
        """What an `srun` finds in its environment: nothing of another job than this one."""
        clean = {name: value for name, value in self.slurm.environment.items() if not name.startswith(("SLURM_", "SRUN_", "SALLOC_"))}
        conf = self.slurm.environment.get("SLURM_CONF")
        return clean | ({"SLURM_CONF": conf} if conf else {})

    def step(self, nodes: list[str], ranks: int, cores: int) -> list[str]:
        """The words before a command that make it a step on these nodes.

        Steps may overlap for Slurm, because the pilot's own scheduler keeps them apart: otherwise a step that follows another one on the
        same cores finds them taken for a moment, and its `srun` tries again only after a second.
        """
        program = shutil.which("srun", path=search_path()) or "srun"
        return [
            program, "--quiet", f"--jobid={self.job}", f"--nodes={len(nodes)}", f"--ntasks={ranks}", f"--nodelist={','.join(nodes)}",
            f"--cpus-per-task={cores}", "--overlap", "--mem=0",
        ]  # fmt: skip

    def release(self) -> None:
        """Gives the nodes back, if they were asked for."""
        if self._ours:
            self._ours = False
            with contextlib.suppress(InputError):
                self.slurm.command("scancel", self.job)


def _cores_of_job() -> int:
    """Cores per node of the surrounding job, from `SLURM_JOB_CPUS_PER_NODE` such as `56(x4),28`: those of the smallest node."""
    told = os.environ.get("SLURM_JOB_CPUS_PER_NODE", "1")
    found = [int(part.partition("(")[0]) for part in told.split(",") if part.partition("(")[0].isdigit()]
    return min(found, default=1)
