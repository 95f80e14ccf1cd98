"""Starts a rendered target if this machine has its platform, and makes sure that nothing is left of it afterwards."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from armillary import extras
from armillary.errors import InputError, one_line

from ..description.service import Service
from ..endpoint.server import PACKAGES
from ..rendering.targets import write

#: Seconds within which a service must end after it was told to.
END_S = 40.0


@dataclass(frozen=True)
class Running:
    """A service that answers."""

    url: str
    ready_s: float  # from its start to /health 200
    folder: Path


def why_not(target: str, service: Service) -> str | None:
    """Returns the reason why the target cannot be started on this machine, or None if it can."""
    if target == "bare":
        return _no_engine(service.engine)
    if target in ("slurm-apptainer", "slurm-podman"):
        if shutil.which("sbatch") is None:
            return "no sbatch here"
        if subprocess.run(["sinfo", "--noheader"], capture_output=True, timeout=30).returncode != 0:
            return "sbatch is here, but no Slurm controller answers"
        program = target.removeprefix("slurm-")
        return None if service.hpc.runtime == "host" or shutil.which(program) else f"no {program} here"
    # A cluster or container daemon that happens to be within reach belongs to somebody, so it is never used unasked.
    return "rendered and validated only"


def _no_engine(engine: str) -> str | None:
    """Returns the reason why an engine cannot be started without a container, or None if it can."""
    if engine == "armillary":
        lacking = next((name for name in PACKAGES if importlib.util.find_spec(name) is None), None)
        return None if lacking is None else str(extras.missing(lacking))
    if engine == "sglang":
        python, looks = shutil.which("python3"), "import importlib.util as u, sys; sys.exit(u.find_spec('sglang') is None)"
        there = python is not None and subprocess.run([python, "-c", looks], capture_output=True, timeout=30).returncode == 0
    else:
        there = shutil.which({"vllm": "vllm", "llama-cpp": "llama-server"}[engine]) is not None
    return None if there else f"the engine {engine} is not installed"


@contextlib.contextmanager
def running(service: Service, target: str, folder: Path) -> Iterator[Running]:
    """Starts the service from a target's rendered files; at the end of the block ends it and checks that it is gone."""
    reason = why_not(target, service)
    if reason is not None:
        raise InputError(f"{target}: {reason}")
    write(service, [target], folder, force=True)
    place = folder / target
    env = {**os.environ, "PORT": str(_free_port()), "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])}
    begin = time.perf_counter()
    how = _local(place, env) if target == "bare" else _slurm(place, env)
    with how as alive:
        file = place / "endpoint.json"
        _until(lambda: file.exists() or not alive(), service.health.start_s + 30.0, f"{target}: no endpoint.json")
        if not file.exists():
            raise InputError(f"{target}: ended before it was healthy: {_log(place)}")
        found = json.loads(file.read_text())
        yield Running(str(found["url"]), time.perf_counter() - begin, place)
    _until(lambda: not file.exists(), END_S, f"{target}: endpoint.json is still there")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _until(done: Callable[[], bool], within_s: float, otherwise: str) -> None:
    end = time.monotonic() + within_s
    while not done():
        if time.monotonic() > end:
            raise InputError(f"{otherwise} after {within_s:g} s")
        time.sleep(0.02)


def _log(place: Path) -> str:
    logs = sorted(place.glob("*.log"))
    return one_line(logs[-1].read_text(errors="replace")[-300:], 300) if logs else "no log"


@contextlib.contextmanager
def _local(place: Path, env: dict[str, str]) -> Iterator[Callable[[], bool]]:
    """Runs `job.sh` as a process in a session of its own, so that whatever it started can be found again."""
    with (place / "job.log").open("wb") as log:
        process = subprocess.Popen(["bash", str(place / "job.sh")], stdout=log, stderr=log, env=env, start_new_session=True)
        try:
            yield lambda: process.poll() is None
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=END_S)
            _until(lambda: not _group(process.pid), END_S, "bare: something that it started still runs")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _group(leader: int) -> bool:
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    return True


@contextlib.contextmanager
def _slurm(place: Path, env: dict[str, str]) -> Iterator[Callable[[], bool]]:
    """Runs `job.sh` as a Slurm job and ends it as Slurm does, with SIGTERM to the batch script."""
    said = subprocess.run(["sbatch", "--parsable", "job.sh"], cwd=place, env=env, capture_output=True, text=True, timeout=60)
    if said.returncode:
        raise InputError(f"sbatch: {one_line(said.stderr, 200)}")
    job = said.stdout.strip().partition(";")[0]

    def alive() -> bool:
        found = subprocess.run(["squeue", "--noheader", "--job", job], capture_output=True, text=True, timeout=30)
        return bool(found.stdout.strip())

    try:
        yield alive
        subprocess.run(["scancel", "--signal=TERM", "--batch", job], capture_output=True, timeout=30)
        _until(lambda: not alive(), END_S, f"slurm: job {job} still runs")
    finally:
        subprocess.run(["scancel", job], capture_output=True, timeout=30)
