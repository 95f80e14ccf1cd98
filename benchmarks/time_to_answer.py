"""How long `armillary compare ARENA` takes to answer, for every arena: an empty store, default options, compiled loops in the cache.

    python benchmarks/time_to_answer.py [ARENA ...]

Each arena runs in a process of its own, twice: the first run compiles what is not in the cache and is not counted. The figures are written
to `docs/time_to_answer.json`, from which the documentation's table is made; arenas that are not named keep theirs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from armillary import catalogue

TARGET = Path(__file__).parents[1] / "docs" / "time_to_answer.json"
PATIENCE_S = 1200


def answer(arena: str, folder: str, number: int) -> tuple[float, str, str]:
    """(seconds, stdout, stderr) of one comparison."""
    store = Path(folder) / f"{arena.replace('/', '-')}-{number}.db"
    began = time.perf_counter()
    command = [sys.executable, "-m", "armillary.cli", "compare", arena, "--store", str(store)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if run.returncode not in (0, 1):
        sys.exit(f"{arena}: {run.stderr.strip()}")
    return time.perf_counter() - began, run.stdout, run.stderr


def main(wanted: list[str]) -> None:
    """Times the arenas and writes the figures."""
    known = json.loads(TARGET.read_text()) if TARGET.exists() else {}
    paths = [path for path, arena in catalogue.arenas().items() if arena.package.startswith("armillary.") and path in (wanted or [path])]
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            answer(path, folder, 0)
            seconds, _, said = answer(path, folder, 1)
            begun = re.search(r"([\d,]+) techniques? on (?:(\d+) of )?([\d,]+) cases?, ([\d,]+) units?", said)
            units = sum(int(n.replace(",", "")) for n in re.findall(r"([\d,]+) units? (?:to run|more)", said))
            chosen, every = (begun[2] or begun[3], begun[3]) if begun else ("?", "?")
            known[path] = {"cases": chosen, "of": every, "units": units, "seconds": round(seconds, 1), "cores": os.cpu_count()}
            print(f"{path:<28}{chosen:>4} of {every:>4} cases{units:>6} units{seconds:>8.1f} s", flush=True)
            TARGET.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
