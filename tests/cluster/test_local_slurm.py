"""A Slurm of virtual nodes on this machine: it fills its cores, begins anew where a port was taken, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time

import pytest

from armillary.cluster import local_slurm
from armillary.cluster.local_slurm import LocalSlurm, lacking
from armillary.errors import InputError

needs_slurm = pytest.mark.skipif(bool(lacking()), reason=f"{lacking()} is not installed (Debian: slurm-wlm)")


def asked(slurm: LocalSlurm, *words: str) -> str:
    program = shutil.which(words[0], path=local_slurm.search_path())
    assert program is not None
    return subprocess.run([program, *words[1:]], env=slurm.environment, capture_output=True, text=True, timeout=60, check=True).stdout


@needs_slurm
def test_jobs_of_one_core_fill_every_core_and_nothing_is_left_behind() -> None:
    """A job that names no memory must not take all memory of its node, or one job per node runs however many cores there are."""
    with LocalSlurm(nodes=1, cores=4) as slurm:
        pids, folder = [daemon.pid for daemon in slurm.daemons], slurm.folder
        assert folder is not None
        assert folder.stat().st_mode & 0o077 == 0
        for _ in range(5):
            asked(slurm, "sbatch", "--output=/dev/null", "--chdir=/", "--wrap=sleep 600")
        states: list[str] = []
        end = time.monotonic() + 60
        while states.count("RUNNING") < 4 and time.monotonic() < end:
            states = asked(slurm, "squeue", "--noheader", "--format=%T").split()
        assert sorted(states) == ["PENDING", "RUNNING", "RUNNING", "RUNNING", "RUNNING"]
        step = f"{folder}/spool-n0/job"
    assert not folder.exists()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not [words for words in processes() if step in words], "a job outlived its Slurm"


@needs_slurm
def test_where_a_port_was_taken_all_begins_anew_with_other_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    search, found = local_slurm.free_ports, []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        def once_a_taken_one(count: int) -> list[int]:
            found.append(search(count))
            return [*found[0][:-1], taken.getsockname()[1]] if len(found) == 1 else found[-1]

        monkeypatch.setattr(local_slurm, "free_ports", once_a_taken_one)
        with LocalSlurm(nodes=1, cores=1) as slurm:
            assert asked(slurm, "sinfo", "--noheader", "--format=%t").split() == ["idle"]
        assert len(found) == 2
        monkeypatch.setattr(local_slurm, "free_ports", lambda count: [*search(count - 1), taken.getsockname()[1]])
        with pytest.raises(InputError, match="ended at its start"):
            slurm.start()
        assert slurm.folder is None
        assert slurm.daemons == []


def processes() -> list[str]:
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
