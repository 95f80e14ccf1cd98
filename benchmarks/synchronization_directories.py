"""Two real directories on this machine: the first synchronisation of many small files and one without changes, against others.

python benchmarks/synchronization_directories.py [files [bytes of each]] prints seconds, ratios and one JSON object. The others are unison
and rsync -a where they are installed, git (add and status: a scan by stat cache of one tree) and cp -a (no state at all). Ours and unison
look at two trees for a synchronisation without changes, git at one. Needs about three times the files' bytes and removes what it made.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from armillary.storage.synchronization import sync

REPEATS = 3
IN_ONE = 500


def make(root: Path, files: int, size: int) -> None:
    """Files of random bytes, a few hundred in a directory."""
    for k in range(files):
        if k % IN_ONE == 0:
            folder = root / f"d{k // IN_ONE:04d}"
            folder.mkdir(parents=True)
        with open(folder / f"file{k % IN_ONE:03d}", "wb") as file:
            file.write(os.urandom(size))


def seconds(work: Callable[[], object]) -> float:
    """Wall-clock time of a call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def command(*words: str | Path, env: dict[str, str] | None = None) -> Callable[[], object]:
    """A program, silent; it must succeed."""
    return lambda: subprocess.run([os.fspath(w) for w in words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)


def ours(source: Path, target: Path) -> dict[str, float]:
    """First synchronisation and the fastest of some without changes; with everything on the device, as by default."""
    target.mkdir()
    first = seconds(lambda: sync(source, target))
    again = min(seconds(lambda: sync(source, target)) for _ in range(REPEATS))
    shutil.rmtree(source / ".armillary-sync")
    return {"first_s": first, "no_change_s": again}


def unison(source: Path, target: Path, home: Path) -> dict[str, float]:
    """The same by unison, in batch mode."""
    target.mkdir()
    run = command("unison", source, target, "-batch", "-silent", "-confirmbigdel=false", env={**os.environ, "UNISON": str(home)})
    return {"first_s": seconds(run), "no_change_s": min(seconds(run) for _ in range(REPEATS))}


def rsync(source: Path, target: Path) -> dict[str, float]:
    """One way only."""
    run = command("rsync", "-a", f"{source}/", target)
    return {"first_s": seconds(run), "no_change_s": min(seconds(run) for _ in range(REPEATS))}


def git(source: Path, folder: Path) -> dict[str, float]:
    """One tree: adding everything, and status when nothing changed."""
    words = ("git", "--git-dir", folder, "--work-tree", source)
    command("git", "init", "--bare", "--quiet", folder)()
    first = seconds(command(*words, "add", "--all", "."))
    return {"first_s": first, "no_change_s": min(seconds(command(*words, "status", "--porcelain")) for _ in range(REPEATS))}


def main(files: int = 100_000, size: int = 1024) -> None:
    """Measures all in one run, prints ratios over ours."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        source = root / "source"
        make(source, files, size)
        found: dict[str, dict[str, float]] = {"armillary": ours(source, root / "ours")}
        shutil.rmtree(root / "ours")
        others: dict[str, Callable[[], dict[str, float]]] = {
            "unison": lambda: unison(source, root / "unison", root / "unison-home"),
            "rsync": lambda: rsync(source, root / "rsync"),
            "git": lambda: git(source, root / "git"),
            "cp": lambda: {"first_s": seconds(command("cp", "-a", source, root / "cp"))},
        }
        for name, work in others.items():
            if shutil.which(name) is None:
                print(f"{name}: not installed, skipped")
                continue
            found[name] = work()
            shutil.rmtree(root / name)
    for name, times in found.items():
        for what, taken in times.items():
            print(f"{name:<10} {what:<12} {taken:8.2f} s   {taken / found['armillary'][what]:6.2f} times ours")
    print(json.dumps({"files": files, "bytes": size, **found}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
