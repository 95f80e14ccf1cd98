"""Drishti, run as it is, with its insights mapped to this arena's labels.

Drishti reads a binary Darshan log and prints insights, each with a code. They keep the order in which it prints them. Where an insight does
not name a direction (misaligned requests, streams), it is taken for each direction that holds at least a tenth of the requests or bytes, in
Drishti's favour. Synthetic logs are written as binary logs for it.

Drishti: Guiding End-Users in the I/O Optimization Journey, PDSW 2022; the program is drishti-io 0.8.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from armillary.arena import NotForThisCase, Technique, parameter
from armillary.errors import one_line

from .diagnosis.facts import DIRECTIONS, Facts
from .diagnosis.finding import Answer, Evidence, Finding
from .diagnosis.labels import MEANING
from .logs.binary_writing import write_binary_log
from .logs.log import Log
from .workload import Known

CODES: dict[str, tuple[str, ...]] = {
    "P05": ("small-read",), "P06": ("small-write",), "P08": ("misaligned-read", "misaligned-write"), "P09": ("repeated-read",),
    "P11": ("random-read",), "P13": ("random-write",), "P15": ("small-read", "shared-file"), "P16": ("small-write", "shared-file"),
    "P17": ("high-metadata",), "P18": ("rank-imbalance",), "P19": ("rank-imbalance",), "P21": ("rank-imbalance",),
    "P22": ("rank-imbalance",), "S01": ("low-level-read", "low-level-write"), "M01": ("no-mpi",), "M02": ("no-collective-read",),
    "M03": ("no-collective-write",),
}  # fmt: skip
_INSIGHT = re.compile(r"\[([A-Z]\d\d)\]")


@dataclass(frozen=True)
class Drishti(Technique):
    """The program `drishti`, found beside the running Python or on the PATH."""

    timeout_s: float = parameter(120.0, "seconds that it may take for one log", range=(1.0, 3600.0))

    def answer(self, known: Known, scale: float = 1.0) -> Answer:
        """What Drishti says of one log."""
        if scale != 1.0:
            raise NotForThisCase("its thresholds are its own")
        program = found_program()
        if program is None:
            raise NotForThisCase("the program drishti is not installed (pip install drishti-io)")
        with tempfile.TemporaryDirectory(prefix="armillary-drishti-") as folder:
            path = known.path if known.path is not None and known.path.suffix == ".darshan" else None
            if path is None:
                path = Path(folder) / "job.darshan"
                write_binary_log(known.log, path)
            command = [program, "--code", "--issues", "--size", "200", str(path)]
            try:
                done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=self.timeout_s, check=False)
            except subprocess.TimeoutExpired:
                return Answer((), notes=(f"Drishti took more than {self.timeout_s:g} s.",))
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return Answer((), notes=(f"Drishti ended with status {done.returncode}: {one_line(last, 120)}",))
        return Answer(tuple(_findings(known.log, _INSIGHT.findall(done.stdout))))


def found_program() -> str | None:
    """The program `drishti`, beside this Python or on the PATH."""
    beside = Path(sys.executable).with_name("drishti")
    return str(beside) if beside.exists() else shutil.which("drishti")


def _findings(log: Log, codes: list[str]) -> list[Finding]:
    """Its insights as findings, in its order."""
    labels = dict.fromkeys(label for code in codes for label in CODES.get(code, ()) if _meant(log, code, label))
    return [
        Finding(label, 1.0 / place, 0.5, (Evidence("drishti", "place", place),), f"Drishti says that {MEANING[label]}.")
        for place, label in enumerate(labels, 1)
    ]


def _meant(log: Log, code: str, label: str) -> bool:
    """Whether an insight without a direction means this one."""
    if code not in ("P08", "S01"):
        return True
    facts = Facts(log)
    if code == "P08":
        parts = {way: float(facts.requests(way).sum()) for way in DIRECTIONS}
    else:
        parts = {way: log.totals.get(f"STDIO_BYTES_{DIRECTIONS[way][1]}", 0.0) for way in DIRECTIONS}
    return parts[label.rpartition("-")[2]] >= 0.1 * sum(parts.values())
