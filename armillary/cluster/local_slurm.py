"""A whole Slurm of virtual nodes on this machine, for everything that needs a real one: a comparison of launchers, a test.

    with LocalSlurm(nodes=4, cores=8) as slurm:
        subprocess.run(["srun", "--nodes=4", "hostname"], env=slurm.environment)

It needs Slurm's programs (Debian: slurm-wlm) and no rights: one controller and one daemon per virtual node run as the user, on loopback
ports, in a private folder, and end with the block.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from armillary.errors import InputError, one_line

NEEDED = ("slurmctld", "slurmd", "srun", "salloc", "sbatch", "squeue", "scontrol", "sinfo", "scancel")
#: Seconds within which the start, a command, and the end of all jobs and daemons must be done.
START_S, ANSWER_S, END_S = 60.0, 60.0, 10.0
#: Somebody may take a port between the search for it and the start of the daemon; then all begins anew with other ports.
TRIES = 2
#: Where systems keep daemons; a user's PATH need not name these folders.
DAEMONS = "/usr/sbin:/sbin"
# Cores are the only resource: where memory is one too, a job that names none gets all memory of its node, and the other cores idle.
# Without bf_job_part_count_reserve=1, backfill is not EASY: Slurm reserves nodes for every job that waits.
CONFIGURATION = """\
ClusterName=local
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
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
SchedulerType={scheduler}
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,default_queue_depth=1000,max_array_tasks=100001,\
bf_interval=1,bf_resolution=1,bf_job_part_count_reserve=1
PriorityType=priority/basic
MaxJobCount=100000
MaxArraySize=100001
SlurmctldTimeout=300
SlurmdTimeout=300
KillWait=1
CompleteWait={settle_s}
MinJobAge=300
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def search_path() -> str:
    """PATH and `DAEMONS`."""
    return f"{os.environ.get('PATH', os.defpath)}:{DAEMONS}"


def lacking() -> str:
    """The first of Slurm's programs that this machine lacks, or an empty string."""
    return next((name for name in NEEDED if shutil.which(name, path=search_path()) is None), "")


class LocalSlurm:
    """A Slurm of `nodes` virtual nodes n0, n1… with `cores` cores each; it runs from `start` to `stop`, or inside a `with` block.

    scheduler: `sched/backfill`, with a cycle of one second, or `sched/builtin`, first come, first served.
    settle_s: seconds for which nothing is scheduled while the nodes of an ended job come back one by one.
    """

    def __init__(self, nodes: int = 4, cores: int = 8, scheduler: str = "sched/backfill", settle_s: int = 0) -> None:
        self.nodes, self.cores, self.scheduler, self.settle_s = nodes, cores, scheduler, settle_s
        #: Where it keeps its files, among them jobcomp.txt, the log of ended jobs; only while it runs.
        self.folder: Path | None = None
        #: The controller, and the daemons of the nodes.
        self.daemons: list[subprocess.Popen[bytes]] = []

    @property
    def configuration(self) -> Path:
        """Its slurm.conf, while it runs."""
        assert self.folder is not None, "it does not run"
        return self.folder / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which Slurm's commands speak to it."""
        return {**os.environ, "PATH": search_path(), "SLURM_CONF": str(self.configuration)}

    def start(self) -> LocalSlurm:
        """Starts the daemons and waits until all nodes are idle."""
        if missing := lacking():
            raise InputError(f"found no {missing}; expected Slurm's programs (Debian: slurm-wlm)")
        for _ in range(TRIES):
            try:
                self._begin()
                if self._becomes_idle():
                    return self
                said = self._last_words()
            except BaseException:
                self._end()
                raise
            self._end()
        raise InputError(f"a daemon of the local Slurm ended at its start: {said}")

    def stop(self) -> None:
        """Cancels all jobs, which would outlive the daemons, and stops these."""
        if self.folder is None:
            return
        try:
            mine = f"--user={pwd.getpwuid(os.getuid()).pw_name}"
            self._answer("scancel", mine, "--full", "--signal=KILL")
            self._answer("scancel", mine)
            end = time.monotonic() + END_S
            while time.monotonic() < end and self._answer("squeue", "--noheader"):
                time.sleep(0.1)
        finally:
            self._end()

    def __enter__(self) -> LocalSlurm:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="local-slurm-"))
        (self.folder / "state").mkdir()
        host, user = socket.gethostname().partition(".")[0], pwd.getpwuid(os.getuid()).pw_name
        controller, *ports = free_ports(1 + self.nodes)
        described = "\n".join(
            f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs={self.cores} Sockets=1 CoresPerSocket={self.cores} State=UNKNOWN"
            for i, port in enumerate(ports)
        )
        facts = {"host": host, "user": user, "controller": controller, "folder": self.folder, "nodes": described}
        self.configuration.write_text(CONFIGURATION.format(scheduler=self.scheduler, settle_s=self.settle_s, **facts))
        self._daemon("slurmctld", "-D", "-c")
        for i in range(self.nodes):
            self._daemon("slurmd", "-D", "-N", f"n{i}")

    def _daemon(self, *words: str) -> None:
        assert self.folder is not None
        program = shutil.which(words[0], path=search_path()) or words[0]
        with (self.folder / f"{words[0]}{words[-1]}.out").open("wb") as out:
            self.daemons.append(
                subprocess.Popen(
                    [program, *words[1:]], env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
                )
            )

    def _becomes_idle(self) -> bool:
        """Waits until all nodes are idle; false if a daemon has ended instead."""
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if any(daemon.poll() is not None for daemon in self.daemons):
                return False
            if self._answer("sinfo", "--noheader", "--Node", "--format=%t").split() == ["idle"] * self.nodes:
                return True
            time.sleep(0.1)
        raise InputError(f"the local Slurm did not start within {START_S:g} s: {self._last_words()}")

    def _answer(self, *words: str) -> str:
        """What one of Slurm's commands prints; an empty string if it fails, as all do before the controller is up."""
        program = shutil.which(words[0], path=search_path()) or words[0]
        try:
            done = subprocess.run(
                [program, *words[1:]], env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWER_S, check=False
            )
        except subprocess.TimeoutExpired:
            return ""
        return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""

    def _last_words(self) -> str:
        assert self.folder is not None
        logs = [path.read_text(errors="replace").strip().splitlines()[-1:] for path in sorted(self.folder.glob("*.log"))]
        return one_line(str(logs))

    def _end(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            try:
                daemon.wait(END_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons.clear()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None


def free_ports(count: int) -> list[int]:
    """Loopback ports on which nobody listens."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
