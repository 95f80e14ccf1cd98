"""The tiny service is really started on this machine and, if Slurm is installed, under a Slurm of one node."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import time

import pytest

from armillary import catalogue
from armillary.arena import NotForThisCase
from armillary.cluster.local_slurm import free_ports, lacking, search_path
from armillary.errors import InputError
from armillary.serving.deployment import Service, running, smoke
from armillary.serving.deployment.launching.start import why_not
from armillary.serving.deployment.rendering.targets import write

pytest.importorskip("torch")
pytest.importorskip("uvicorn")
pytest.importorskip("yaml")


def tiny(**more):
    content = {
        "name": "tiny", "engine": "armillary", "image": "localhost/armillary:0.1.0", "model": {"source": "built-in", "id": "tiny-llama"},
        "resources": {"gpus_per_node": 0, "cpus": 1, "memory_gib": 1}, "network": {"expose": "tunnel"},
        "health": {"start_s": 300, "period_s": 1}, "lifetime_h": 1,
    }  # fmt: skip
    return Service.parse(content | more)


@pytest.mark.slow
def test_bare_answers_and_leaves_nothing(tmp_path):
    with running(tiny(), "bare", tmp_path) as up:
        file = up.folder / "endpoint.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert json.loads(file.read_text())["url"] == up.url
        found = smoke(up.url, concurrent=4)
        assert found.passed, found.text()
        port = int(up.url.rpartition(":")[2])
    assert not file.exists()
    assert "ssh -L" in (up.folder / "job.log").read_text()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=5)


@pytest.mark.slow
def test_a_key_from_a_file_that_others_may_read_is_refused(tmp_path, monkeypatch):
    service = tiny(auth={"api_key_secret": "llm:key"})
    secret = tmp_path / "secrets" / "llm" / "key"
    secret.parent.mkdir(parents=True)
    secret.write_text("open-sesame-42")
    secret.chmod(0o644)
    monkeypatch.setenv("SECRETS_DIR", str(tmp_path / "secrets"))
    with pytest.raises(InputError, match="ended before it was healthy"), running(service, "bare", tmp_path / "a"):
        pass
    assert "mode 644; expected 600" in (tmp_path / "a" / "bare" / "job.log").read_text()
    secret.chmod(0o600)
    with running(service, "bare", tmp_path / "b") as up:
        assert smoke(up.url, key="open-sesame-42", concurrent=2).passed
        assert not smoke(up.url, key="wrong", concurrent=2).passed
    assert not any("open-sesame-42" in p.read_text() for p in (tmp_path / "b").rglob("*") if p.is_file())


def test_an_engine_that_dies_takes_the_service_down(tmp_path):
    with pytest.raises(InputError, match="ended before it was healthy"), running(tiny(engine_args={"dtype": "int4"}), "bare", tmp_path):
        pass
    assert not (tmp_path / "bare" / "endpoint.json").exists()


def test_what_cannot_be_started_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert why_not("slurm-podman", tiny()) == "no sbatch here"
    assert why_not("bare", Service.read("llama-3.1-8b-1gpu")) == "the engine vllm is not installed"
    with pytest.raises(InputError, match="validated only"), running(tiny(), "kubernetes", tmp_path):
        pass


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """Starts a Slurm of this one machine, without munge, and ends its daemons afterwards."""
    if missing := lacking():
        pytest.skip(f"{missing} is not installed (Debian: slurm-wlm)")
    if os.geteuid() != 0:
        pytest.skip("slurmd wants root")
    root = tmp_path_factory.mktemp("slurm")
    host, user = socket.gethostname().partition(".")[0], getpass.getuser()
    control, daemon = free_ports(2)
    (root / "state").mkdir()
    (root / "spool").mkdir()
    (root / "slurm.conf").write_text(
        f"ClusterName=here\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser={user}\nSlurmdUser={user}\nAuthType=auth/none\nCredType=cred/none\n"
        f"SlurmctldPort={control}\nSlurmdPort={daemon}\nStateSaveLocation={root}/state\nSlurmdSpoolDir={root}/spool\n"
        f"SlurmctldPidFile={root}/ctld.pid\nSlurmdPidFile={root}/d.pid\nSlurmctldLogFile={root}/ctld.log\nSlurmdLogFile={root}/d.log\n"
        "ProctrackType=proctrack/pgid\nTaskPlugin=task/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nReturnToService=2\nEnforcePartLimits=ALL\n"
        "AccountingStorageType=accounting_storage/none\nJobAcctGatherType=jobacct_gather/none\nSwitchType=switch/none\nMpiDefault=none\nKillWait=30\n"
        f"NodeName={host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} RealMemory=2048 State=UNKNOWN\n"
        f"PartitionName=main Nodes={host} Default=YES MaxTime=120 State=UP\n"
    )
    env = {**os.environ, "SLURM_CONF": str(root / "slurm.conf")}
    quiet = {"env": env, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    controller, node = (str(shutil.which(name, path=search_path())) for name in ("slurmctld", "slurmd"))
    commands = [[controller, "-D", "-i"], [node, "-D", "-N", host]]
    daemons = [subprocess.Popen(command, **quiet) for command in commands]
    try:
        end = time.monotonic() + 60
        while "idle" not in subprocess.run(["sinfo", "--noheader"], env=env, capture_output=True, text=True).stdout:
            if time.monotonic() > end or any(d.poll() is not None for d in daemons):
                logs = [(root / name).read_text()[-400:] for name in ("ctld.log", "d.log") if (root / name).exists()]
                pytest.skip(f"Slurm does not start here: {logs}")
            time.sleep(0.05)
        yield env
    finally:
        for one in reversed(daemons):
            one.send_signal(signal.SIGTERM)
            try:
                one.wait(timeout=20)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()


@pytest.mark.parametrize(("target", "hours", "status"), [("slurm-apptainer", 1, 0), ("slurm-podman", 1, 0), ("slurm-podman", 3.0, 1)])
def test_slurm_accepts_every_one_node_script_within_its_limit_of_two_hours(slurm, tmp_path, target, hours, status):
    write(tiny(lifetime_h=hours), [target], tmp_path)
    said = subprocess.run(["sbatch", "--test-only", "job.sh"], cwd=tmp_path / target, env=slurm, capture_output=True, text=True)
    assert bool(said.returncode) == bool(status), said.stderr


def test_slurm_serves_drains_and_removes_its_endpoint(slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", slurm["SLURM_CONF"])
    service = tiny(hpc={"runtime": "host"})
    assert why_not("slurm-apptainer", service) is None
    with running(service, "slurm-apptainer", tmp_path) as up:
        assert stat.S_IMODE((up.folder / "endpoint.json").stat().st_mode) == 0o600
        found = smoke(up.url, concurrent=4)
        assert found.passed, found.text()
    assert not (up.folder / "endpoint.json").exists()
    log = "".join(p.read_text() for p in up.folder.glob("tiny-*.log"))
    assert "ssh -L" in log


def test_a_job_that_renews_queues_the_next_one(slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", slurm["SLURM_CONF"])
    with running(tiny(name="again", hpc={"runtime": "host", "renew": True}), "slurm-podman", tmp_path):
        pass
    listed = subprocess.run(["squeue", "--noheader", "--name=again", "--format=%i %T"], env=slurm, capture_output=True, text=True).stdout
    jobs = [line.split()[0] for line in listed.splitlines()]
    for job in jobs:
        subprocess.run(["scancel", "--full", job], env=slurm, capture_output=True)
    assert len(jobs) == 1, listed
    end = time.monotonic() + 60
    while subprocess.run(["squeue", "--noheader", "--name=again"], env=slurm, capture_output=True, text=True).stdout.strip():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_arena_declines_what_is_not_here(monkeypatch):
    monkeypatch.delenv("SLURM_CONF", raising=False)
    arena = catalogue.arena("serving/deployment")
    case = next(c for c in arena.built_in("tiny") if c.name == "tiny-started")
    for name in ("kubernetes", "flux", "by-hand"):
        assert isinstance(arena.execute(arena.make(name), case), NotForThisCase)


def test_the_arena_counts_lines_and_settings():
    arena = catalogue.arena("serving/deployment")
    case = next(c for c in arena.built_in("small") if c.name == "llama-3.1-8b-1gpu")
    one, hand = (arena.execute(arena.make(name), case).values for name in ("converged", "by-hand"))
    assert one == {"valid": 1.0, "honoured": 1.0, "author_lines": 26.0, "portable": 7.0}
    assert hand["valid"] == 1.0
    assert hand["honoured"] < 0.5
    assert hand["author_lines"] >= 150
    assert hand["portable"] == 0.0
