"""Slurm for a pilot: an allocation that is asked for once, steps inside it, and a whole Slurm on one machine to try all of it.

    with Slurm.local(nodes=4) as slurm, Pilot(nodes=4, backends=["srun", "pool"], slurm=slurm) as p:
        ...

`Slurm.local` needs Slurm's programs (Debian: slurm-wlm) and no rights: one controller and one daemon per virtual node run as the user, on
loopback ports, in a private folder, and end with the block.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from armillary.errors import InputError, one_line

NEEDED = ("slurmctld", "slurmd", "srun", "salloc", "sbatch", "squeue", "scontrol", "sinfo", "scancel")
#: Seconds within which a command, and a local cluster's start, must be done.
ANSWER_S, START_S = 60.0, 60.0
CONFIGURATION = """\
ClusterName=pilot
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
SlurmdParameters=config_overrides
SwitchType=switch/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobcomp.txt
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmctldDebug=verbose
DebugFlags=Steps
SlurmdLogFile={folder}/slurmd-%n.log
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=0,batch_sched_delay=0,default_queue_depth=1000,max_array_tasks=100001
MaxJobCount=100000
MaxArraySize=100001
SlurmctldTimeout=300
SlurmdTimeout=300
KillWait=1
MinJobAge=300
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def lacking() -> str:
    """The first of Slurm's programs that this machine lacks, or an empty string."""
    return next((name for name in NEEDED if shutil.which(name, path=_path()) is None), "")


def _path() -> str:
    return os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


class Slurm:
    """The commands of one Slurm; `configuration` is its slurm.conf, or None for what the commands find themselves."""

    def __init__(self, configuration: str | Path | None = None) -> None:
        self.configuration = configuration
        #: The folder of a local cluster.
        self.folder: Path | None = None
        self._daemons: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        """What the commands find in their environment."""
        found = {**os.environ, "PATH": _path()}
        if self.configuration is not None:
            found["SLURM_CONF"] = str(self.configuration)
        return found

    def command(self, *words: str) -> tuple[str, str]:
        """Runs a command; returns what it printed and what it complained about."""
        program = shutil.which(words[0], path=_path())
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
        missing = lacking()
        if missing:
            raise InputError(f"found no {missing}; expected Slurm's programs (Debian: slurm-wlm)")
        folder = Path(tempfile.mkdtemp(prefix="pilot-slurm-"))
        made = cls(folder / "slurm.conf")
        made.folder = folder
        try:
            made._begin(nodes, cores)
        except BaseException:
            made.close()
            raise
        return made

    def _begin(self, nodes: int, cores: int) -> None:
        assert self.folder is not None
        (self.folder / "state").mkdir()
        host, user = socket.gethostname().split(".")[0], pwd.getpwuid(os.getuid()).pw_name
        controller, *ports = _free_ports(1 + nodes)
        described = "\n".join(
            f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores} Sockets=1 CoresPerSocket={cores} State=UNKNOWN"
            for i, port in enumerate(ports)
        )
        text = CONFIGURATION.format(host=host, user=user, controller=controller, folder=self.folder, nodes=described)
        (self.folder / "slurm.conf").write_text(text)
        self._daemon(["slurmctld", "-D", "-c"])
        for i in range(nodes):
            self._daemon(["slurmd", "-D", "-N", f"n{i}"])
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            with contextlib.suppress(InputError):
                states = self.command("sinfo", "-h", "-N", "-o", "%t")[0].split()
                if states.count("idle") == nodes:
                    return
            time.sleep(0.1)
        logs = [path.read_text(errors="replace").strip().splitlines()[-1:] for path in sorted(self.folder.glob("*.log"))]
        raise InputError(f"the local Slurm did not start within {START_S:g} s: {one_line(str(logs))}")

    def _daemon(self, words: list[str]) -> None:
        assert self.folder is not None
        with (self.folder / f"{words[0]}{words[-1]}.out").open("wb") as out:
            program = shutil.which(words[0], path=_path()) or words[0]
            self._daemons.append(
                subprocess.Popen(
                    [program, *words[1:]], env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
                )
            )

    def close(self) -> None:
        """Stops a local cluster, its jobs first."""
        if self.folder is None:
            return
        with contextlib.suppress(InputError):
            self.command("scancel", f"--user={pwd.getpwuid(os.getuid()).pw_name}", "--full", "--signal=KILL")
            self.command("scancel", f"--user={pwd.getpwuid(os.getuid()).pw_name}")
            end = time.monotonic() + 10
            while time.monotonic() < end and self.command("squeue", "-h")[0].strip():
                time.sleep(0.1)
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in self._daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = None

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
        program = shutil.which("srun", path=_path()) or "srun"
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


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
