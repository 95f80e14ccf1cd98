"""Other runtimes on a real case: each is driven by a script in an interpreter that has it, in a private folder, under a time limit.

The interpreter is the one that the technique's `python` names, else this one, else the first that has the package among the virtual
environments that ARMILLARY_PEERS lists, separated by colons.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from armillary.arena import NotForThisCase
from armillary.errors import InputError, one_line

from .real import Ran, RealWork

PACKAGES = {"dask": "distributed", "parsl": "parsl", "ray": "ray", "radical-pilot": "radical.pilot", "dragon": "dragon"}
INSTALLED_AS = {"dragon": "dragonhpc", "distributed": "dask[distributed]"}
#: Seconds that a driver may take: a runtime that hangs must not hold up a study.
MOST_S = 240.0
#: Seconds within which everything that was killed must be gone.
GONE_S = 10.0


def interpreter(peer: str, given: str = "") -> str:
    """The interpreter that has a peer's package; the technique declines if there is none."""
    package = PACKAGES[peer]
    if given:
        if not Path(given).is_file():
            raise InputError(f'found no interpreter "{one_line(given, 100)}"', where=f"{peer}.python")
        if not _has(given, package):
            raise NotForThisCase(f"the interpreter that {peer}.python names has no {INSTALLED_AS.get(package, package)}")
        return given
    if importlib.util.find_spec(package.partition(".")[0]) is not None and _has(sys.executable, package):
        return sys.executable
    for environment in filter(None, os.environ.get("ARMILLARY_PEERS", "").split(":")):
        for python in (Path(environment) / "bin" / "python", *sorted(Path(environment).glob("*/bin/python"))):
            if python.is_file() and _has(str(python), package):
                return str(python)
    name = INSTALLED_AS.get(package, package)
    raise NotForThisCase(f"{name} is not installed here, nor in a virtual environment that ARMILLARY_PEERS lists")


@functools.cache
def _has(python: str, package: str) -> bool:
    look = (
        f"import importlib.util as u,sys; sys.exit(u.find_spec({package.partition('.')[0]!r}) is None or u.find_spec({package!r}) is None)"
    )
    try:
        return subprocess.run([python, "-c", look], capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def environment_of(python: str, folder: str) -> dict[str, str]:
    """The environment of an interpreter whose virtual environment is activated, and that keeps its files in `folder`."""
    bin_folder = Path(python).parent
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "RAY_", "RADICAL_"))}
    return kept | {
        "PATH": f"{bin_folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}", "VIRTUAL_ENV": str(bin_folder.parent), "HOME": folder,
        "PWD": folder, "TMPDIR": folder, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RADICAL_BASE": folder,
        "PYTHONPATH": str(Path(__file__).parents[1] / "peers"), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip


def run_peer(peer: str, work: RealWork, given: str = "", most_s: float = MOST_S) -> Ran:
    """Runs a peer's driver on this work."""
    python = interpreter(peer, given)
    cores = len(os.sched_getaffinity(0))
    asked = {
        "executables": work.executables, "functions": work.functions, "batched": work.batched, "seconds": work.seconds,
        "command": work.command, "workers": min(cores, work.workers), "slots": work.workers if work.seconds else min(cores, work.workers),
    }  # fmt: skip
    if peer == "radical-pilot":
        asked["slots"] = work.workers
    script = Path(__file__).parents[1] / "peers" / f"drive_{peer.replace('-', '_')}.py"
    launcher = [str(Path(python).parent / "dragon"), "--single-node-override"] if peer == "dragon" else [python]
    with tempfile.TemporaryDirectory(prefix="pilot-") as folder:
        said = _driven([*launcher, str(script), json.dumps(asked)], environment_of(python, folder), folder, peer, most_s)
    return Ran(said["bootstrap"], said["makespan"], said["done"], said["latency"])


def _driven(command: list[str], environment: dict[str, str], folder: str, peer: str, most_s: float) -> dict[str, Any]:
    with (Path(folder) / "driver.err").open("wb+") as errors:
        # Dragon's launcher waits for ever if its input has ended, so every driver gets an input that stays open.
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=peer != "dragon",  # Its launcher hangs without a controlling session.
        )
        assert process.stdout is not None
        overdue = threading.Event()

        def end() -> None:
            overdue.set()
            kill_family(process, folder)

        timer = threading.Timer(most_s, end)
        timer.start()
        try:
            for line in process.stdout:
                # What a runtime does after its answer, some hang in, is not waited for.
                if line.startswith(b'{"bootstrap"'):
                    said: dict[str, Any] = json.loads(line)
                    return said
            process.wait()
        finally:
            timer.cancel()
            kill_family(process, folder)
            process.communicate()
        if overdue.is_set():
            raise RuntimeError(f"{peer} had not ended within {most_s:g} s")
        errors.seek(0, 2)
        errors.seek(max(0, errors.tell() - 4000))
        last = _last(errors.read().decode("utf-8", "replace").splitlines())
        raise RuntimeError(f"{peer} gave no answer (exit status {process.returncode}): {last}")


def kill_family(process: subprocess.Popen[bytes], folder: str) -> None:
    """Ends a driver with all that it started.

    Some of that has left the driver's session and lost its parents, as the workers of Parsl and the agent of RADICAL-Pilot have; it is
    known by its HOME, the private folder. What a dying process still starts is found by the next look.
    """
    end = time.monotonic() + GONE_S
    while (family := _family(process.pid, folder)) and time.monotonic() < end:
        for pid in family:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _family(root: int, folder: str) -> set[int]:
    """A process with its descendants, and every process whose HOME is this folder; only those that live."""
    children: dict[int, list[int]] = {}
    found, living = {root}, set[int]()
    home = os.fsencode(f"HOME={folder}")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                children.setdefault(int(parent), []).append(int(entry.name))
                if state not in "ZX":
                    living.add(int(entry.name))
                    if home in (entry / "environ").read_bytes().split(b"\0"):
                        found.add(int(entry.name))
    ahead = list(found)
    while ahead:
        new = set(children.get(ahead.pop(), [])) - found
        found |= new
        ahead += new
    return found & living


def _last(lines: Iterable[str]) -> str:
    return one_line(next((line for line in reversed(list(lines)) if line.strip()), "nothing was said"))
