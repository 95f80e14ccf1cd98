"""Pilots over a real Slurm of four nodes: steps that really ran, pools behind `srun`, allocations, and jobs."""

from __future__ import annotations

import os
import signal
import time

import pilot_bodies as bodies
import pytest

from armillary.errors import InputError
from armillary.runtime.pilot import Lost, NeverRan, Pilot, Slurm
from armillary.runtime.pilot.backends.slurm import _cores_of_job


def test_every_executable_is_a_step_of_the_allocation_in_the_controllers_own_log(slurm: Slurm) -> None:
    assert slurm.folder is not None
    with Pilot(4, ["srun"], cores=8, slurm=slurm) as pilot:
        pilot.wait_ready(60)
        assert pilot._allocation is not None
        job = pilot._allocation.job
        found = [pilot.launch(["sh", "-c", "echo $SLURM_JOB_ID.$SLURM_STEP_ID"]).result(60) for _ in range(3)]
        futures = [pilot.launch(["true"]) for _ in range(20)]
        wide = pilot.launch(["sh", "-c", "echo $SLURM_PROCID $SLURMD_NODENAME; exec sleep 1.5"], nodes=3, ranks=6)
        end = time.monotonic() + 10
        seen = ""
        while "sh" not in seen and time.monotonic() < end and not wide.done():
            seen = slurm.command("squeue", "--steps", "-h", "-o", "%i %j %N")[0]
        assert "sh" in seen, "the step was not seen by squeue"
        assert all(future.result(60).returncode == 0 for future in futures)
        ranks = sorted(line.split() for line in wide.result(60).stdout.decode().splitlines())
    steps = [one.stdout.decode().strip().split(".") for one in found]
    assert {step[0] for step in steps} == {job}
    assert len({step[1] for step in steps}) == 3
    assert [rank[0] for rank in ranks] == list("012345")
    assert len({rank[1] for rank in ranks}) == 3
    log = (slurm.folder / "slurmctld.log").read_text(errors="replace")
    numbers = {line.split("StepId=")[1].split()[0] for line in log.splitlines() if f"StepId={job}." in line}
    assert len({n for n in numbers if n.split(".")[1].isdigit()}) == 24, "the controller counted other steps than there were tasks"
    assert not slurm.command("squeue", "-h", "-t", "RUNNING,PENDING")[0].strip(), "the allocation was not given back"


def test_a_failing_step_passes_its_status_and_a_signal_is_a_failure(slurm: Slurm) -> None:
    with Pilot(1, ["srun"], cores=8, slurm=slurm) as pilot:
        assert pilot.launch(["sh", "-c", "exit 5"]).result(60).returncode == 5
        assert pilot.launch(["sh", "-c", "kill -9 $$"]).result(60).returncode in (137, 9)
        assert pilot.launch(["/no/such/program"]).result(60).returncode != 0
        assert pilot.states["state"].to_list() == ["FAILED"] * 3


def test_pools_on_slurms_nodes_run_functions_and_their_death_is_noticed(slurm: Slurm) -> None:
    with Pilot(2, ["srun", "pool"], cores=2, slurm=slurm, retries=0) as pilot:
        pilot.wait_ready(60)
        assert len({pilot.submit(bodies.pid).result(60) for _ in range(30)}) >= 1
        assert list(pilot.map(bodies.add, range(50), range(50))) == [2 * i for i in range(50)]
        with pytest.raises(Lost, match="signal 9"):
            pilot.submit(bodies.kills_itself).result(60)
        assert pilot.submit(bodies.add, 3).result(60) == 3
        assert pilot.launch(["true"]).result(60).returncode == 0
        hanging = [pilot.submit(bodies.sleeps, 30) for _ in range(6)]
        time.sleep(0.5)
        keeper = pilot._agent.instances[1].backend._keepers[0]  # type: ignore[attr-defined]
        os.killpg(keeper._process.pid, signal.SIGKILL)
        for future in hanging:
            with pytest.raises((Lost, NeverRan)):
                future.result(60)
        assert "keeper" in pilot.failures["pool"]
        assert pilot.launch(["true"]).result(60).returncode == 0, "the other backend goes on"


@pytest.mark.slow
def test_inside_a_job_the_pilot_takes_that_jobs_nodes(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    allocation = slurm.allocate(2, 8)
    try:
        for name, value in slurm.environment.items():
            if name.startswith("SLURM"):
                monkeypatch.setenv(name, value)
        monkeypatch.setenv("SLURM_JOB_ID", allocation.job)
        monkeypatch.setenv("SLURM_JOB_NODELIST", f"n[{','.join(name[1:] for name in allocation.nodes)}]")
        monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", "8(x2)")
        with Pilot(backends=["srun"]) as pilot:
            assert (pilot.node_names, pilot.cores) == (allocation.nodes, 8)
            assert pilot.launch(["true"]).result(60).returncode == 0
        assert slurm.command("squeue", "-h", "-j", allocation.job)[0].strip(), "a job that it did not ask for is left alone"
        with pytest.raises(InputError, match="expected at most 2"):
            Pilot(3, ["srun"])
    finally:
        slurm.command("scancel", allocation.job)


def test_cores_of_an_uneven_job_are_those_of_its_smallest_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", "56(x4),28")
    assert _cores_of_job() == 28


def test_without_slurm_it_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("armillary.cluster.local_slurm.DAEMONS", "/nowhere")
    with pytest.raises(InputError, match="found no slurmctld"):
        Slurm.local()
    with pytest.raises(InputError, match="found no salloc"):
        Pilot(1, ["srun"])


@pytest.mark.slow
def test_jobs_and_array_jobs_all_end(slurm: Slurm) -> None:
    from armillary.runtime.pilot.running.jobs import run_jobs
    from armillary.runtime.pilot.running.real import RealWork

    for array in (False, True):
        ran = run_jobs(RealWork(executables=6, nodes=2, slots=4), array=array)
        assert ran.done == 6
