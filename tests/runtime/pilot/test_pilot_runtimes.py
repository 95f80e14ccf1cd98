"""Dask and Dragon under the pilot, killed in mid-run; peers that are driven; the choice of backends."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pilot_bodies as bodies
import pytest

from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.runtime.pilot import Local, Lost, NeverRan, Pilot, Pool, measure_backends
from armillary.runtime.pilot.agent.choose import Cost, Measured
from armillary.runtime.pilot.arena import pilot
from armillary.runtime.pilot.backends.backend import EXECUTABLE, FUNCTION
from armillary.runtime.pilot.backends.dragon import Dragon
from armillary.runtime.pilot.running.peers import interpreter, run_peer
from armillary.runtime.pilot.running.real import Ran, RealWork


@pytest.mark.slow
def test_a_killed_dask_worker_loses_no_task_and_runs_none_twice_at_once(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    with Pilot(1, ["dask"], cores=2, retries=3) as made:
        made.wait_ready(60)
        futures = [made.submit(bodies.notes, str(tmp_path), f"n{i}", 0.05) for i in range(60)]
        time.sleep(0.7)
        client = made._agent.instances[0].backend._client  # type: ignore[attr-defined]
        victim = next(iter(client.run(os.getpid).values()))
        os.kill(victim, signal.SIGKILL)
        ended = []
        for future in futures:
            try:
                ended.append(future.result(60))
            except Lost:
                ended.append("lost")
        assert len(ended) == 60
        assert Counter(made.states["task"].to_list()).keys() == set(range(60))
        assert set(made.states["state"]) <= {"DONE", "FAILED"}
    for i, result in enumerate(ended):
        if result != "lost":
            times = [int(line.split()[1]) for line in (tmp_path / f"n{i}").read_text().splitlines()]
            assert times == sorted(times)


def dragon_python() -> str:
    try:
        return interpreter("dragon")
    except NotForThisCase as reason:
        pytest.skip(str(reason))


@pytest.mark.slow
def test_a_killed_dragon_service_fails_what_it_had_and_the_rest_goes_on() -> None:
    with Pilot(1, ["dragon", "local"], cores=2, peers=dragon_python()) as made:
        made.wait_ready(90)
        assert made.failures == {}
        assert made.submit(bodies.add, 2, 3).result(60) == 5
        with pytest.raises(ValueError, match="x"):
            made.submit(bodies.fails, "x").result(60)
        hanging = [made.submit(bodies.sleeps, 30) for _ in range(4)]
        time.sleep(1)
        service = made._agent.instances[0].backend
        os.kill(service._process.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        for pid in service_pids():
            os.kill(pid, signal.SIGKILL)
        for future in hanging:
            with pytest.raises((Lost, NeverRan)):
                future.result(60)
        assert "dragon" in made.failures
        assert made.launch(["true"]).result(30).returncode == 0


def test_dragon_has_no_more_workers_than_this_machine_has_cores() -> None:
    assert Dragon("", ["n0"], 1).workers == 1
    assert Dragon("", ["n0"], 1 << 20).workers == len(os.sched_getaffinity(0))


def service_pids() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if b"dragon_service.py" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


@pytest.mark.slow
@pytest.mark.parametrize("peer", ["dask", "parsl", "ray", "dragon", "radical-pilot"])
def test_a_peer_that_is_installed_runs_everything_that_it_is_given(peer: str) -> None:
    works = [RealWork(executables=8, nodes=1, slots=2)]
    if peer != "radical-pilot":
        works += [RealWork(functions=20), RealWork(functions=40, batched=True)]
    for work in works:
        try:
            ran = run_peer(peer, work)
        except NotForThisCase as reason:
            pytest.skip(str(reason))
        assert ran.done == work.tasks
        assert len(ran.latency) == work.functions


def test_a_peer_that_is_not_there_declines_and_a_wrong_interpreter_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMILLARY_PEERS", "")
    with pytest.raises(NotForThisCase, match=r"radical.pilot is not installed"):
        interpreter("radical-pilot")
    with pytest.raises(NotForThisCase, match="has no ray"):
        interpreter("ray", sys.executable)
    with pytest.raises(InputError, match="found no interpreter"):
        interpreter("ray", "/no/such/python")


def test_a_driver_that_hangs_or_dies_is_ended_with_all_its_children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from armillary.runtime.pilot.running import peers

    mark = tmp_path / "pid"
    command = ["sh", "-c", f"setsid sleep 97 & echo $! > {mark}; sleep 98"]
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="had not ended within 1 s"):
        peers._driven(command, dict(os.environ), str(tmp_path), "ray", 1.0)
    assert time.monotonic() - began < 20
    stat = Path(f"/proc/{mark.read_text().strip()}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
    with pytest.raises(RuntimeError, match=r"gave no answer .exit status 3.: no such thing"):
        peers._driven(["sh", "-c", "echo no such thing >&2; exit 3"], dict(os.environ), str(tmp_path), "ray", 20.0)


def test_a_peer_keeps_its_files_in_its_private_folder(tmp_path: Path) -> None:
    from armillary.runtime.pilot.running.peers import environment_of

    found = environment_of(sys.executable, str(tmp_path))
    assert {found[name] for name in ("HOME", "PWD", "TMPDIR", "RADICAL_BASE")} == {str(tmp_path)}


def test_what_left_its_driver_for_init_ends_with_it(tmp_path: Path) -> None:
    from armillary.runtime.pilot.running import peers

    mark = tmp_path / "pid"
    command = ["sh", "-c", f"(setsid sleep 97 & echo $! > {mark}); echo '{{\"bootstrap\": 1}}'"]
    assert peers._driven(command, {**os.environ, "HOME": str(tmp_path)}, str(tmp_path), "parsl", 20.0) == {"bootstrap": 1}
    stat = Path(f"/proc/{mark.read_text().strip()}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_flux_says_why_it_declines_and_launchers_what_they_do_not_start() -> None:
    real = RealWork(executables=2)
    for name in ("flux", "flux-n"):
        with pytest.raises(NotForThisCase, match="flux"):
            pilot.make(name).run(real)  # type: ignore[attr-defined]
    assert "functions" in Local().declines(frozenset({"functions", "measured"}))
    assert "executables" in Pool().declines(frozenset({"executables", "measured"}))
    assert "a runtime of its own" in pilot.make("ray").declines(frozenset({"functions", "quick"}))  # type: ignore[attr-defined]


def test_the_choice_takes_the_cheapest_backend_for_each_kind_of_task() -> None:
    costs = [
        Cost("slow", EXECUTABLE, 0.0, 0.01, 10.0), Cost("fast", EXECUTABLE, 5.0, 0.01, 1000.0),
        Cost("warm", FUNCTION, 1.0, 0.001, 5000.0),
    ]  # fmt: skip
    measured = Measured(costs, {"srun": "found no slurmctld"}, 4)
    assert measured.choose(executables=10).backends == ["slow"]
    many = measured.choose(executables=1000, functions=1000)
    assert many.backends == ["fast", "warm"]
    assert "executables by fast: 1,000 per second" in many.said
    assert measured.choose(executables=8, seconds=2.0).makespan == pytest.approx(4.01)
    with pytest.raises(InputError, match="no backend here starts functions; srun: found no slurmctld"):
        Measured(costs[:2], measured.absent, 4).choose(functions=1)


def test_backends_are_measured_once_for_all_works_on_the_same_places(monkeypatch: pytest.MonkeyPatch) -> None:
    from armillary.runtime.pilot.running import pilots

    asked = []

    def measure(**how: float) -> Measured:
        asked.append(how)
        return Measured([Cost("local", EXECUTABLE, 0.0, 0.01, 1000.0)], {}, 2)

    monkeypatch.setattr("armillary.runtime.pilot.agent.choose.measure_backends", measure)
    monkeypatch.setattr(pilots, "run_pilot", lambda work, backends: Ran(0.0, 1.0, work.tasks))
    pilots.measured_here.cache_clear()
    try:
        for work in (RealWork(executables=3), RealWork(executables=400), RealWork(executables=3, nodes=4)):
            assert pilots.run_chosen(work, 0.1).said["chosen"] == "local"
    finally:
        pilots.measured_here.cache_clear()
    assert [how["nodes"] for how in asked] == [1, 4]


def test_backends_that_are_here_are_measured_and_what_is_promised_is_delivered() -> None:
    found = measure_backends(("local", "pool"), seconds=0.3, nodes=1, cores=2)
    rates = {cost.backend: cost.per_s for cost in found.costs}
    assert rates.keys() == {"local", "pool"}
    assert all(rate > 20 for rate in rates.values())
    promised = found.choose(executables=100).makespan
    with Pilot(1, ["local"], cores=2) as made:
        made.wait_ready(60)
        began = time.monotonic()
        for future in [made.launch(["true"]) for _ in range(100)]:
            future.result(60)
        delivered = time.monotonic() - began
    assert promised / 5 < delivered < 5 * promised
