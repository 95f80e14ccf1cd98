"""A whole Slurm cluster on this host: one controller and four node daemons on loopback ports, in a folder of its own.

Two schedulers are offered: `sched/builtin` (first come, first served) and `sched/backfill` (EASY with a cycle of one second: without
`bf_job_part_count_reserve=1`, Slurm reserves nodes for every queued job).
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from armillary.errors import InputError
from armillary.scheduling.slurm import Slurm

NODES = 4
NEEDED = ("slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "sinfo", "scancel")
CONFIGURATION = """\
ClusterName=armillary
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/linear
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
SlurmdLogFile={folder}/slurmd-%n.log
ReturnToService=2
SchedulerType={scheduler}
SchedulerParameters=bf_interval=1,bf_resolution=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_job_part_count_reserve=1
PriorityType=priority/basic
SlurmctldTimeout=300
SlurmdTimeout=300
KillWait=1
CompleteWait={settle_s}
MinJobAge=300
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """The first Slurm command that this host lacks, or an empty string."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return next((name for name in NEEDED if shutil.which(name, path=path) is None), "")


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@contextmanager
def slurm_cluster(scheduler: str = "sched/backfill", settle_s: int = 0) -> Iterator[Slurm]:
    """Starts the cluster, waits until its four nodes are idle, and stops every daemon at the end.

    settle_s: seconds for which nothing is scheduled while nodes of an ended job come back one by one.
    """
    found = tempfile.mkdtemp(prefix="slurm-")
    folder = Path(found)
    (folder / "state").mkdir()
    host, ports = socket.gethostname().split(".")[0], free_ports(1 + NODES)
    nodes = "\n".join(
        f"NodeName=d{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[i]} CPUs=1 RealMemory=100 State=UNKNOWN"
        for i in range(1, NODES + 1)
    )
    user = pwd.getpwuid(os.getuid()).pw_name
    text = CONFIGURATION.format(folder=folder, host=host, ports=ports, user=user, scheduler=scheduler, nodes=nodes, settle_s=settle_s)
    configuration = folder / "slurm.conf"
    configuration.write_text(text)
    environment = {**os.environ, "SLURM_CONF": str(configuration), "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
    commands = [["slurmctld", "-D", "-c"]] + [["slurmd", "-D", "-N", f"d{i}"] for i in range(1, NODES + 1)]
    started: list[subprocess.Popen[bytes]] = []
    slurm = Slurm(configuration)
    try:
        for command in commands:
            with (folder / f"{command[0]}-{command[-1]}.out").open("wb") as out:
                started.append(
                    subprocess.Popen(command, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True)
                )
        wait_for_nodes(slurm, folder)
        yield slurm
    finally:
        # Jobs would outlive the daemons.
        with contextlib.suppress(InputError):
            slurm.cancel([job.job for job in slurm.queue()])
            end = time.monotonic() + 10
            while slurm.queue() and time.monotonic() < end:
                time.sleep(0.2)
        stop(started)
        shutil.rmtree(folder, ignore_errors=True)


def wait_for_nodes(slurm: Slurm, folder: Path, most_s: float = 60.0) -> None:
    """Waits until all nodes are idle."""
    end = time.monotonic() + most_s
    while time.monotonic() < end:
        # The controller may not answer yet.
        with contextlib.suppress(InputError):
            if slurm.nodes().idle == NODES:
                return
        time.sleep(0.2)
    logs = "\n".join(f"{path.name}: {path.read_text(errors='replace')[-1500:]}" for path in sorted(folder.glob("*.log")))
    raise RuntimeError(f"the cluster did not start within {most_s:g} s\n{logs}")


def stop(started: list[subprocess.Popen[bytes]]) -> None:
    """Ends the daemons and whatever their jobs left in their sessions."""
    for process in reversed(started):
        process.send_signal(signal.SIGTERM)
    for process in started:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
